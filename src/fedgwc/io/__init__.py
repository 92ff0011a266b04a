"""Files that are written atomically and checked before they are used."""

"""Everything a real federation needs on disk: an app, certificates, keys, start scripts; and checks before it starts."""

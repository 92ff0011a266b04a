"""Types, randomness, settings and errors that everything else builds on."""

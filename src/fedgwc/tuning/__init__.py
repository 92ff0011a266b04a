"""Tuning: as many trials of settings for every method, on validation samples."""

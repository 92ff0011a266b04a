"""Readers of data sets, one a file."""

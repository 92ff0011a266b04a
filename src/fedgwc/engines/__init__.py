"""Engines: where clients train."""

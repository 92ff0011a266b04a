"""The package's own rule."""

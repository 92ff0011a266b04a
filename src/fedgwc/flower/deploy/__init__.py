"""A federation on Flower: set up, checked, renewed."""

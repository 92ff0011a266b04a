"""Comparisons: methods, settings and seeds on one recipe, and what their differences show."""

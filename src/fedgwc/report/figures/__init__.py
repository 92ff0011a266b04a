"""Figures, one per file.

Each is a pure function from plain data to a matplotlib figure, and one that describes it in words.
"""

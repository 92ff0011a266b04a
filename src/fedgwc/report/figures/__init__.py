"""One figure per file: a pure function from plain data to a matplotlib figure, and one that says in words what it shows."""

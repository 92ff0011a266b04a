"""The tests: the same tree as the package, and tests over whole tables."""

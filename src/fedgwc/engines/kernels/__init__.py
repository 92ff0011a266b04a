"""Kernels for many clients at once on a GPU."""

"""What every algorithm computes, frozen: see `freeze.py`."""

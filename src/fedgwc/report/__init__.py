"""Reports and figures."""

"""Tests of fedgwc.metrics."""

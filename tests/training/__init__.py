"""Tests of fedgwc.training."""

"""Tests of fedgwc.engines."""

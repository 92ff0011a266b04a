"""Tests of fedgwc.data."""

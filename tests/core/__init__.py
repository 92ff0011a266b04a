"""Tests of fedgwc.core."""

"""Tests of fedgwc.algorithms."""

"""Tests of fedgwc.cli."""

"""Tests of fedgwc.runs."""

"""Tests of fedgwc.reproduce."""

"""Tests of fedgwc.io."""

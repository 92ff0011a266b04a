"""Tests of fedgwc.models."""

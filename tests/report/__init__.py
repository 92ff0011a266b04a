"""Tests of reports, their figures and pages in a browser."""

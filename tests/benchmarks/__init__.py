"""Tests of the benchmarks, which must run and judge as they say."""

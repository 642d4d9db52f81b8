"""Benchmarks of foci against real peers, on the same inputs, in the same run. See README.md."""

"""Benchmarks: verified first, timed against a peer, with the noise of the same run."""

"""Kernels over symbols: what they address, for every size, and what a solver can prove of it."""

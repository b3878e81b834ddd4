"""Mutants of a kernel: how many small changes of its source and its launch the checks notice."""

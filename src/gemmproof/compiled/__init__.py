"""Compiled code: launches compiled for GPUs that may be absent, and the facts of the result."""

"""Declarations from the calls that a project's own tests make: `gemmproof record`."""

"""Contracts wider or narrower than the declared one: which a kernel keeps, and where it stops."""

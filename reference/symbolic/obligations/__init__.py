"""Obligations that a kernel's accesses must satisfy at every size, each proved by the solver."""

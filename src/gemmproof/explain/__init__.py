"""Explanations of accesses: the address map."""

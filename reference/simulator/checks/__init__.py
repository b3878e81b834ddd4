"""Checks of accesses, and the messages of their violations."""

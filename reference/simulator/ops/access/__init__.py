"""Loads, stores and atomics, through pointers, block pointers and descriptors."""

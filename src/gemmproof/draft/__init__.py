"""The draft of a declaration: read from a wrapper's source, its kernels and one call of it."""

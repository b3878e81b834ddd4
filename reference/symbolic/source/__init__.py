"""A kernel's addresses in the words of its own source."""

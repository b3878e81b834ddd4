"""How a kernel accumulates, found from its results alone."""

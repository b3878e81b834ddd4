"""A single tl.dot, compiled before there is a kernel: what a tile of a format becomes."""

"""Whether the installed Triton still has block pointers (3.9 refuses them)."""

import triton

BLOCK_POINTERS = tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 9)

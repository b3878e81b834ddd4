"""Triton's tile IR: what its frontend makes of a kernel, and a reader of the text."""

"""Arithmetic on arrays as GPUs do it: error-free transformations, directed rounding, bits."""

"""Reference of a GEMM: formats, accumulator models, error bounds and the exact product."""

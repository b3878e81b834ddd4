"""What a GEMM must compute: formats, accumulator models, error bounds and the exact product."""

"""The properties of a GEMM kernel: cases, fills and the table of properties."""

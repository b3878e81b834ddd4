"""Whether predictions stand on what the compiler does: each model of a dot beside its compile."""

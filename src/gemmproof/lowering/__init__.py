"""The output of Triton's compiler for a wrapper's launches, for GPUs that may be absent."""

"""What Triton's compiler made of a wrapper's launches, for GPUs that need not be there."""

"""What a solver says of a kernel's addresses, for every size that its contract admits."""

"""The command `lowering`: what launches are compiled to, for GPUs that may be absent."""

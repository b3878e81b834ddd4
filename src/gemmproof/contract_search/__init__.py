"""The search for the widest contract that a kernel keeps."""

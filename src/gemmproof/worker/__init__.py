"""User kernels run in worker processes, where they can crash or hang without losing results."""

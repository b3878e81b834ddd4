"""What must follow of a kernel's accesses, for every size: each asked of the solver."""

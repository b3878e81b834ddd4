"""What arguments cost of which Triton knows less: launches specialised otherwise, compared."""

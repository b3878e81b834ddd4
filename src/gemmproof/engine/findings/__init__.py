"""What becomes of findings: one of each fault, explained, joined by their causes."""

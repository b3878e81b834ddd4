"""Operands that a kernel states, and its results beside their formula, on blocks of c."""

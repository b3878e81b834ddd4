"""Diagnosis of wrong values: their class, the misread operand, the line of the source."""

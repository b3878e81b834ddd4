"""Outputs of an H200, and what it takes to make their inputs and predict them again."""

"""Outputs of an H200, and the code that makes their inputs and predicts them again."""

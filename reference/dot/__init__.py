"""Accumulator models: the exact bits of one `dot`, by target, formats and instruction."""

from gemmproof.reference.dot.model import DotModel, dot_model

__all__ = ["DotModel", "dot_model"]

"""A wrapper run over symbols: for each path through it, the launches that it makes."""

from gemmproof.reference.symbolic.wrapper.paths import trace_wrapper
from gemmproof.reference.symbolic.wrapper.record import NotKnown, Path, Run, Symbolic, Trace

__all__ = ["NotKnown", "Path", "Run", "Symbolic", "Trace", "trace_wrapper"]

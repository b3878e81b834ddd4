"""A wrapper run over symbols: for each path through it, the launches that it makes."""

from gemmproof.reference.symbolic.wrapper.paths import take_config, trace_wrapper
from gemmproof.reference.symbolic.wrapper.record import NotKnown, Path, Symbolic, Trace, WrapperRun

__all__ = ["NotKnown", "Path", "Symbolic", "Trace", "WrapperRun", "take_config", "trace_wrapper"]

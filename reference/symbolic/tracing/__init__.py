"""The wrapper's paths over symbolic sizes."""

from gemmproof.reference.symbolic.tracing.paths import take_config, trace_wrapper
from gemmproof.reference.symbolic.tracing.trace import NotKnown, Path, Symbolic, Trace, WrapperRun

__all__ = ["NotKnown", "Path", "Symbolic", "Trace", "WrapperRun", "take_config", "trace_wrapper"]

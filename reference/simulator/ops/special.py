"""What inline assembly reads that no input determines: clocks, and where a program runs.

A value that only the GPU knows is undefined here: it may be stored as a timestamp in memory that
nobody compares, and is a finding where a result, an address or a branch depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import Type

# NVIDIA's registers, and what AMD's assembly asks for in Triton's own library.
_READS = re.compile(
    r"mov\.[bus](?:32|64) \$0, %(globaltimer(?:_lo|_hi)?|clock(?:_hi|64)?|n?smid) ?;?"
    r"|(s_memrealtime|s_sendmsg_rtn_b64|s_getreg_b32) \$0\b.*"
)
_GRID_CONTROL = re.compile(r"griddepcontrol\.(?:wait|launch_dependents) ?;?")
_TICK = 1000  # a clock advances by this at each read, so that a kernel that waits for it ends


def special_register(asm: str, kind: Type) -> Callable[[], Value] | None:
    """What computes the one result of such assembly, None for any other."""
    text = " ".join(re.sub(r"/\*.*?\*/|//[^\n]*", " ", asm, flags=re.DOTALL).split())
    if _GRID_CONTROL.fullmatch(text):  # launches run one after the other
        return lambda: Value(np.zeros(1, kind.dtype.numpy), kind.dtype)
    found = _READS.fullmatch(text)
    if found is None:
        return None
    words = f"a value that only the GPU knows ({found[1] or found[2]})"

    def compute() -> Value:
        launch = context.current()
        launch.ticks += _TICK
        now = np.array([launch.ticks]).astype(kind.dtype.numpy)
        return Value(now, kind.dtype, np.ones(1, np.uint8) * context.poison_bit(words))

    return compute

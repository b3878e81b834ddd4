"""Inline assembly: the few idioms found in GEMM kernels, told by their opcode."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.formats import round_tf32_rna, truncate_tf32
from gemmproof.reference.machine import execution
from gemmproof.reference.machine.elementwise import MATH
from gemmproof.reference.machine.types import numpy_of
from gemmproof.reference.machine.value import Value, lift


def _bits(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Value], np.ndarray]:
    """A function of fp32 values applied to a 32-bit register of any type."""

    def apply(x: Value) -> np.ndarray:
        return function(np.ascontiguousarray(x.data).view(np.float32))

    return apply


_OPCODES: dict[str, Callable[[Value], np.ndarray]] = {
    "cvt.rna.tf32.f32": _bits(round_tf32_rna),
    "cvt.rz.tf32.f32": _bits(truncate_tf32),
    "mov.b32": lambda x: x.data,
    "mov.u32": lambda x: x.data,
    "ex2.approx.f32": lambda x: MATH["exp2"](x).data,
    "ex2.approx.ftz.f32": lambda x: MATH["exp2"](x).data,
    "lg2.approx.f32": lambda x: MATH["log2"](x).data,
    "tanh.approx.f32": lambda x: MATH["tanh"](x).data,
    "rcp.approx.f32": lambda x: (np.float32(1) / x.data).astype(np.float32),
    "rcp.approx.ftz.f32": lambda x: (np.float32(1) / x.data).astype(np.float32),
    "sqrt.approx.f32": lambda x: MATH["sqrt"](x).data,
    "rsqrt.approx.f32": lambda x: MATH["rsqrt"](x).data,
}


def inline_asm_elementwise(
    asm: str, constraints: str, args: Sequence[Any], dtype: Any, is_pure: bool, pack: int
) -> Any:
    """tl.inline_asm_elementwise of one known instruction on one operand.

    Raises Unsupported, with the instruction, for every other.
    """
    statements = [s.strip() for s in re.sub(r"[{}]|//[^\n]*", " ", asm).split(";") if s.strip()]
    opcode = statements[0].split()[0] if statements else "(nothing)"
    values = [lift(x) for x in args]
    single = isinstance(dtype, tl.dtype)
    if len(statements) != 1 or len(values) != 1 or opcode not in _OPCODES or not single:
        raise execution.unsupported(f"inline assembly {' '.join(asm.split())[:80]!r}")
    result = np.ascontiguousarray(_OPCODES[opcode](values[0]))
    return Value(result.view(numpy_of(dtype)), dtype, values[0].poison)

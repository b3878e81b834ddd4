"""Inline assembly and calls of device libraries, lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.libdevice import function_of
from gemmproof.reference.observation import Unsupported
from gemmproof.reference.ptx import UnknownAsm, compile_asm
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.ops.special import special_register
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir.module import Op


@operation("tt.elementwise_inline_asm", constant=False)
def _build_assembly(op: Op) -> Callable[..., Any]:
    asm, pack = op.strings[0], op.integer("packed_element", 1)
    if not op.operand_types and (read := special_register(asm, op.types[0])) is not None:
        return read
    shape = op.operand_types[0].shape if op.operand_types else op.types[0].shape
    sources = [kind.dtype.numpy for kind in op.operand_types]
    results = [kind.dtype.numpy for kind in op.types]
    try:
        assembly = compile_asm(asm, op.attrs["constraints"], sources, results, pack)
    except UnknownAsm as error:
        raise Unsupported(f"inline assembly {' '.join(asm.split())[:80]!r}: {error}") from None

    def compute(*values: Value) -> Any:
        """Neighbouring lanes share registers, so a lane is as undefined as its group."""
        for rounding in assembly.rounds:
            context.note_rounding(rounding)
        programs = max((len(v.data) for v in values), default=1)
        full = (programs, *shape)
        flat = [np.ascontiguousarray(np.broadcast_to(v.data, full)).reshape(-1) for v in values]
        made = assembly.run(flat)
        poison = union(*(v.poison for v in values))
        if poison is not None and pack > 1:
            groups = np.broadcast_to(poison, full).reshape(-1, pack)
            poison = np.repeat(np.bitwise_or.reduce(groups, axis=1), pack).reshape(full)
        done = tuple(
            Value(part.reshape(full), kind.dtype, poison)
            for part, kind in zip(made, op.types, strict=True)
        )
        return done[0] if len(done) == 1 else done

    return compute


@operation("tt.extern_elementwise", constant=False)
def _build_extern(op: Op) -> Callable[..., Value]:
    symbol = op.attrs["symbol"]
    function = function_of(symbol)
    if function is None:
        raise Unsupported(f"the library function {symbol} is not known to the tile simulator")
    return elementwise(function, op.types[0].dtype, "math")

"""Calls, whose bodies are run in their place, and branches, whose sides both are."""

from __future__ import annotations

from typing import Any

from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.joining import choose
from gemmproof.reference.symbolic.machine.registry import Invocation, control
from gemmproof.reference.symbolic.machine.seen import NotFollowed
from gemmproof.reference.symbolic.terms import FALSE, TRUE
from gemmproof.reference.ttir.module import Op


@control("tt.call")
def _call(machine: Machine, op: Op, frame: Invocation) -> list[Any]:
    callee = machine.functions.get(op.words[0])
    if callee is None:
        raise NotFollowed(f"a call of {op.words[0]}, which the module lacks", machine.where)
    return machine.call(callee, [frame.values[x] for x in op.operands], machine.where)


@control("scf.if")
def _branch(machine: Machine, op: Op, frame: Invocation) -> list[Any]:
    condition = machine.bools(frame.values[op.operands[0]]).cond
    machine.part(condition)
    results: list[list[Any]] = []
    for region, cond in zip(op.regions, (condition, ~condition), strict=False):
        if cond == FALSE:
            results.append([])
            continue
        with machine.under(cond):
            results.append(machine.region(region, frame))
    if not op.types:
        return []
    if condition in (TRUE, FALSE):
        return results[0] if condition == TRUE else results[1]
    return [choose(machine, condition, x, y) for x, y in zip(*results, strict=True)]

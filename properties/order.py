"""The property that a call does not depend on which calls came before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.operands import operands
from gemmproof.properties.outcome import Asked, Outcome
from gemmproof.properties.rows import shape_of, shown
from gemmproof.properties.strategies import admitted
from gemmproof.reference.formats import bits

NAME = "call_order"
COMPARE = "order"


def asked(outcome: Outcome) -> Iterator[Asked]:
    """Calls with a larger and a smaller shape, other strides, another format; then the case's own.

    They follow each other in one process; the case's first call was made before all of them.
    """
    case = replace(outcome.case, compare=None, calls=1, fill="index", seed=outcome.case.seed + 1)
    for other in dict.fromkeys(_others(case, outcome)):
        if other != case and admitted(other, outcome.kernel.contract):
            a, b = operands(other)
            yield Asked(other, a.tensor, b.tensor, shape_of(other), str(other), judged=False)
    again = replace(outcome.case, compare=None, calls=1)
    a, b = operands(again)
    yield Asked(again, a.tensor, b.tensor, shape_of(again), "the same call again")


def _others(case: Case, outcome: Outcome) -> Iterator[Case]:
    contract = outcome.kernel.contract
    step_m, step_n, step_k = contract.multiples
    for M, N, K in (
        (2 * case.M + step_m, 2 * case.N + step_n, 2 * case.K + step_k),
        (case.M, case.N, case.K + step_k),
        (max(contract.min_side, step_m), max(contract.min_side, step_n), case.K),
    ):
        yield replace(case, M=M, N=N, K=K)
    names = contract.layout_names
    yield replace(case, a=_other_layout(case.a, names), b=_other_layout(case.b, names))
    for dtype in contract.formats:
        if dtype != case.dtype:
            yield replace(case, dtype=dtype)
            break


def _other_layout(name: str, names: tuple[str, ...]) -> str:
    # other strides, but not of a huge parent and not so few elements that nothing differs
    usual = [n for n in ("padded", "row", "transposed", "column") if n in names and n != name]
    return usual[0] if usual else name


def applies(outcome: Outcome) -> bool:
    """Whether the case was called once more after other calls."""
    return outcome.case.compare == COMPARE and any(twin.asked.judged for twin in outcome.twins)


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding if the last call's bits, or what it does to memory, differ from the first's."""
    first = outcome.result
    assert first is not None
    last = outcome.twins[-1]
    if last.run is None:
        assert last.raised is not None
        yield _finding(outcome, f"{last.raised.text} after them", "a result as without them")
        return
    if last.result is None or last.result.shape != first.shape or last.out is not outcome.out:
        got = f"a result of {getattr(last.run.result, 'dtype', type(last.run.result).__name__)}"
        yield _finding(outcome, f"{got} after them", f"one of {outcome.out} as without them")
        return
    wrong = bits(last.result) != bits(first)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        got = f"c{list(at)} = {shown(last.result, at)} after them"
        count = f"{int(wrong.sum())} of {wrong.size} elements differ"
        yield _finding(outcome, got, f"{shown(first, at)} as in a call of its own; {count}")
        return
    before = {(fault.kind, fault.where) for fault in outcome.faults}
    for fault in last.run.faults:
        if (fault.kind, fault.where) not in before:
            got = f"{fault.kind} ({fault.access} of {fault.operand}: {fault.got}) after them"
            yield _finding(outcome, got, "none as in a call of its own")
            return


def _finding(outcome: Outcome, got: str, expected: str) -> Finding:
    calls = len(outcome.twins) - 1
    return Finding(
        property=NAME,
        fault="stale",
        message=f"the call after {calls} calls with other shapes, strides or formats: got {got},"
        f" expected {expected}",
        case=outcome.case,
        got=got,
        expected=expected,
    )

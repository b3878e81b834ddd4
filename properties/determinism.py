"""Properties of repeated calls: over other uninitialised memory, and after other calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.finding import Finding, Mismatch, make_finding
from gemmproof.properties.observation import Observation, RelatedCall
from gemmproof.reference.arithmetic.conversions import bits

SAME = "same_bits_on_dirty_outputs"
ORDER = "call_order"
COMPARE = "order"


def same_applies(observation: Observation) -> bool:
    """Whether the case was called more than once and every call gave a comparable result."""
    return observation.result is not None and len(observation.calls) > 1


def judge_same(observation: Observation) -> Iterator[Finding]:
    """One finding if a later call's bits differ from the first call's."""
    first, *others = observation.calls
    assert first.result is not None
    for number, call in enumerate(others, start=2):
        if call.result is None or call.out is not first.out:
            return
        wrong = Mismatch.of(bits(call.result) != bits(first.result))
        if wrong is not None:
            got = f"{wrong.number(call.result)} in call {number} over {call.over} bytes"
            expected = f"{wrong.number(first.result)} as in call 1 over {first.over} bytes"
            note, place = wrong.counted("differ"), wrong.place
            yield make_finding(
                observation, SAME, "bits_differ", place, got, expected, note, operand="c"
            )
            return


def calls_in_order(observation: Observation) -> Iterator[RelatedCall]:
    """Calls with a larger and a smaller shape, other strides, another format; then the case's own.

    They follow each other in one process; the case's first call was made before all of them.
    """
    own = replace(observation.case, compare=None, calls=1)
    case = replace(own, fill="index", seed=own.seed + 1)
    for other in dict.fromkeys(_others(case, observation)):
        if other != case and is_admitted(other, observation.kernel.contract):
            yield RelatedCall(other, tensors_of(other), str(other), compared=False)
    yield RelatedCall(own, tensors_of(own), "the same call again")


def _others(case: Case, observation: Observation) -> Iterator[Case]:
    contract = observation.kernel.contract
    step_m, step_n, step_k = contract.multiples
    for M, N, K in (
        (2 * case.M + step_m, 2 * case.N + step_n, 2 * case.K + step_k),
        (case.M, case.N, case.K + step_k),
        (max(contract.min_side, step_m), max(contract.min_side, step_n), case.K),
    ):
        yield replace(case, M=M, N=N, K=K)
    other = case
    for name in observation.operands:
        other = other.with_layout(name, _other_layout(case.layout(name), contract.layout_names))
    yield other
    for dtype in contract.formats:
        if dtype != case.dtype:
            yield replace(case, dtype=dtype)
            break


def _other_layout(name: str, names: tuple[str, ...]) -> str:
    # other strides, but not of a huge parent and not so few elements that nothing differs
    usual = [n for n in ("padded", "row", "transposed", "column") if n in names and n != name]
    return usual[0] if usual else name


def order_applies(observation: Observation) -> bool:
    """Whether the case was called once more after other calls."""
    compared = any(related.asked.compared for related in observation.related)
    return observation.case.compare == COMPARE and compared


def judge_order(observation: Observation) -> Iterator[Finding]:
    """One finding if the last call's bits, or what it does to memory, differ from the first's."""
    first, last = observation.result, observation.related[-1]
    assert first is not None
    if last.call is None:
        assert last.raised is not None
        yield _stale(observation, f"{last.raised.text} after them", "a result as without them")
        return
    if last.result is None or last.result.shape != first.shape or last.out is not observation.out:
        kind = getattr(last.call.run.result, "dtype", type(last.call.run.result).__name__)
        got = f"a result of {kind} after them"
        yield _stale(observation, got, f"one of {observation.out} as without them")
        return
    wrong = Mismatch.of(bits(last.result) != bits(first))
    if wrong is not None:
        got = f"{wrong.place} = {wrong.number(last.result)} after them"
        expected = f"{wrong.number(first)} as in a call of its own{wrong.counted('differ')}"
        yield _stale(observation, got, expected)
        return
    before = {(fault.kind, fault.where) for fault in observation.faults}
    for fault in last.call.run.faults:
        if (fault.kind, fault.where) not in before:
            got = f"{fault.kind} ({fault.access} of {fault.operand}: {fault.got}) after them"
            yield _stale(observation, got, "none as in a call of its own")
            return


def _stale(observation: Observation, got: str, expected: str) -> Finding:
    calls = len(observation.related) - 1
    place = f"the call after {calls} calls with other shapes, strides or formats"
    return make_finding(observation, ORDER, "stale", place, got, expected)

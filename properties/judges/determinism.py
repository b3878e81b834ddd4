"""Judges of equal bits: after other calls, and at other M."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import overwrite
from gemmproof.properties.cases.generate import OTHER_M, vary
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.contract import ROLES, Sizes
from gemmproof.properties.finding import Finding, Mismatch, make_finding, place_of
from gemmproof.properties.observation import ObservedCase, Related, RelatedCall, word
from gemmproof.reference.arithmetic import Array, bits, widen

SAME = "same_bits_on_dirty_outputs"
ORDER = "call_order"
ROWS = "row_bits_at_any_m"
PREDICTED = "equals_prediction"


def same_applies(observation: ObservedCase) -> bool:
    """Return whether the case was called more than once and every call gave a comparable result."""
    return observation.has_result and len(observation.calls) > 1


def judge_same(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding if a later call's bits differ from the first call's."""
    first, over = observation.result, observation.calls[0].over
    for number, call in enumerate(observation.calls[1:], start=2):
        if call.result is None or call.result.dtype != first.dtype:
            return
        wrong = Mismatch.of(bits(call.result) != bits(first))
        if wrong is not None:
            got = f"{wrong.number(call.result)} in call {number} over {call.over} bytes"
            expected = f"{wrong.number(first)} as in call 1 over {over} bytes"
            note = wrong.counted("differ")
            yield make_finding(observation, SAME, "bits_differ", wrong, got, expected, note)
            return


def call_in_order(observation: ObservedCase) -> Iterator[RelatedCall]:
    """Yield calls with larger and smaller shapes, other strides, another format; then the original.

    They follow each other in one process, after the case's first call. The last one is given
    tensors that a call has seen, with other elements in them since.
    """
    own, kernel = replace(observation.case, compare=None, calls=1), observation.kernel
    case = replace(own, fill="index", seed=own.seed + 1)
    for other in dict.fromkeys(_other_cases(case, observation)):
        if other is not None and other != case:
            yield RelatedCall(other, tensors_of(other, kernel), str(other))
    tensors = tensors_of(case, kernel)
    yield RelatedCall(case, tensors, "other elements")
    for name, elements in tensors_of(own, kernel).items():
        overwrite(tensors[name], elements)
    yield RelatedCall(own, tensors, "the same call again, in the tensors of the call before")


def _other_cases(case: Case, observation: ObservedCase) -> Iterator[Case | None]:
    contract = observation.kernel.contract
    step_m, step_n, step_k = (contract.sizes(axis).step for axis in "MNK")
    several = [
        vary(case, contract, M=M, N=N, K=K)
        for M, N, K in (
            (2 * case.M + step_m, 2 * case.N + step_n, 2 * case.K + step_k),
            (case.M, case.N, case.K + step_k),
            (contract.sizes("M").fit(step_m), contract.sizes("N").fit(step_n), case.K),
        )
    ]
    if not any(several):  # a condition on the sizes, such as that 16 divides K: multiples meet it
        doubled = ({"M": 2 * case.M}, {"N": 2 * case.N}, {"K": 2 * case.K})
        several = [vary(case, contract, **sides) for sides in doubled]
    yield from several
    names = contract.layout_names
    layouts = ((name, _other_layout(case.layout(name), names)) for name in ROLES)
    yield vary(case, contract, layouts=tuple(layouts))
    formats = [dtype for dtype in contract.formats if dtype != case.dtype]
    yield from (vary(case, contract, dtype=dtype) for dtype in formats[:1])


def _other_layout(name: str, names: tuple[str, ...]) -> str:
    # other strides, but not of a huge parent, and enough elements for results to differ
    usual = (n for n in ("padded", "row", "transposed", "column") if n in names and n != name)
    return next(usual, name)


def order_applies(observation: ObservedCase) -> bool:
    """Return whether the case was called once more after other calls."""
    return observation.case.compare == "order" and len(observation.related) > 0


def judge_order(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding if the last call's bits, or its memory faults, differ from the first's."""
    first, (*others, last) = observation.result, observation.related

    def stale(got: str, expected: str) -> Finding:
        where = f"the call after {len(others)} with other shapes, strides, formats or elements"
        return make_finding(observation, ORDER, "stale", where, f"{got} after them", expected)

    if lack := last.describe_lack(observation.out):
        got, expected = lack
        yield stale(got, f"{expected} as without them")
        return
    wrong = Mismatch.of(bits(last.result) != bits(first))
    if wrong is not None:
        expected = f"{wrong.number(first)} as in a call of its own{wrong.counted('differ')}"
        yield stale(f"{place_of(observation, wrong.at)} = {wrong.number(last.result)}", expected)
        return
    assert last.call is not None
    before = {(fault.kind, fault.where) for fault in observation.faults}
    for fault in last.call.run.faults:
        if (fault.kind, fault.where) not in before:
            label = word(observation, fault.operand)
            got = f"{fault.kind} ({fault.access} of {label}: {fault.got})"
            yield stale(got, "none as in a call of its own")
            return


def call_at_other_m(observation: ObservedCase) -> Iterator[RelatedCall]:
    """Yield calls with the same rows of a, and the same b, at the M of `list_other_m`."""
    case, contract = replace(observation.case, compare=None, calls=1), observation.kernel.contract
    blocks = {tile[0] for tile in observation.tiles}
    for side in list_other_m(contract.sizes("M"), blocks):
        other = vary(case, contract, M=side)
        if other is not None and other != case:
            # an element depends on its indices alone, so the rows that both have are the same
            tensors = tensors_of(other, observation.kernel)
            yield RelatedCall(other, tensors, f"M={side}")


def list_other_m(sizes: Sizes, blocks: Collection[int]) -> list[int]:
    """List the M at which the rows of a case are computed again: OTHER_M, and ends of its tiles.

    If a contract does not admit them, these are the admitted sizes below, and its first ones.
    """
    ends = {block * count + more for block in blocks for count in (1, 2) for more in (-1, 0, 1)}
    near = {sizes.fit(side) for side in (*OTHER_M, *ends)} - {0}
    first = sizes.ceil(1)
    for n in range(first, min(sizes.high, first + len(OTHER_M) * sizes.step) + 1, sizes.step):
        if len(near) < len(OTHER_M):
            near.add(n)
    return sorted(near)


def count_pairs(observation: ObservedCase) -> int:
    """Return the number of other M at which the rows of a case were compared."""
    return len(_at_other_m(observation))


def rows_apply(observation: ObservedCase) -> bool:
    """Return whether the case was called at other M."""
    return len(_at_other_m(observation)) > 0


def judge_rows(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding at the first row whose bits differ at another M."""
    for other in _at_other_m(observation):
        shared = min(observation.case.M, other.asked.case.M)
        here, there = observation.result[..., :shared, :], other.result[..., :shared, :]
        wrong = Mismatch.of(bits(here) != bits(there))
        if wrong is not None:
            got = f"{wrong.number(here)} at M={observation.case.M}"
            expected = f"{wrong.number(there)} as at {other.asked.description}"
            note, fault = wrong.counted("differ", "elements of the common rows"), "bits_differ"
            yield make_finding(observation, ROWS, fault, wrong, got, expected, note, axis="M")
            return


def _at_other_m(observation: ObservedCase) -> list[Related]:
    if observation.case.compare != "rows":
        return []
    others = [x for x in observation.related if not x.describe_lack(observation.out)]
    if not observation.kernel.memory_only:
        return others
    # without a formula the axis of the rows is known only by its length
    pairs = [(observation.case, observation.result), *((x.asked.case, x.result) for x in others)]
    (first, *rest) = (result.shape[-2:-1] == (case.M,) for case, result in pairs)
    return [x for x, has_rows in zip(others, rest, strict=True) if first and has_rows]


def prediction_applies(observation: ObservedCase) -> bool:
    """Return whether a device gave a result, and the simulator predicts its bits."""
    expected = None if observation.predicted is None else observation.predicted[observation.part]
    if expected is None or not observation.has_result:
        return False
    got = observation.result
    return got.dtype == expected.dtype and got.shape == expected.shape


def judge_prediction(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding at the first element whose bits differ from the prediction."""
    assert observation.predicted is not None
    got, expected = observation.result, observation.predicted[observation.part]
    assert expected is not None
    wrong = Mismatch.of(~agree(got, expected))
    if wrong is not None:
        want = f"{wrong.number(expected)} as predicted for {observation.target}"
        shown, note = wrong.number(got), wrong.counted("differ")
        yield make_finding(observation, PREDICTED, "not_as_predicted", wrong, shown, want, note)


def count_predicted(observation: ObservedCase) -> tuple[int, int]:
    """Count the elements of all results with the predicted bits, and those with a prediction."""
    equal = total = 0
    for result in filter(prediction_applies, observation.split()):
        assert result.predicted is not None
        expected = result.predicted[result.part]
        assert expected is not None
        equal += int(agree(result.result, expected).sum())
        total += expected.size
    return equal, total


def agree(got: Array, expected: Array) -> Array:
    """Mark equal bits; a device's NaN equals every NaN, whatever its payload."""
    equal = np.asarray(bits(got) == bits(expected))
    if got.dtype.kind not in "iu":
        equal |= np.isnan(widen(got)) & np.isnan(widen(expected))
    return equal

"""The properties of a kernel that was launched on a device, its results beside the prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gemmproof.properties import inputs, values
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome
from gemmproof.reference.formats import FORMATS, Array, bits, widen

ENDS = "launched_to_the_end"
UNTOUCHED = "launched_inputs_untouched"
SAME = "launched_same_bits"
BOUND = "launched_within_bound"
PREDICTED = "launched_equals_predicted"


@dataclass(frozen=True, slots=True)
class Launched:
    """One case on a device: an outcome whose result is the first launch's, and all results.

    `device` is its name; `how` says in which configuration the kernel ran, "" where it is not
    autotuned. `results` are those of every launch, None where one has another type, shape or
    format, and `over` the bytes that free memory held before each. `predicted` is what the
    simulator gives for this device in that configuration; None where it gives nothing that binds.
    """

    outcome: Outcome
    device: str
    how: str
    results: tuple[Array | None, ...]
    over: tuple[int, ...]
    predicted: Array | None

    @property
    def ended(self) -> bool:
        """Whether every launch gave a result that can be judged."""
        made = [r for r in self.results if r is not None]
        return self.outcome.raised is None and len(made) == len(self.over)


@dataclass(frozen=True, slots=True)
class LaunchedProperty:
    """A claim about launches; `applies` and `judge` as in table.Property.

    `follows` names the properties whose findings, in the same case, bring this one's about.
    """

    name: str
    claim: str
    judge: Callable[[Launched], Iterator[Finding]]
    applies: Callable[[Launched], bool]
    follows: tuple[str, ...] = ()


def judge(launched: Launched) -> tuple[list[Finding], list[str], dict[str, float]]:
    """The findings of one case, the properties that bore on it, and errors over their bounds."""
    found: list[Finding] = []
    applied: list[str] = []
    ratios: dict[str, float] = {}
    for each in owed(launched.outcome.kernel):
        if not each.applies(launched):
            continue
        applied.append(each.name)
        before = {f.property for f in found}
        cause = next((name for name in each.follows if name in before), None)
        for finding in each.judge(launched):
            found.append(finding if cause is None else finding.caused_by(cause))
        if each.name == BOUND and values.bound_applies(launched.outcome):
            ratio = values.largest_ratio(launched.outcome)
            ratios |= {} if ratio is None else {BOUND: ratio}
    return found, applied, ratios


def owed(kernel: KernelUnderTest) -> tuple[LaunchedProperty, ...]:
    """The properties that the launches of a kernel are held to."""
    promised = kernel.contract.deterministic
    return tuple(p for p in PROPERTIES if promised or p.name != SAME)


def agree(got: Array, expected: Array) -> Array:
    """Where bits are equal; a NaN is the device's NaN, whatever its payload."""
    equal = np.asarray(bits(got) == bits(expected))
    if got.dtype.kind not in "iu":
        equal |= np.isnan(widen(got)) & np.isnan(widen(expected))
    return equal


def death(launched: Launched, fault: str) -> Finding:
    """The finding of a launch that did not end: `fault` is "raised" or "cuda_error"."""
    raised = launched.outcome.raised
    assert raised is not None
    where = raised.where or launched.outcome.kernel.name
    return Finding(
        property=ENDS,
        fault=fault,
        message=f"{where}: got {raised.text} on the {launched.device}, expected a result"
        f"{launched.how}",
        case=launched.outcome.case,
        where=raised.where,
        got=raised.text,
        expected="a result",
    )


def _ends(launched: Launched) -> Iterator[Finding]:
    if launched.outcome.raised is not None:
        text = launched.outcome.raised.text
        yield death(launched, "cuda_error" if is_cuda_error(text) else "raised")
        return
    for call, result in enumerate(launched.results, start=1):
        if result is None:
            expected = f"a tensor of shape {launched.outcome.shape} as the simulated call gives"
            yield Finding(
                property=ENDS,
                fault="other_result",
                message=f"call {call} on the {launched.device}: got another type, shape or format,"
                f" expected {expected}{launched.how}",
                case=launched.outcome.case,
                operand="c",
                got="another type, shape or format",
                expected=expected,
            )
            return


def is_cuda_error(text: str) -> bool:
    """Whether an error left the device's context unusable, as an illegal address does."""
    return any(sign in text for sign in ("CUDA error", "Triton Error [CUDA]", "AcceleratorError"))


def _untouched(launched: Launched) -> Iterator[Finding]:
    for finding in inputs.judge(launched.outcome):
        yield _on_device(launched, finding, UNTOUCHED)


def _bound(launched: Launched) -> Iterator[Finding]:
    outcome = launched.outcome
    if values.exact_applies(outcome):
        found = list(values.judge_exact(outcome))
    else:
        found = list(values.judge_bound(outcome))
    for finding in found:
        yield _on_device(launched, finding, BOUND)


def _same(launched: Launched) -> Iterator[Finding]:
    first, *others = (r for r in launched.results if r is not None)
    for call, other in enumerate(others, start=2):
        wrong = bits(other) != bits(first)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            got = f"{shown(other, at)} in call {call} over 0x{launched.over[call - 1]:02x} bytes"
            expected = f"{shown(first, at)} as in call 1 over 0x{launched.over[0]:02x} bytes"
            yield _different(launched, SAME, "bits_differ", at, wrong, got, expected)
            return


def _predicted(launched: Launched) -> Iterator[Finding]:
    got, expected = launched.outcome.result, launched.predicted
    assert got is not None
    assert expected is not None
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return  # the property ENDS has said so
    wrong = ~agree(got, expected)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        want = f"{shown(expected, at)} as predicted for {launched.outcome.target}"
        yield _different(launched, PREDICTED, "not_as_predicted", at, wrong, shown(got, at), want)


def _different(
    launched: Launched,
    name: str,
    fault: str,
    at: tuple[int, ...],
    wrong: Array,
    got: str,
    expected: str,
) -> Finding:
    return Finding(
        property=name,
        fault=fault,
        message=f"c{list(at)}: got {got}, expected {expected}; {int(wrong.sum())} of {wrong.size}"
        f" elements differ on the {launched.device}{launched.how}",
        case=launched.outcome.case,
        operand="c",
        got=got,
        expected=expected,
    )


def _on_device(launched: Launched, finding: Finding, name: str) -> Finding:
    message = f"{finding.message} on the {launched.device}{launched.how}"
    return replace(finding, property=name, message=message)


def shown(x: Array, at: tuple[int, ...]) -> str:
    """A number and its bits."""
    return f"{x[at]} (0x{int(bits(x)[at]):0{2 * x.itemsize}x})"


def _ended(launched: Launched) -> bool:
    return launched.ended


def _valued(launched: Launched) -> bool:
    outcome = launched.outcome
    return launched.ended and (values.exact_applies(outcome) or values.bound_applies(outcome))


def exact_data(outcome: Outcome) -> bool:
    """Whether no order of the sums rounds, so that every order gives the same bits."""
    return outcome.case.fill == "index" or FORMATS[outcome.case.dtype].kind == "int"


PROPERTIES: tuple[LaunchedProperty, ...] = (
    LaunchedProperty(
        ENDS,
        "every launch on the device ends and returns what the simulated call returns",
        _ends,
        lambda launched: True,
    ),
    LaunchedProperty(
        UNTOUCHED,
        "on the device too operands, the gaps in them and the memory around them stay as they were",
        _untouched,
        lambda launched: launched.outcome.raised is None,
    ),
    LaunchedProperty(
        SAME,
        "three launches over different dirty memory give the same bits",
        _same,
        lambda launched: launched.ended and len(launched.results) > 1,
        follows=(UNTOUCHED,),
    ),
    LaunchedProperty(
        BOUND,
        "the device's |c - a b| is 0 where sums are exact, and within the accumulator's bound",
        _bound,
        _valued,
        follows=(UNTOUCHED, SAME),
    ),
    LaunchedProperty(
        PREDICTED,
        "the device's result has the bits that the simulator predicts for it",
        _predicted,
        lambda launched: launched.ended and launched.predicted is not None,
        follows=(UNTOUCHED, SAME, BOUND),
    ),
)

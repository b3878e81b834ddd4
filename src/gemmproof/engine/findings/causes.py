"""One cause, one finding: which findings of a kernel follow from another, on other cases too.

Inside one case the table of properties knows (engine/judge.py). Across cases a fault may show by
itself: an address that is wrong leaves the operand at one shape and stays inside at another, where
only a value tells. Each rule below says why both have one cause; what no rule joins stays a finding
of its own, and what is joined is still listed, under its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gemmproof.engine.findings.explain import on_integers
from gemmproof.engine.judge import Judged
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import (
    determinism,
    exact_values,
    memory_use,
    metamorphic,
)
from gemmproof.properties.observation import Observation

Rule = Callable[[Finding, Finding], bool]

# what a wrong address of a load shows as, where it stays inside the operand or beyond it
_LOADED = (memory_use.BOUNDS, memory_use.FIT, memory_use.HINTS, memory_use.LANES)
_STORED = (memory_use.BOUNDS, memory_use.FIT, memory_use.HINTS, memory_use.ONCE)
_VALUES = (exact_values.EXACT, exact_values.BOUND)
# properties that compare a call with another: either call may be the one that is wrong
_COMPARED = (metamorphic.NAME, determinism.ROWS)


def same_fault(finding: Finding, other: Finding) -> bool:
    """Whether two findings are one fault on one line, along whatever axis a case shows it."""
    return all(
        getattr(finding, name) == getattr(other, name)
        for name in ("backend", "property", "fault", "operand", "where")
    )


def name_axis(small: Finding, finding: Finding, faults: Sequence[Finding]) -> Finding:
    """A fault at its smallest case, along the axis that larger cases show it along.

    One element has no axis. `finding` is the fault as it was drawn, `faults` are all that were; the
    axis is named if it is the only one.
    """
    axes = {f.axis for f in faults if same_fault(f, finding)} - {None}
    if small.axis is not None or axes != {finding.axis}:
        return small
    case = finding.case
    words = f"along {finding.axis} at M={case.M} N={case.N} K={case.K}: {finding.got}"
    return replace(small, axis=finding.axis, message=f"{small.message} ({words})")


def join(
    findings: Sequence[Finding],
    judge: Callable[[Case], Judged],
    recall: Callable[[Case], Observation],
) -> list[Finding]:
    """The findings, each root cause once, what follows from another one marked so.

    `judge` and `recall` are those of engine/explain.py. Roots come first, and of one fault along
    several axes the one with the simplest case is the root.
    """
    roots: list[Finding] = []
    joined: list[Finding] = []
    for finding in _simplest_first(findings):
        if finding.cause is None:
            cause = next((root.property for root in roots if _causes(root, finding)), None)
            known = any(f.property == exact_values.EXACT for f in joined)
            if cause is None and known and finding.property in _COMPARED:
                inexact = _compares_inexact(finding, judge, recall)
                cause = exact_values.EXACT if inexact else None
            if known and finding.property == determinism.SAME and _first_is_wrong(finding, recall):
                cause = exact_values.EXACT
            if cause is None:
                roots.append(finding)
            else:
                finding = finding.caused_by(cause)
        joined.append(finding)
    return sorted(joined, key=lambda f: f.cause is not None)


def _simplest_first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings without repeats, those of one fault together and by their cases' simplicity."""
    first = {f: next(g for g in findings if same_fault(f, g)) for f in findings}
    place = {finding: i for i, finding in reversed(list(enumerate(findings)))}
    return sorted(first, key=lambda f: (place[first[f]], f.case.rank))


def _causes(root: Finding, finding: Finding) -> bool:
    return root.backend == finding.backend and any(rule(root, finding) for rule in RULES)


def _along_another_axis(root: Finding, finding: Finding) -> bool:
    """One line goes wrong along two axes: the line is to be mended once."""
    return finding.where is not None and same_fault(root, finding)


def _of_every_descriptor(root: Finding, finding: Finding) -> bool:
    """One call breaks one rule of the copy engine with several descriptors."""
    faults = root.fault == finding.fault == "bad_descriptor"
    return faults and (root.case, root.expected) == (finding.case, finding.expected)


def _stores_elsewhere(root: Finding, finding: Finding) -> bool:
    """What is stored to a wrong address is stored twice there, and never where it belongs."""
    if root.property not in _STORED or finding.property != memory_use.ONCE:
        return False
    lost = finding.fault == "never_stored" and root.fault != "never_stored"
    return root.operand == finding.operand and (lost or root.where == finding.where)


def _reads_elsewhere(root: Finding, finding: Finding) -> bool:
    """A load that goes to wrong addresses gives wrong values where they lie inside the operand."""
    blamed = finding.property in _VALUES and finding.operand not in (None, "c")
    return blamed and root.property in _LOADED and root.operand == finding.operand


def _rounds(root: Finding, finding: Finding) -> bool:
    """Fewer bits show on integers and on other data; a smaller range, as overflow."""
    if root.property not in _VALUES or root.fault != "rounding":
        return False
    if finding.property == exact_values.NAME:
        return finding.fault in ("overflow", "special_spread")
    return finding.property in _VALUES and finding.fault == root.fault


def _says_no_more(root: Finding, finding: Finding) -> bool:
    """Wrong values of which nothing is known but that they are wrong, on data of two kinds."""
    known = {root.fault, finding.fault} != {"wrong_value"} or root.operand != finding.operand
    return (root.property, finding.property) == _VALUES and not known


def _leaves_state(root: Finding, finding: Finding) -> bool:
    """What shows only when the same call is repeated shows after other calls, too."""
    return root.case.calls > 1 and finding.property == determinism.ORDER


RULES: tuple[Rule, ...] = (
    _along_another_axis,
    _of_every_descriptor,
    _stores_elsewhere,
    _reads_elsewhere,
    _rounds,
    _says_no_more,
    _leaves_state,
)


def _compares_inexact(
    finding: Finding,
    judge: Callable[[Case], Judged],
    recall: Callable[[Case], Observation],
) -> bool:
    """Whether a call that this case is compared with is not exact on index data by itself."""
    observation = recall(finding.case)
    cases: list[Case] = []
    for other in observation.related:
        case = on_integers(other.asked.case)
        cases.append(case)
        if finding.case.compare == "transposed":  # its operands are views of the case's own
            turned = {name: _TURNED.get(layout, layout) for name, layout in _layouts(finding.case)}
            layouts = (("a", turned["b"]), ("b", turned["a"]))
            cases.append(replace(case, layouts=layouts))
    contract = observation.kernel.contract
    admitted = (case for case in dict.fromkeys(cases) if is_admitted(case, contract))
    return any(f.property == exact_values.EXACT for case in admitted for f in judge(case).findings)


def _first_is_wrong(finding: Finding, recall: Callable[[Case], Observation]) -> bool:
    """Whether calls differ because the first one is not exact, while all later ones are.

    Those were made over other bytes each, so that it is not the memory's bytes that matter.
    """
    observation = recall(finding.case)
    if not exact_values.exact_applies(observation) or not exact_values.not_exact(observation).any():
        return False
    later = [replace(observation, calls=(call,), memo={}) for call in observation.calls[1:]]
    return all(one.has_result and not exact_values.not_exact(one).any() for one in later)


_TURNED = {"row": "column", "column": "row", "padded": "transposed", "transposed": "padded"}


def _layouts(case: Case) -> list[tuple[str, str]]:
    return [(name, case.layout(name)) for name in ("a", "b")]

"""Findings: deduplicated, explained, joined by their cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.properties import table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted, vary
from gemmproof.properties.diagnosis.wrong_formula import label_misuse
from gemmproof.properties.diagnosis.wrong_product import diagnose, locate
from gemmproof.properties.finding import Finding, Key
from gemmproof.properties.judges import determinism, exact_values, memory_use, metamorphic
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import SIMULATOR, Observation


# -- deduplication -------------------------------------------------------------------------------
def dedupe(judged: Iterable[CaseResult]) -> list[Finding]:
    """The simplest instance of every fault, root causes first, in the table's order.

    An instance that is a root cause comes before any that is a consequence.
    """
    best: dict[Key, Finding] = {}
    for one in judged:
        for finding in one.findings:
            held = best.get(finding.key)
            if held is None or _rank(finding) < _rank(held):
                best[finding.key] = finding
    kept = [f for f in best.values() if not any(_says_more(g, f) for g in best.values())]
    order = list(table.BY_NAME)
    return sorted(kept, key=lambda f: (f.cause is not None, order.index(f.property)))


def _says_more(finding: Finding, other: Finding) -> bool:
    """Whether a finding is the other one with the axis named, as a larger case can show."""
    return (
        (finding.property, finding.fault) == (other.property, other.fault)
        and finding.operand == other.operand
        and other.where in (None, finding.where)
        and other.axis is None
        and finding.axis is not None
    )


def _rank(finding: Finding) -> tuple[Any, ...]:
    return (finding.cause is not None, finding.case.rank)


def find_no_launch(judged: Sequence[CaseResult]) -> list[Finding]:
    """One finding if no case with any work launched a kernel: then nothing was checked.

    A wrapper may leave some sizes to torch: only where all cases did is that a finding.
    """
    usual = (j for j in judged if j.raised is None and not j.case.is_sampled)
    worked = [j for j in usual if j.case.M and j.case.N and j.case.K]
    if not worked or any(j.launches for j in worked):
        return []
    cases = f"{len(worked)} cases" if len(worked) > 1 else "this case"
    return [
        Finding(
            property=memory_use.ENDS,
            fault="no_launch",
            message=f"the call: got no kernel launch in {cases}, expected at least one",
            case=worked[0].case,
            got="no kernel launch",
            expected="at least one",
        )
    ]


# -- missing conditions --------------------------------------------------------------------------
SECONDS = 5.0  # counted, for all findings of a kernel


def label_missing(
    findings: list[Finding],
    kernel: KernelUnderTest,
    target: str | None,
    restore: Callable[[], None],
) -> list[Finding]:
    """The findings, those of stray accesses with what is missing; it runs the wrapper for them."""
    stray = [f for f in findings if _is_stray(f)]
    found: dict[str, str] = {}
    for config in dict.fromkeys(f.case.config for f in stray):
        wanted = frozenset(f.where for f in stray if f.case.config == config and f.where)
        restore()
        try:
            from gemmproof.properties.address_map.explain_access import (
                find_missing,  # brings the solver
            )

            found |= find_missing(kernel, target, config, wanted - found.keys(), SECONDS)
        except (Exception, SystemExit):  # a wrapper may raise anything; the finding says enough
            continue
        finally:
            restore()
    return [_name(f, found) if f in stray else f for f in findings]


def _is_stray(finding: Finding) -> bool:
    own = (finding.property, finding.backend, finding.cause)
    return own == (memory_use.BOUNDS, SIMULATOR, None) and finding.where is not None


def _name(finding: Finding, found: dict[str, str]) -> Finding:
    said = found.get(finding.where or "")
    if said is None:
        return finding
    return replace(finding, message=f"{finding.message}; missing: {said}")


# -- explanations --------------------------------------------------------------------------------
# what integers that are not exact explain
INEXACT = (exact_values.BOUND, exact_values.NAME, metamorphic.NAME, determinism.ROWS)
# what a wrong element of c shows
OF_VALUES = (*INEXACT, exact_values.EXACT, determinism.SAME)
# what diagnose.py finds a class for
DIAGNOSED = (exact_values.EXACT, exact_values.BOUND)
SEEDS = (1, 2, 3)  # of cases that are like one that showed a fault
KEPT_BYTES = 1 << 30  # of observations whose wrong values are still to be explained


def keep(kept: dict[Case, Observation], observation: Observation) -> None:
    """Keep an observation until it is explained; where they get too large, the simplest stay."""
    kept[observation.case] = observation
    while len(kept) > 1 and sum(o.nbytes for o in kept.values()) > KEPT_BYTES:
        del kept[max(kept, key=lambda case: case.rank)]


def on_integers(case: Case) -> Case:
    """The same case alone on index data, whose sums are exact."""
    return replace(case, fill="index", seed=0, compare=None)


def explain(
    finding: Finding,
    kernel: KernelUnderTest,
    judge: Callable[[Case], CaseResult],
    recall: Callable[[Case], Observation],
) -> Finding:
    """A value finding with its cause or its class; any other finding as it is.

    `judge(case)` judges a case, `recall(case)` gives what a judged case with a value finding gave.
    A finding of other values is a consequence where index data of the same case are not exact
    either.
    """
    if finding.cause is not None:
        return finding
    if finding.property in INEXACT:
        whole = on_integers(finding.case)
        # operands such as offsets of groups are drawn by the seed
        for case in dict.fromkeys((whole, replace(whole, seed=finding.case.seed))):
            if any(f.property == exact_values.EXACT for f in judge(case).findings):
                return finding.caused_by(exact_values.EXACT)
    if finding.property not in DIAGNOSED:
        return finding
    if kernel.spec is not None:
        return label_misuse(finding, _list_shown(finding, kernel, judge, recall))
    larger = vary(finding.case, kernel.contract, M=finding.case.M + 2, N=finding.case.N + 3)
    explained = diagnose(finding, recall(finding.case))
    if explained and math.prod(finding.case.result_shape) > 1:
        return explained
    # a few more rows and columns may tell a class that so few do not; one element fits too many
    if larger is None or all(f.key != finding.key for f in judge(larger).findings):
        return explained or finding
    note = f" (seen at M={larger.M} N={larger.N})"
    confirmed = diagnose(finding, recall(larger), note)
    if explained and confirmed and explained.key == confirmed.key:
        return explained
    return confirmed or explained or finding


def _list_shown(
    finding: Finding,
    kernel: KernelUnderTest,
    judge: Callable[[Case], CaseResult],
    recall: Callable[[Case], Observation],
) -> list[Observation]:
    """What cases with this fault gave: one a little larger, as few elements fit too many ways, and
    the same with scales that are no powers of two.

    Of none of them are the values what a stray address left.
    """
    case, contract = finding.case, kernel.contract
    steps = {axis: contract.sizes(axis).step for axis in "MNK"}
    M, N = case.M + 6 * steps["M"], case.N + 9 * steps["N"]
    # where K goes in steps, operands of groups of k get more groups too
    deep = {"K": case.K + 3 * steps["K"]} if steps["K"] > 1 else {}
    wider: tuple[dict[str, int], ...] = (
        {"M": M, "N": N, **deep},
        {"M": M, "N": N},
        {"M": M},
        {"N": N},
        {},
    )
    seeds = dict.fromkeys((case.seed, *SEEDS))
    for sides in wider:
        like = [vary(case, contract, **sides, seed=seed) for seed in seeds]
        shown = [c for c in like if c and finding.key in {f.key for f in _list_roots(judge(c))}]
        if shown:
            break
    shown = shown or [case]
    others = (vary(shown[0], contract, fill="normal", seed=seed) for seed in SEEDS)
    drawn = (c for c in others if c is not None and c not in shown)
    wrong = [c for c in drawn if {f.property for f in _list_roots(judge(c))} & set(DIAGNOSED)]
    return [recall(c).showing(finding.result) for c in (*shown, *wrong)]


def _list_roots(judged: CaseResult) -> list[Finding]:
    return [f for f in judged.findings if f.cause is None]


def label_line(finding: Finding, trace: Callable[[Case], Observation]) -> Finding:
    """A root cause among the findings of values with the line that it comes from.

    `trace(case)` observes a case once more, with a trace.
    """
    if finding.cause is not None or finding.where is not None or finding.property not in OF_VALUES:
        return finding
    return locate(finding, trace(finding.case).showing(finding.result))


def label_configuration(finding: Finding, judged: Mapping[Case, CaseResult]) -> Finding:
    """The finding with the constants of its configuration, where the first one does not show it."""
    config = finding.case.config
    own, first = (judged.get(replace(finding.case, config=i)) for i in (config, 0))
    # a kernel that does not compile has no constants here, and its message names them
    if not config or own is None or first is None or not own.constants:
        return finding
    different = dict.fromkeys(pair for pair in own.constants if pair not in first.constants)
    named = " ".join(f"{name}={value}" for name, value in different) or "the same constants"
    return replace(finding, message=f"{finding.message} (configuration {config}: {named})")


# -- causes --------------------------------------------------------------------------------------
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


def label_axis(small: Finding, finding: Finding, faults: Sequence[Finding]) -> Finding:
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
    judge: Callable[[Case], CaseResult],
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
    judge: Callable[[Case], CaseResult],
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

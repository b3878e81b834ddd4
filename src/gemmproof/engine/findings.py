"""Findings: deduplicated, explained, joined by their cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.properties import property_table as table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted, vary
from gemmproof.properties.diagnosis.diagnose import diagnose
from gemmproof.properties.diagnosis.source_line import locate
from gemmproof.properties.finding import Finding, Key
from gemmproof.properties.judges import determinism, exact_values, memory_use, metamorphic
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import SIMULATOR, ObservedCase
from gemmproof.reference.provenance import format_error, is_interrupt


# -- deduplication -------------------------------------------------------------------------------
def dedupe(judged: Iterable[CaseResult]) -> list[Finding]:
    """Return the simplest instance of every fault, root causes first, in the table's order.

    An instance that is a root cause comes before any that is a consequence.
    """
    best: dict[Key, Finding] = {}
    for result in judged:
        for finding in result.findings:
            held = best.get(finding.key)
            if held is None or _rank(finding) < _rank(held):
                best[finding.key] = finding
    kept = [f for f in best.values() if not any(_says_more(g, f) for g in best.values())]
    order = list(table.BY_NAME)
    return sorted(kept, key=lambda f: (f.cause is not None, order.index(f.property)))


def _says_more(finding: Finding, other: Finding) -> bool:
    """Return whether a finding is the other one with its axis known, as a larger case can show."""
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
    """Return one finding if no case with any work launched a kernel: then nothing was checked.

    A wrapper may leave some sizes to torch: it is a finding only if every case did.
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
    """Return the findings, with the missing condition of each out-of-bounds access.

    Runs the wrapper to find them.
    """
    out_of_bounds = [f for f in findings if _is_out_of_bounds(f)]
    missing: dict[str, str] = {}
    failures: dict[str, str] = {}  # by line as well
    for config in dict.fromkeys(f.case.config for f in out_of_bounds):
        lines = frozenset(f.where for f in out_of_bounds if f.case.config == config and f.where)
        restore()
        try:
            from gemmproof.properties.address_map.explain_access import (
                find_missing,  # imports the solver
            )

            missing |= find_missing(kernel, target, config, lines - missing.keys(), SECONDS)
        except BaseException as error:  # it runs the wrapper, which may raise anything
            if is_interrupt(error):
                raise
            failures |= dict.fromkeys(lines - missing.keys(), format_error(error))
        finally:
            restore()
    return [_name(f, missing, failures) if f in out_of_bounds else f for f in findings]


def _is_out_of_bounds(finding: Finding) -> bool:
    own = (finding.property, finding.backend, finding.cause)
    return own == (memory_use.BOUNDS, SIMULATOR, None) and finding.where is not None


def _name(finding: Finding, missing: dict[str, str], failures: dict[str, str]) -> Finding:
    line = finding.where or ""
    if line in missing:
        return replace(finding, message=f"{finding.message}; missing: {missing[line]}")
    if line in failures:
        why = f"the search for it raised {failures[line]}"
        return replace(finding, message=f"{finding.message}; what is missing is unknown: {why}")
    return finding


# -- explanations --------------------------------------------------------------------------------
# properties whose faults are explained by wrong values on integers
INEXACT = (exact_values.BOUND, exact_values.NAME, metamorphic.NAME, determinism.ROWS)
# properties that a wrong element of c breaks
OF_VALUES = (*INEXACT, exact_values.EXACT, determinism.SAME)
# properties whose faults properties/diagnosis classifies
DIAGNOSED = (exact_values.EXACT, exact_values.BOUND)
SEEDS = (1, 2, 3)  # of cases similar to one that showed a fault
KEPT_BYTES = 1 << 30  # of observations whose wrong values are still to be explained


def keep(kept: dict[Case, ObservedCase], observation: ObservedCase) -> None:
    """Keep an observation until it is explained; if they grow too large, the simplest stay."""
    kept[observation.case] = observation
    while len(kept) > 1 and sum(o.nbytes for o in kept.values()) > KEPT_BYTES:
        del kept[max(kept, key=lambda case: case.rank)]


def on_integers(case: Case) -> Case:
    """Return the same case alone on index data, whose sums are exact."""
    return replace(case, fill="index", seed=0, compare=None)


def judge_on_integers(
    case: Case, kernel: KernelUnderTest, judge: Callable[[Case], CaseResult]
) -> Iterator[CaseResult]:
    """Yield results of the same case on index data, until they are not exact.

    The seed draws operands beside a and b, such as a bias or the offsets of groups: some are tried,
    as an element of one may be 0 or equal to another one.
    """
    for seed in dict.fromkeys((0, case.seed, *(SEEDS if kernel.operands else ()))):
        result = judge(replace(on_integers(case), seed=seed))
        yield result
        if _is_inexact(result):
            return


def _is_inexact(judged: CaseResult) -> bool:
    return any(f.property == exact_values.EXACT for f in judged.findings)


def explain(
    finding: Finding,
    kernel: KernelUnderTest,
    judge: Callable[[Case], CaseResult],
    recall: Callable[[Case], ObservedCase],
) -> Finding:
    """Return a value finding with its cause or its class; any other finding unchanged.

    `judge(case)` judges a case, `recall(case)` returns the observation of a judged case with a
    value finding. A finding on other data is a consequence if index data of the same case are not
    exact either.
    """
    if finding.cause is not None:
        return finding
    integers = judge_on_integers(finding.case, kernel, judge)
    if finding.property in INEXACT and any(map(_is_inexact, integers)):
        return finding.caused_by(exact_values.EXACT)
    if finding.property not in DIAGNOSED:
        return finding
    own = recall(finding.case).showing(finding.result)
    shown = [x for x in _list_shown(finding, kernel, judge, recall) if x.has_result]
    # a call that is repeated may give other values, for example by its addresses
    repeated = own.has_result and exact_values.mark_wrong(own, finding.property).any()
    return diagnose(finding, own, shown) if repeated and shown else finding


def _list_shown(
    finding: Finding,
    kernel: KernelUnderTest,
    judge: Callable[[Case], CaseResult],
    recall: Callable[[Case], ObservedCase],
) -> list[ObservedCase]:
    """Return observations of cases with this fault: some a little larger, as few elements fit too
    many classes, and some with scales that are no powers of two.

    None of them has values that came from an out-of-bounds address.
    """
    case, contract = finding.case, kernel.contract
    steps = {axis: contract.sizes(axis).step for axis in "MNK"}
    M, N = case.M + 6 * steps["M"], case.N + 9 * steps["N"]
    # if K has a step, operands with groups along k get more groups too
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


def label_line(finding: Finding, trace: Callable[[Case], ObservedCase]) -> Finding:
    """Return a root cause among the findings of values with the line that it comes from.

    `trace(case)` observes a case once more, with a trace.
    """
    if finding.cause is not None or finding.where is not None or finding.property not in OF_VALUES:
        return finding
    return locate(finding, trace(finding.case).showing(finding.result))


def label_configuration(finding: Finding, judged: Mapping[Case, CaseResult]) -> Finding:
    """Return the finding with its configuration's constants, if the first does not show it."""
    config = finding.case.config
    own, first = (judged.get(replace(finding.case, config=i)) for i in (config, 0))
    # a kernel that does not compile has no constants here, and its message names them
    if not config or own is None or first is None or not own.constants:
        return finding
    different = dict.fromkeys(pair for pair in own.constants if pair not in first.constants)
    named = " ".join(f"{name}={value}" for name, value in different) or "the same constants"
    names = {name for name, _ in different}
    tuned = {x.choice: x for x in own.launches if x.configs > 1}
    if len(tuned) > 1:  # each tuner chooses for itself, and their constants may have the same names
        parts = (
            " ".join([x.kernel, *(f"{n}={v}" for n, v in x.constexprs.items() if n in names)])
            for x in tuned.values()
        )
        named = ", ".join(parts)
    return replace(finding, message=f"{finding.message} (configuration {config}: {named})")


# -- causes --------------------------------------------------------------------------------------
Rule = Callable[[Finding, Finding], bool]

# properties that a wrong address of a load or a store breaks, inside the operand or beyond it
_LOADED = (memory_use.BOUNDS, memory_use.FIT, memory_use.HINTS, memory_use.LANES)
_STORED = (memory_use.BOUNDS, memory_use.FIT, memory_use.HINTS, memory_use.ONCE)
_VALUES = (exact_values.EXACT, exact_values.BOUND)
_LOST = ("rounding", "rounded_twice")  # bits
# properties that compare a call with another: either call may be the one that is wrong
_COMPARED = (metamorphic.NAME, determinism.ROWS)


def same_fault(finding: Finding, other: Finding) -> bool:
    """Return whether two findings are one fault on one line, along any axis."""
    return all(
        getattr(finding, name) == getattr(other, name)
        for name in ("backend", "property", "fault", "operand", "where")
    )


def label_axis(small: Finding, finding: Finding, faults: Sequence[Finding]) -> Finding:
    """Return a fault at its smallest case, with the axis along which larger cases show it.

    One element has no axis. `finding` is the fault as it was drawn, `faults` are all that were; the
    axis is given if it is the only one.
    """
    axes = {f.axis for f in faults if same_fault(f, finding)} - {None}
    if small.axis is not None or axes != {finding.axis}:
        return small
    case = finding.case
    location = f"along {finding.axis} at M={case.M} N={case.N} K={case.K}: {finding.got}"
    return replace(small, axis=finding.axis, message=f"{small.message} ({location})")


def join(
    findings: Sequence[Finding],
    judge: Callable[[Case], CaseResult],
    recall: Callable[[Case], ObservedCase],
) -> list[Finding]:
    """Return the findings, each root cause once, its consequences marked as such.

    `judge` and `recall` are those of `explain`. Roots come first; if one fault shows along several
    axes, the one with the simplest case is the root.
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
            if cause is None and finding.property == exact_values.NAME:
                cause = next((f.property for f in findings if _is_plainly_wrong(f, finding)), None)
            if known and finding.property == determinism.SAME and _first_is_wrong(finding, recall):
                cause = exact_values.EXACT
            if cause is None:
                roots.append(finding)
            else:
                finding = finding.caused_by(cause)
        joined.append(finding)
    return sorted(joined, key=lambda f: f.cause is not None)


def _is_plainly_wrong(other: Finding, finding: Finding) -> bool:
    """Return whether a result with misplaced special values is also wrong on index data.

    Those say more. Lost bits, which only make numbers less exact, are not why a NaN is lost.
    """
    wrong = other.property in _VALUES and other.case.fill == "index" and other.fault not in _LOST
    return wrong and (other.backend, other.result) == (finding.backend, finding.result)


def _simplest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without repeats, by fault and then by the rank of their case."""
    first = {f: next(g for g in findings if same_fault(f, g)) for f in findings}
    order = {finding: i for i, finding in reversed(list(enumerate(findings)))}
    return sorted(first, key=lambda f: (order[first[f]], f.case.rank))


def _causes(root: Finding, finding: Finding) -> bool:
    return root.backend == finding.backend and any(rule(root, finding) for rule in RULES)


def _along_another_axis(root: Finding, finding: Finding) -> bool:
    """True if one line fails along two axes: it has to be fixed only once."""
    return finding.where is not None and same_fault(root, finding)


def _of_every_descriptor(root: Finding, finding: Finding) -> bool:
    """True if one call breaks one rule of the copy engine with several descriptors."""
    faults = root.fault == finding.fault == "bad_descriptor"
    return faults and (root.case, root.expected) == (finding.case, finding.expected)


def _stores_elsewhere(root: Finding, finding: Finding) -> bool:
    """True for elements stored twice or never because of a store to a wrong address."""
    if root.property not in _STORED or finding.property != memory_use.ONCE:
        return False
    lost = finding.fault == "never_stored" and root.fault != "never_stored"
    return root.operand == finding.operand and (lost or root.where == finding.where)


def _reads_elsewhere(root: Finding, finding: Finding) -> bool:
    """True for wrong values because of a load from wrong addresses inside the operand."""
    wrong_operand = finding.property in _VALUES and finding.operand not in (None, "c")
    return wrong_operand and root.property in _LOADED and root.operand == finding.operand


def _rounds(root: Finding, finding: Finding) -> bool:
    """True if fewer bits show on integers and on other data, or a smaller range as overflow."""
    if root.property not in _VALUES or root.fault not in _LOST:
        return False
    if finding.property == exact_values.NAME:
        return finding.fault in ("overflow", "special_spread", "wrong_value")
    return finding.property in _VALUES and finding.fault == root.fault


def _says_no_more(root: Finding, finding: Finding) -> bool:
    """True for wrong values of unknown class on integers, and on other data no more is known.

    That those are no more wrong than fewer bits make them is not why integers are wrong.
    """
    unknown = root.fault == "wrong_value" and finding.fault in ("wrong_value", "rounding")
    same = unknown and root.operand == finding.operand
    return same and (root.property, finding.property) == _VALUES


def _misuses_alike(root: Finding, finding: Finding) -> bool:
    """True if one misuse of an operand explains integers and other data, each in its own cases."""
    same = (root.fault, root.operand) == (finding.fault, finding.operand)
    explained = root.fault.startswith("operand_") and root.operand is not None
    return same and explained and (root.property, finding.property) == _VALUES


def _leaves_state(root: Finding, finding: Finding) -> bool:
    """True if a fault shows only when the same call is repeated, and after other calls, too."""
    return root.case.calls > 1 and finding.property == determinism.ORDER


def _breaks_another_relation(root: Finding, finding: Finding) -> bool:
    """True if values that break one relation between calls break another one, too."""
    return root.property == finding.property == metamorphic.NAME


RULES: tuple[Rule, ...] = (
    _along_another_axis,
    _of_every_descriptor,
    _stores_elsewhere,
    _reads_elsewhere,
    _rounds,
    _says_no_more,
    _misuses_alike,
    _leaves_state,
    _breaks_another_relation,
)


def _compares_inexact(
    finding: Finding,
    judge: Callable[[Case], CaseResult],
    recall: Callable[[Case], ObservedCase],
) -> bool:
    """Return whether a call this case is compared with is not exact on index data either."""
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
    return any(_is_inexact(judge(case)) for case in admitted)


def _first_is_wrong(finding: Finding, recall: Callable[[Case], ObservedCase]) -> bool:
    """Return whether calls differ because the first one alone is not exact.

    The later calls ran over different bytes, so the contents of memory are not the cause.
    """
    observation = recall(finding.case)
    if not exact_values.exact_applies(observation) or not exact_values.not_exact(observation).any():
        return False
    later = [replace(observation, calls=(call,), memo={}) for call in observation.calls[1:]]
    return all(x.has_result and not exact_values.not_exact(x).any() for x in later)


_TURNED = {"row": "column", "column": "row", "padded": "transposed", "transposed": "padded"}


def _layouts(case: Case) -> list[tuple[str, str]]:
    return [(name, case.layout(name)) for name in ("a", "b")]

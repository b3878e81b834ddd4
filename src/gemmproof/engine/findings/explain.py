"""A wrong value explained: by integers that are wrong too, or by the class of its fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from gemmproof.engine.judge import Judged
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import vary
from gemmproof.properties.diagnosis.wrong_formula import name_misuse
from gemmproof.properties.diagnosis.wrong_product import diagnose, locate
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import determinism, exact_values, metamorphic
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import Observation

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
    judge: Callable[[Case], Judged],
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
        return name_misuse(finding, _list_shown(finding, kernel, judge, recall))
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
    judge: Callable[[Case], Judged],
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


def _list_roots(judged: Judged) -> list[Finding]:
    return [f for f in judged.findings if f.cause is None]


def name_line(finding: Finding, trace: Callable[[Case], Observation]) -> Finding:
    """A root cause among the findings of values with the line that it comes from.

    `trace(case)` observes a case once more, with a trace.
    """
    if finding.cause is not None or finding.where is not None or finding.property not in OF_VALUES:
        return finding
    return locate(finding, trace(finding.case).showing(finding.result))


def name_configuration(finding: Finding, judged: Mapping[Case, Judged]) -> Finding:
    """The finding with the constants of its configuration, where the first one does not show it."""
    config = finding.case.config
    own, first = (judged.get(replace(finding.case, config=i)) for i in (config, 0))
    # a kernel that does not compile has no constants here, and its message names them
    if not config or own is None or first is None or not own.constants:
        return finding
    different = dict.fromkeys(pair for pair in own.constants if pair not in first.constants)
    named = " ".join(f"{name}={value}" for name, value in different) or "the same constants"
    return replace(finding, message=f"{finding.message} (configuration {config}: {named})")

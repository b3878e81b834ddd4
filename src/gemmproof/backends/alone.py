"""A kernel that the simulator does not see: cases are drawn all the same, for a device alone."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import islice
from typing import Any

from gemmproof.backends.cuda import explain_no_launch, launch_cases
from gemmproof.backends.launches import Emit
from gemmproof.backends.simulate import Simulator
from gemmproof.engine.compiled import judge_compiled
from gemmproof.engine.draw import list_cases
from gemmproof.engine.judge import Judged, judge
from gemmproof.engine.observe import observe
from gemmproof.engine.premises import add_premises
from gemmproof.engine.proof import NOTHING
from gemmproof.engine.tally import make_report, tell_claims, tell_passes
from gemmproof.engine.wrapper_state import keep_state
from gemmproof.lowering.premise.check import PremiseCheck
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.report import Report

MOST_DRAWS = 10  # for each case that is wanted: a contract may admit fewer


def check_alone(
    kernel: KernelUnderTest,
    simulator: Simulator,
    max_examples: int,
    seed: int,
    case: Case | None,
    launch: bool,
    device: Any,
    tell: Emit,
    premises: PremiseCheck,
) -> Report:
    """Judge a `device_only` kernel over what is launched on `device`; incomplete without `launch`.

    Cases are drawn around the tiles that the simulator sees: those of the kernel's stand-in, if it
    has one.
    """
    began, state = time.perf_counter(), keep_state(kernel.launch)
    tell(tell_claims(kernel, launch))
    report = make_report(kernel, [], [])
    target = simulator.target
    if not launch:
        why = "the simulator does not see it (device_only): judge it with --device cuda"
        report = explain_no_launch(report, why)
        return judge_compiled(report, kernel, target, case, max_examples, began)
    formats = kernel.contract.formats
    tell({"event": "start", "examples": 1 if case else max_examples * len(formats)})
    cases = [case] if case else []
    if case is None and device is not None:
        seen = _Seen(kernel, simulator)
        for dtype in formats:
            cases += _draw(kernel, seen, dtype, max_examples, random.Random(f"{seed} {dtype}"))
    try:
        report = launch_cases(kernel, report, cases, device, tell, premises)
        report = tell_passes(report, kernel, () if case else cases, max_examples)
        report = add_premises(report, premises, None, ())
    finally:
        state.restore()
    return judge_compiled(report, kernel, target, case, max_examples, began)


class _Seen(dict[Case, Judged]):
    """What the simulator sees of a case, looked at when it is first asked for."""

    def __init__(self, kernel: KernelUnderTest, simulator: Simulator) -> None:
        super().__init__()
        launch = kernel.predicted_by or kernel.launch
        self._kernel = replace(kernel, launch=launch, device_only=False, predicted_by=None)
        self._simulator = simulator

    def __missing__(self, case: Case) -> Judged:
        self[case] = judged = judge(observe(self._kernel, case, self._simulator))
        return judged


def _draw(
    kernel: KernelUnderTest, seen: _Seen, dtype: str, max_examples: int, rng: random.Random
) -> list[Case]:
    found: dict[Case, None] = {}
    drawn = list_cases(kernel, seen, NOTHING, dtype, rng, max_examples)
    for one in islice(drawn, MOST_DRAWS * max_examples):
        found[one] = None
        if len(found) >= max_examples:
            break
    return list(found)

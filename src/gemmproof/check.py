"""The engine: draw cases, run each once, judge it by every property, shrink what fails."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.properties import table
from gemmproof.properties.case import Case
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.distinct import distinct, never_launched
from gemmproof.properties.explain import INEXACT, configured, explained, on_integers
from gemmproof.properties.finding import Finding
from gemmproof.properties.judged import Judged, judge
from gemmproof.properties.outcome import Outcome, Runner, execute
from gemmproof.properties.shrink import shrunk
from gemmproof.properties.state import State, kept
from gemmproof.properties.strategies import Survey, Tile, corners, draw_case, probe, smallest
from gemmproof.properties.twins import run_twins
from gemmproof.results import SCHEMA, PropertyResult, Report, versions

Listener = Callable[[dict[str, Any]], None]

MORE = 12  # cases that are still drawn after the first finding, for faults of another kind
RUNS_TO_SHRINK = 60  # per fault
PATIENCE = 30.0  # seconds after a finding, for more of them and for each to shrink
REPEATS = 1000  # draws in a row that bring nothing new
SHRUNK_FAULTS = 8  # the rest are reported by the smallest case that was drawn


@dataclass(slots=True)
class _Bench:
    """One check under way: what runs a case, who is told, and every case judged so far."""

    kernel: KernelUnderTest
    run: Runner
    target: str | None
    listener: Listener
    state: State
    judged: dict[Case, Judged] = field(default_factory=dict)


def check(
    kernel: KernelUnderTest,
    *,
    max_examples: int = 100,
    seed: int = 0,
    target: str | None = None,
    case: Case | None = None,
    listener: Listener | None = None,
    _run: Runner | None = None,
) -> Report:
    """Judge a kernel by every property over `max_examples` cases of each format of its contract.

    The same seed draws the same cases. `case` replays one case instead, as it is. `target` is the
    GPU whose dots the simulator imitates, None for exact IEEE chains. `listener` is told, in order:
    {"event": "start", "examples"}, {"event": "case", "phase", "index", "case"} before each run,
    {"event": "judged", "index", "seconds", "examples", "ratios"} after it, and {"event": "finding",
    "finding"} at the first sight of each fault; for `case` also {"event": "printed", "lines"}, what
    the kernel printed, if it did. Raises ValueError for arguments out of range.
    """
    if not isinstance(max_examples, int) or isinstance(max_examples, bool) or max_examples < 1:
        raise ValueError(f"check: got {max_examples=}, expected a positive integer")
    if not isinstance(seed, int):
        raise ValueError(f"check: got {seed=}, expected an integer")
    if case is not None and (case.batch is not None) != kernel.contract.batched:
        stated = "no batch" if case.batch is None else f"batch={case.batch}"
        wanted = "a batch" if kernel.contract.batched else "no batch"
        raise ValueError(f"check case: got {stated}, expected {wanted} for {kernel.name}")
    tell: Listener = listener if listener is not None else _nobody
    bench = _Bench(kernel, _run or _machine(), target, tell, kept(kernel.launch))
    try:
        return _check(bench, max_examples, seed, case)
    finally:
        bench.state.restore()  # another kernel of this process finds what it would find alone


def _check(bench: _Bench, max_examples: int, seed: int, case: Case | None) -> Report:
    began = time.perf_counter()
    kernel, tell = bench.kernel, bench.listener
    formats = kernel.contract.formats
    tell({"event": "start", "examples": 1 if case else max_examples * len(formats)})
    if case is not None:
        _judge(bench, case, "replay")
    else:
        for dtype in formats:
            rng = random.Random(f"{seed} {dtype}")
            if not _explore(bench, dtype, max_examples, rng):
                break
    drawn = list(bench.judged.values())
    findings = never_launched(drawn)
    seen = drawn if case is not None else [*drawn, *_integers_too(bench, drawn)]
    for position, finding in enumerate(distinct(seen)):
        if case is None and position < SHRUNK_FAULTS:
            finding = _shrink(bench, finding)
        finding = explained(
            finding,
            kernel.contract,
            lambda one: _judge(bench, one, "shrink"),
            lambda one: _outcome(bench, one),
        )
        findings.append(configured(finding, bench.judged))
    findings.sort(key=lambda f: f.cause is not None)
    return _report(bench, drawn, findings, time.perf_counter() - began)


def _explore(bench: _Bench, dtype: str, max_examples: int, rng: random.Random) -> bool:
    """Judge up to max_examples cases of one format; False when going on is of no use."""
    stop_at = len(bench.judged) + max_examples
    failed, repeats, until = False, 0, float("inf")
    for one in _cases(bench, dtype, rng):
        # a contract may admit fewer cases than were asked for
        if len(bench.judged) >= stop_at or repeats > REPEATS or time.monotonic() > until:
            break
        if one in bench.judged:
            repeats += 1
            continue
        repeats = 0
        judged = _judge(bench, one, "draw")
        if not judged.applied:
            return False
        if judged.findings and not failed:
            failed, until = True, time.monotonic() + PATIENCE
            stop_at = min(stop_at, len(bench.judged) + MORE)
    return True


def _cases(bench: _Bench, dtype: str, rng: random.Random) -> Iterator[Case]:
    contract = bench.kernel.contract
    first = smallest(contract, dtype)
    yield first
    seen = bench.judged[first]
    tiles = [_tiles(seen)]
    for config in range(1, seen.configs):
        one = replace(first, config=config)
        yield one
        tiles.append(_tiles(bench.judged[one]))
    larger = probe(contract, dtype)
    yield larger
    # a wrapper may choose its tiles by the sizes
    tiles[0] = tuple(dict.fromkeys((*tiles[0], *bench.judged[larger].tiles)))
    splits = {s for judged in bench.judged.values() for s in judged.splits}
    asks_sms = any(judged.asked_sms for judged in bench.judged.values())
    survey = Survey(tuple(tiles), tuple(sorted(splits)), asks_sms)
    yield from corners(contract, survey, dtype)
    while True:
        yield draw_case(rng.choice, contract, survey, dtype)


def _tiles(judged: Judged) -> tuple[Tile, ...]:
    return judged.tiles or Survey().tiles[0]


def _judge(bench: _Bench, case: Case, phase: str) -> Judged:
    if case in bench.judged:
        return bench.judged[case]
    known = {f.key for judged in bench.judged.values() for f in judged.findings}
    index = len(bench.judged)
    bench.listener({"event": "case", "phase": phase, "index": index, "case": case.to_json()})
    began = time.perf_counter()
    outcome = _outcome(bench, case)
    if phase == "replay" and outcome.runs and (printed := outcome.runs[0].prints):
        bench.listener({"event": "printed", "lines": printed})
    judged = judge(outcome)
    bench.judged[case] = judged
    bench.listener(
        {
            "event": "judged",
            "index": index,
            "seconds": time.perf_counter() - began,
            "examples": sorted(judged.applied),
            "ratios": judged.ratios,
        }
    )
    for finding in judged.findings:
        if finding.key not in known:
            bench.listener({"event": "finding", "finding": finding.to_dict()})
    return judged


def _outcome(bench: _Bench, case: Case) -> Outcome:
    # what earlier cases left in the wrapper's modules is no part of this one
    bench.state.restore()
    outcome = execute(bench.kernel, case, bench.run, bench.target)
    run_twins(outcome, bench.run, bench.state)
    return outcome


def _integers_too(bench: _Bench, drawn: list[Judged]) -> list[Judged]:
    """Cases with other wrong values again on index data: what is not exact there says more."""
    beyond = [f for f in distinct(drawn) if f.property in INEXACT and f.cause is None]
    return [_judge(bench, on_integers(finding.case), "shrink") for finding in beyond]


def _shrink(bench: _Bench, finding: Finding) -> Finding:
    runs, until = len(bench.judged), time.monotonic() + PATIENCE

    def instance(judged: Judged) -> Finding | None:
        found = (f for f in judged.findings if f.key == finding.key)
        return next((f for f in found if (f.cause is None) >= (finding.cause is None)), None)

    def fails(candidate: Case) -> bool | None:
        spent = len(bench.judged) - runs >= RUNS_TO_SHRINK or time.monotonic() > until
        if candidate not in bench.judged and spent:
            return None
        return instance(_judge(bench, candidate, "shrink")) is not None

    case = shrunk(finding.case, bench.kernel.contract, fails)
    return instance(bench.judged[case]) or finding


def _report(bench: _Bench, drawn: list[Judged], findings: list[Finding], seconds: float) -> Report:
    failed = {f.property for f in findings}
    results = []
    for each in table.owed(bench.kernel):
        judged = [j for j in drawn if each.name in j.applied]
        ratios = [j.ratios[each.name] for j in judged if each.name in j.ratios]
        status = "fail" if each.name in failed else "pass" if judged else "not run"
        ratio = max(ratios, default=None)
        results.append(PropertyResult(each.name, each.claim, status, len(judged), ratio))
    note = _note(drawn, results)
    return Report(
        schema=SCHEMA,
        target=bench.kernel.name,
        verdict="fail" if findings else "error" if note else "pass",
        properties=tuple(results),
        findings=tuple(findings),
        seconds=seconds,
        versions=versions(),
        note=note,
    )


def _note(drawn: list[Judged], results: list[PropertyResult]) -> str | None:
    for judged in drawn:
        raised = judged.raised
        if raised is not None and not judged.applied:
            ran = [r.name for r in results if r.examples]
            if raised.kind == "internal":
                return f"gemmproof itself failed at {judged.case}: {raised.text}"
            return f"{raised.text}; judged before: {', '.join(ran) or 'no property'}"
    return None


def _machine() -> Runner:
    from gemmproof.reference.simulator import run

    return run


def _nobody(event: dict[str, Any]) -> None:
    """Nobody listens."""

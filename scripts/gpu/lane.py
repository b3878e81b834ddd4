"""The kernels that conftest.py registers, judged on the GPU as by `check --device cuda`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from scripts.gpu.evidence import CONFTEST, Row, collect, list_tasks, place_evidence, require_gpu

from gemmproof.engine.assemble import judge
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.judges.determinism import PREDICTED
from gemmproof.target import KernelRef
from gemmproof.worker.protocol import CaseStarted, Compared, Event
from gemmproof.worker.supervisor import Limits

LIMITS = Limits(case=120, total=1800)  # compilation takes most of the time
CUDA = "cuda"


def judge_kernels(
    kernel: str = "",
    format: str = "",
    examples: int = 100,
    seed: int = 0,
    jobs: int = 8,
    report: Path | None = None,
    conftest: str = CONFTEST,
) -> int:
    """Judge every registered kernel in each of its formats, launches on the GPU included.

    Each kernel and format is judged in a separate worker, over --examples cases, of which up to 24
    are launched three times: one that crashes or hangs is a finding, and the others go on. Writes
    docs/evidence/lane.json where every kernel is judged, else only what --report FILE says;
    --conftest FILE registers other kernels, such as tests/corpora/registered.py those that are
    modelled on public projects, whose evidence is docs/evidence/lane-styles.json. Exits with 1
    where a property does not hold or could not be judged.
    """
    require_gpu("lane")
    tasks = list_tasks("lane", kernel, format, conftest=conftest)
    own = place_evidence("lane", kernel, format) if conftest == CONFTEST else None
    ask = partial(judge_one, conftest=conftest, examples=examples, seed=seed)
    with ThreadPoolExecutor(jobs) as pool:
        return collect(pool.map(ask, *zip(*tasks, strict=True)), describe, report or own)


def judge_one(name: str, format: str, conftest: str, examples: int, seed: int) -> Row:
    """Return the outcome of one kernel in one format."""
    counts = {"cases": 0, "launched": 0, "launches": 0, "outputs": 0, "equal": 0}

    def listen(event: Event) -> None:
        match event:
            case CaseStarted(_, phase):
                counts["launched" if phase == "launch" else "cases"] += 1
            case Compared(launches, equal, outputs):
                counts["launches"] += launches
                counts["outputs"] += outputs
                counts["equal"] += equal

    kernel = KernelRef(name, conftest, format=format)
    request = CheckRequest(kernel, max_examples=examples, seed=seed, launch=True)
    report, worker = judge(request, LIMITS, listen)
    results = [p for p in report.properties if p.backend == CUDA]
    simulated = [p for p in report.properties if p.backend != CUDA]
    not_held = [p.name for p in results if p.status != "pass"]
    # a division or function that is specific to the device has no bits to compare
    is_open = not report.findings and not_held == [PREDICTED] and counts["launches"] > 0
    is_open = is_open and f"{PREDICTED} not run" not in (report.note or "")
    return {
        "kernel": name,
        "format": format,
        "expected": report.verdict == "pass" or is_open,
        "verdict": report.verdict,
        **counts,
        "simulated": f"{sum(p.status == 'pass' for p in simulated)} of {len(simulated)} properties",
        "held": {p.name: p.examples for p in results if p.status == "pass"},
        "not_held": not_held,
        "findings": [
            f"{f.case}: {f.property} on {f.backend}: {f.message}" for f in report.findings
        ],
        "note": report.note,
        "seconds": round(worker.seconds, 1),
    }


def describe(row: Row) -> str:
    """A line for the verdict, then the faults."""
    share = f"{row['equal']}/{row['outputs']} bits as predicted"
    share = share if row["outputs"] else "no bits are predicted"
    line = (
        f"{row['verdict']:10} {row['kernel']:18} {row['format']:8} {row['seconds']:5.0f} s"
        f" {row['cases']:4} cases {row['launches']:4} launches {share}"
    )
    reasons = [] if row["expected"] else [*row["not_held"], *row["findings"][:4], str(row["note"])]
    return "\n    ".join([line, *reasons])

"""Kernels judged on a GPU: registered ones, ones of a known verdict, and those of tests/corpora."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from scripts.gpu.evidence import (
    CONFTEST,
    ROOT,
    Row,
    collect,
    list_tasks,
    place_evidence,
    require_gpu,
    run_each,
)
from tests.corpora.families.table import RIGHT
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.corpora.no_false_alarm.table import KERNELS

from gemmproof import kernels
from gemmproof.backends.cuda_device import Gpu, Launches
from gemmproof.engine.assemble import judge as judge_in_worker
from gemmproof.engine.observe import judge, observe
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.judges.determinism import PREDICTED
from gemmproof.properties.judges.memory_use import COMPILES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.target import KernelRef
from gemmproof.worker.protocol import CaseStarted, Compared, Event
from gemmproof.worker.supervisor import Limits

# -- kernels of a conftest.py ----------------------------------------------------------------------
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
        return collect(pool.map(ask, *zip(*tasks, strict=True)), describe_judged, report or own)


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
    report, worker = judge_in_worker(request, LIMITS, listen)
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


def describe_judged(row: Row) -> str:
    """A line for the verdict, then the faults."""
    share = f"{row['equal']}/{row['outputs']} bits as predicted"
    share = share if row["outputs"] else "no bits are predicted"
    line = (
        f"{row['verdict']:10} {row['kernel']:18} {row['format']:8} {row['seconds']:5.0f} s"
        f" {row['cases']:4} cases {row['launches']:4} launches {share}"
    )
    reasons = [] if row["expected"] else [*row["not_held"], *row["findings"][:4], str(row["note"])]
    return "\n    ".join([line, *reasons])


# -- known verdicts of the command -----------------------------------------------------------------
SECONDS = 540
FORMATS = ("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8")
NEVER_LAUNCHED = "docs/examples/no_k_mask.py:matmul"
FAULTY = "tests/backends/launched_kernels.py"
TUTORIALS = "tests/corpora/tutorials"
ODD = "tests/corpora/no_false_alarm"
CONTIGUOUS = ("--layouts=contiguous",)


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its target and options, and the finding and its fault that it must give, if any."""

    target: str
    finding: str | None = None
    fault: str | None = None
    dtype: str = "fp16"
    options: tuple[str, ...] = ()


ROWS = (
    Check(f"{FAULTY}:plain"),
    Check(f"{FAULTY}:tuned"),
    Check(f"{FAULTY}:multiply_adds"),
    Check(f"{FAULTY}:last_bit_on_device", "exact_on_integers", "wrong_value"),
    Check(f"{FAULTY}:guard_on_device", "leaves_inputs_untouched", "guard_changed"),
    Check(f"{FAULTY}:other_bits_each_call_on_device", "same_bits_on_dirty_outputs", "bits_differ"),
    Check(f"{FAULTY}:illegal_address_on_device", "runs_to_completion", "cuda_error"),
    Check(f"{FAULTY}:raises_on_device", "runs_to_completion", "raised"),
    Check("docs/examples/right.py:matmul"),
    Check(NEVER_LAUNCHED, "stays_in_bounds", "out_of_bounds"),
    Check("docs/examples/unmasked_row.py:matmul", "stays_in_bounds", "out_of_bounds"),
    Check(f"{TUTORIALS}/masked_everywhere.py:matmul", dtype="bf16", options=CONTIGUOUS),
    Check(f"{ODD}/splitting.py:workspace_and_second_kernel"),
    Check(f"{ODD}/splitting.py:ragged_slices_summed_by_torch"),
    Check(f"{ODD}/splitting.py:turns_kept_from_call_to_call"),
    Check(f"{ODD}/splitting.py:stream_k_with_fix_up"),
    Check(f"{ODD}/splitting.py:two_accumulators"),
    *(Check(f"kernels/{n}.py:{n}", dtype=dtype) for dtype in FORMATS for n in kernels.KERNELS),
)


def run_check(row: Check, examples: int) -> Row:
    """The outcome of one check as plain data."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "gemmproof", "check", row.target, "--device", "cuda"]
        command += ["--dtype", row.dtype, "--max-examples", str(examples), *row.options]
        command += ["--time-limit", "120", "--json", str(file)]
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS
            )
            code, output = done.returncode, f"{done.stdout}\n{done.stderr}".strip()
        except subprocess.TimeoutExpired:
            code, output = None, f"no end after {SECONDS} s"
        report = json.loads(file.read_text()) if file.exists() else {}
    faults = [(f["property"], f["fault"]) for f in report.get("findings", [])]
    launched = {
        p["name"]: p["examples"] if p["status"] != "not run" else "-"
        for p in report.get("properties", [])
        if p["backend"] == "cuda"
    }
    if row.finding is None:
        expected = code == 0 and launched.get("equals_prediction", "-") != "-"
    else:
        expected = code == 1 and (row.finding, row.fault) in faults
    if row.target == NEVER_LAUNCHED:
        expected = expected and set(launched.values()) <= {"-"}
    return {
        "name": f"{row.target.rpartition('/')[2]} {row.dtype}",
        "target": row.target,
        "dtype": row.dtype,
        "expected": expected,
        "code": code,
        "launched": launched,
        "findings": report.get("findings", []),
        "note": report.get("note"),
        "versions": report.get("versions", {}),
        "seconds": round(time.monotonic() - began, 1),
        "said": output[-1500:],
    }


def check_rows(
    only: str = "", examples: int = 40, jobs: int = 8, report: Path | None = None
) -> int:
    """Run `gemmproof check --device cuda` on kernels whose verdict on a GPU is known.

    Right kernels, ours among them, must pass with every launched bit predicted; kernels that go
    wrong on a device only must be found by the property named; one that is wrong when simulated
    must not be launched at all. Prints a line for each, and the output of those that are not as
    expected. With --only TEXT, rows whose target or format holds the text. Exits with 0 when all
    are as expected.
    """
    rows = [row for row in ROWS if only in f"{row.target} {row.dtype}"]
    with ThreadPoolExecutor(jobs) as pool:
        return collect(
            pool.map(partial(run_check, examples=examples), rows), describe_check, report
        )


def describe_check(result: Row) -> str:
    """A line for the verdict; then the finding that was expected, or the end of the output."""
    counts = " ".join(f"{k} {v}" for k, v in result["launched"].items())
    word = "ok " if result["expected"] else "BAD"
    lines = [
        f"{word} {result['name']:46} exit {result['code']} {result['seconds']:5.0f} s {counts}"
    ]
    if result["expected"]:
        lines += [f"{f['property']}: {f['message'][:200]}" for f in result["findings"][:1]]
    else:
        lines += [line[:240] for line in result["said"].splitlines()[-14:]]
    return "\n      ".join(lines)


# -- tests/corpora, on integers whose sums are exact -----------------------------------------------
BENIGN, SMALLEST = (33, 47, 50, "row", "column"), (1, 1, 1, "row", "row")
#: M, N, K and the layouts of a and b that a kernel is launched on, by its declared kind.
SHAPES = {
    "right": (
        BENIGN,
        SMALLEST,
        (17, 33, 64, "sliced", "row"),
        (5, 1, 300, "column", "sliced"),
        (64, 80, 0, "row", "row"),
    ),
    "runs": (BENIGN,),
    "raises": (SMALLEST,),
}
# Triton 3.6 lowers dots of scaled operands for sm_90 by way of 16-bit ones, but not all of them
FP4 = "microscaled"


def launch_corpora(only: str = "", jobs: int = 8, report: Path | None = None) -> int:
    """Launch the kernels of tests/corpora on the GPU, on integers whose sums are exact.

    A right kernel must be right at five shapes and layouts, as far as its contract admits them, for
    every value and omitted operand, over any uninitialised memory. A mutant
    need only compile and run at one shape, where it often does no harm; one that Triton refuses
    must raise. With --only TEXT, kernels whose name holds the text. Exits with 0 when all are as
    expected.
    """
    tasks = [(kernel.name, "right") for kernel in (*KERNELS, *RIGHT)]
    for mutant in (*MUTANTS, *SURVIVORS):
        tasks.append((mutant.name, "raises" if mutant.property == COMPILES else "runs"))
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (10, 0):
        excluded = {kernel.name for kernel in RIGHT if kernel.name == "nvfp4_mm"}
        excluded |= {mutant.name for mutant in MUTANTS if mutant.wrapper.startswith(f"{FP4}:")}
        print(f"left out, because this device has no such dots: {' '.join(sorted(excluded))}")
        tasks = [task for task in tasks if task[0] not in excluded]
    chosen = [task for task in tasks if only in task[0]]
    return collect(run_each(launch_kernel, chosen, jobs), describe_launched, report)


def launch_kernel(name: str, kind: str) -> Row:
    """Return the findings of the properties on a kernel; `kind` is its key in SHAPES."""
    # by name: a process cannot send a kernel that replaces another one
    corpus = (*KERNELS, *RIGHT) if kind == "right" else [m.kernel for m in (*MUTANTS, *SURVIVORS)]
    kernel = next(kernel for kernel in corpus if kernel.name == name)
    device, results = Gpu(), []
    for case in _list_cases(kernel, kind):
        backend = Launches(device, None, None, lambda event: None)
        results.append(judge(observe(kernel, case, backend)))
    raised = any(result.raised for result in results)
    findings = [f"{result.case}: {f.message}" for result in results for f in result.findings]
    expected = not findings if kind == "right" else raised == (kind == "raises")
    return {"kernel": name, "stated": kind, "expected": expected, "found": findings}


def _list_cases(kernel: KernelUnderTest, kind: str) -> Iterator[Case]:
    contract, options = kernel.contract, kernel.list_options()
    argument_sets = [(), *(((n, word),) for n, values in options.items() for word in values[1:])]
    for (M, N, K, a, b), fmt in product(SHAPES[kind], contract.formats):
        sides = {"M": M, "N": N, "K": K} | ({"batch": 2} if contract.batched else {})
        layouts = (("a", a), ("b", b))
        fitted = contract.fit(sides) or sides
        case = Case(dtype=fmt, **fitted, layouts=layouts, calls=3)
        for arguments in argument_sets if is_admitted(case, contract) or kind != "right" else ():
            yield replace(case, arguments=arguments)


def describe_launched(row: Row) -> str:
    """A line for the kernel, and one for each finding where it is not as expected."""
    line = f"{'ok ' if row['expected'] else 'BAD'} {row['kernel']} {row['stated']}"
    return line if row["expected"] else "\n    ".join([line, *row["found"]])

"""Kernels whose verdict on a GPU is known, given to `gemmproof check --device cuda`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts.gpu.evidence import Row, collect

from gemmproof import kernels

ROOT = Path(__file__).parents[2]
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


def check(row: Check, examples: int) -> Row:
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
        return collect(pool.map(partial(check, examples=examples), rows), describe, report)


def describe(result: Row) -> str:
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

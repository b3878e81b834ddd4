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
from pathlib import Path
from typing import Any

from scripts.evidence import write_json

from gemmproof import kernels

ROOT = Path(__file__).parents[1]
SECONDS = 540
FORMATS = ("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8")
NEVER_LAUNCHED = "docs/examples/no_k_mask.py:matmul"
FAULTY = "tests/cuda/launched_kernels.py"
TUTORIALS = "tests/corpora/tutorials"
ODD = "tests/corpora/no_false_alarm"


@dataclass(frozen=True, slots=True)
class Row:
    """One check: its target and options, its exit code and, of a wrong kernel, the finding."""

    target: str
    dtype: str = "fp16"
    code: int = 0
    finding: str | None = None
    fault: str | None = None
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.target.rpartition('/')[2]} {self.dtype}"


ROWS = (
    Row(f"{FAULTY}:plain"),
    Row(f"{FAULTY}:tuned"),
    Row(f"{FAULTY}:multiply_adds"),
    Row(f"{FAULTY}:last_bit_on_device", "fp16", 1, "exact_on_integers", "wrong_value"),
    Row(f"{FAULTY}:guard_on_device", "fp16", 1, "leaves_inputs_untouched", "guard_changed"),
    Row(
        f"{FAULTY}:other_bits_each_call_on_device",
        "fp16",
        1,
        "same_bits_on_dirty_outputs",
        "bits_differ",
    ),
    Row(f"{FAULTY}:illegal_address_on_device", "fp16", 1, "runs_to_completion", "cuda_error"),
    Row(f"{FAULTY}:raises_on_device", "fp16", 1, "runs_to_completion", "raised"),
    Row("docs/examples/right.py:matmul"),
    Row(NEVER_LAUNCHED, "fp16", 1, "stays_in_bounds", "out_of_bounds"),
    Row("docs/examples/unmasked_row.py:matmul", "fp16", 1, "stays_in_bounds", "out_of_bounds"),
    Row(f"{TUTORIALS}/masked_everywhere.py:matmul", "bf16", options=("--layouts=contiguous",)),
    Row(f"{ODD}/splitting.py:workspace_and_second_kernel"),
    Row(f"{ODD}/splitting.py:ragged_slices_summed_by_torch"),
    Row(f"{ODD}/splitting.py:turns_kept_from_call_to_call"),
    Row(f"{ODD}/splitting.py:stream_k_with_fix_up"),
    Row(f"{ODD}/splitting.py:two_accumulators"),
    *(Row(f"kernels/{name}.py:{name}", dtype) for dtype in FORMATS for name in kernels.__all__),
)


def check(row: Row, examples: int) -> dict[str, Any]:
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
            code, said = done.returncode, f"{done.stdout}\n{done.stderr}".strip()
        except subprocess.TimeoutExpired:
            code, said = None, f"no end after {SECONDS} s"
        report = json.loads(file.read_text()) if file.exists() else {}
    found = [(f["property"], f["fault"]) for f in report.get("findings", [])]
    launched = {
        p["name"]: p["examples"] if p["status"] != "not run" else "-"
        for p in report.get("properties", [])
        if p["backend"] == "cuda"
    }
    expected = code == row.code and (row.finding is None or (row.finding, row.fault) in found)
    if row.code == 0:
        expected = expected and launched.get("equals_prediction", "-") != "-"
    elif row.target == NEVER_LAUNCHED:
        expected = expected and set(launched.values()) <= {"-"}
    return {
        "name": row.name,
        "target": row.target,
        "dtype": row.dtype,
        "expected": expected,
        "code": code,
        "launched": launched,
        "findings": report.get("findings", []),
        "note": report.get("note"),
        "versions": report.get("versions", {}),
        "seconds": round(time.monotonic() - began, 1),
        "said": said[-1500:],
    }


def check_rows(only: str, examples: int, jobs: int, report: Path | None) -> int:
    """Run `gemmproof check --device cuda` on kernels whose verdict on a GPU is known.

    Our kernels and other right ones must pass, with every launched bit predicted; kernels that go
    wrong on a device only must be found by the property named; one that is wrong when simulated
    must not be launched at all. Prints a line for each, and what was said where that was not
    expected. Exit 0 when all are as expected.
    """
    rows = [row for row in ROWS if only in row.name]
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(lambda row: check(row, examples), rows):
            results.append(result)
            print(describe(result), flush=True)
            write_json(report, checks=results)  # what is there when the time is up is kept
    good = sum(result["expected"] for result in results)
    print(f"{good} of {len(results)} as expected; {results[0]['versions'] if results else ''}")
    print(*dict.fromkeys(r["note"] for r in results if r["expected"] and r["note"]), sep="\n")
    return int(good < len(results))


def describe(result: dict[str, Any]) -> str:
    """A line for the verdict; then the finding that was expected, or all that was not."""
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

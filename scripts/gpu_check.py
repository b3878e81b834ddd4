"""Run `gemmproof check --device cuda` on kernels whose verdict on a GPU is known.

    PYTHONPATH=src python scripts/gpu_check.py [--json FILE] [--only TEXT] [--jobs 8]

Our kernels and other right ones must pass, with every launched bit predicted; kernels that go wrong
on a device only must be found by the property named; one that is wrong when simulated must not be
launched at all. A line for each, and what was said where that was not expected. Exit 0 when all
are as expected.
"""

from __future__ import annotations

import argparse
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

ROOT = Path(__file__).parents[1]
SECONDS = 540
OURS = ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent")
FORMATS = ("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8")
FAULTY = "tests/launched_kernels.py"
ODD = "tests/odd_but_right"


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
    Row(f"{FAULTY}:last_bit_on_device", "fp16", 1, "launched_within_bound", "wrong_value"),
    Row(f"{FAULTY}:guard_on_device", "fp16", 1, "launched_inputs_untouched", "guard_changed"),
    Row(f"{FAULTY}:other_bits_each_call_on_device", "fp16", 1, "launched_same_bits", "bits_differ"),
    Row(f"{FAULTY}:illegal_address_on_device", "fp16", 1, "launched_to_the_end", "cuda_error"),
    Row(f"{FAULTY}:raises_on_device", "fp16", 1, "launched_to_the_end", "raised"),
    Row("docs/examples/right.py:matmul"),
    Row("docs/examples/no_k_mask.py:matmul", "fp16", 1, "stays_in_bounds", "out_of_bounds"),
    Row("docs/examples/unmasked_row.py:matmul", "fp16", 1, "stays_in_bounds", "out_of_bounds"),
    Row("tests/tutorials/masked_everywhere.py:matmul", "bf16", options=("--layouts=contiguous",)),
    Row(f"{ODD}/splitting.py:workspace_and_second_kernel"),
    Row(f"{ODD}/splitting.py:ragged_slices_summed_by_torch"),
    Row(f"{ODD}/splitting.py:turns_kept_from_call_to_call"),
    Row(f"{ODD}/splitting.py:stream_k_with_fix_up"),
    Row(f"{ODD}/splitting.py:two_accumulators"),
    *(Row(f"kernels/{name}.py:{name}", dtype) for dtype in FORMATS for name in OURS),
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
        p["name"].removeprefix("launched_"): p["examples"] if p["status"] != "not run" else "-"
        for p in report.get("properties", [])
        if p["name"].startswith("launched_")
    }
    expected = code == row.code and (row.finding is None or (row.finding, row.fault) in found)
    if row.code == 0:
        expected = expected and launched.get("equals_predicted", "-") != "-"
    elif not str(row.finding).startswith("launched_"):
        expected = expected and set(launched.values()) <= {"-"}
    return {
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--examples", type=int, default=40)
    args = parser.parse_args()
    rows = [row for row in ROWS if args.only in row.name]
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for row, result in zip(
            rows, pool.map(lambda r: check(r, args.examples), rows), strict=True
        ):
            results.append(result)
            counts = " ".join(f"{k} {v}" for k, v in result["launched"].items())
            word = "ok " if result["expected"] else "BAD"
            print(f"{word} {row.name:46} exit {result['code']} {result['seconds']:5.0f} s {counts}")
            if result["expected"]:
                for finding in result["findings"][:1]:
                    print(f"      {finding['property']}: {finding['message'][:200]}")
            else:
                print(
                    "".join(f"      {line[:240]}\n" for line in result["said"].splitlines()[-14:])
                )
            sys.stdout.flush()
            if args.json:  # what is there when the time is up is kept
                args.json.write_text(json.dumps(results, indent=1))
    good = sum(result["expected"] for result in results)
    print(f"{good} of {len(results)} as expected; {results[0]['versions'] if results else ''}")
    print(*dict.fromkeys(r["note"] for r in results if r["expected"] and r["note"]), sep="\n")
    return int(good < len(results))


if __name__ == "__main__":
    sys.exit(main())

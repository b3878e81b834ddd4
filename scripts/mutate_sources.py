"""Mutation testing of the project itself: how many faults planted in its sources tests notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from scripts.command import run
from scripts.mutation import covering_tests as recording
from scripts.mutation.covering_tests import FOLDER
from scripts.mutation.run import GONE, NOTICED, Calls, list_tests, try_all
from scripts.mutation.sites import FOLDERS, Fault, sample_faults

FAULTS = ROOT / "docs" / "evidence" / "faults.json"
SEED, COUNT = 28, 150


def record(out: Path, processes: int = 2, ignore: str = "") -> int:
    """Run every test, and record in the folder OUT which functions each one calls.

    It takes Python 3.12, and the time of `./run test --full`. --ignore excludes a file of tests.
    """
    if sys.version_info < (3, 12):
        print(f"record: got Python {sys.version.split()[0]}, expected 3.12 or newer")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, FOLDER: str(out.resolve()), "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--full",
        "-p",
        "scripts.mutation.covering_tests",
    ]
    command += ["-n", str(processes), "--dist", "worksteal"]
    command += ["--ignore", ignore] if ignore else []
    # tests set PYTHONPATH for the processes that they start, which read this file all the same
    start = Path(sysconfig.get_path("purelib")) / "gemmproof_calls.pth"
    file = repr(recording.__file__)
    load = f"exec(open({file}).read(), {{'__file__': {file}, '__name__': 'calls'}})"
    start.write_text(f"import os; {FOLDER!r} in os.environ and {load}\n")
    try:
        subprocess.run(command, cwd=ROOT, env=environment)
    finally:
        start.unlink()
    return 0


def sample(count: int = COUNT, seed: int = SEED) -> int:
    """Choose faults, the same ones for one --seed, and write them to docs/evidence/faults.json."""
    _write(dict.fromkeys(sample_faults(ROOT, count, seed), ""))
    return 0


def attempt(calls: Path, processes: int = 2, missed: bool = False) -> int:
    """Plant each fault of docs/evidence/faults.json, and write to it whether tests notice.

    A fault's tests are those that call the function around it, as CALLS says, the folder that
    `record` wrote: the fastest first, up to a minute of them. --missed tries those again that were
    not noticed.
    """
    if not any(calls.glob("*.tsv")):
        print(f"attempt: got {calls} without *.tsv, expected the folder that `record` wrote")
        return 2
    recorded = Calls(calls)
    gone = recorded.seconds.keys() - list_tests(ROOT)
    if gone:
        print(f"attempt: {calls}: got {min(gone)}, expected tests of today: `record` them again")
        return 2
    statuses = {Fault(**x["fault"]): x["status"] for x in json.loads(FAULTS.read_text())}
    left = [fault for fault, status in statuses.items() if not (missed and status == NOTICED)]
    with tempfile.TemporaryDirectory() as copies:
        for fault, status in try_all(ROOT, left, recorded, Path(copies), processes):
            statuses[fault] = status
            _write(statuses)
            if status != NOTICED:
                print(f"{status}: {fault}", flush=True)
    planted = Counter(fault.path.partition("/")[0] for fault, x in statuses.items() if x != GONE)
    noticed = Counter(fault.path.partition("/")[0] for fault, x in statuses.items() if x == NOTICED)
    print("| faults in | planted | noticed |\n|---|---|---|")
    for folder in FOLDERS:
        print(f"| `{folder}/` | {planted[folder]} | {noticed[folder]} |")
    return 0


def _write(statuses: Mapping[Fault, str]) -> None:
    faults = [{"fault": asdict(fault), "status": status} for fault, status in statuses.items()]
    FAULTS.write_text(json.dumps(faults, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(run(__doc__, {"record": record, "sample": sample, "attempt": attempt}))

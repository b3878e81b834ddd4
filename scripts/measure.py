"""Measurements on this machine's GPU, and the recordings that tests compare with.

python scripts/measure.py --help
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
tests = (ROOT / "tests" / part for part in ("support", "corpora", "witnesses", "witnesses/ttir"))
sys.path[:0] = map(str, (ROOT, ROOT / "src", *tests))

from scripts import drift, predict, record, timing, verdicts
from scripts.command import run, script

from gemmproof.cli import _sizes


def main() -> int:
    parser, add = script(__doc__)

    dots = add("dots", record.record_dots)
    dots.add_argument("out", type=Path)

    add("casts", record.record_casts).add_argument("out", type=Path)

    add("ttir", record.record_ttir)

    predicted = add("predict", predict.compare_kernels)

    checked = add("verdicts", verdicts.check_rows)
    checked.add_argument("--only", default="", help="rows whose name holds this text")
    checked.add_argument("--examples", type=int, default=40)

    drifted = add("drift", drift.compare_drift)
    drifted.add_argument("--target", default="sm_90")
    drifted.add_argument(
        "--K", dest="sizes", type=_sizes, default="512..16384", metavar="LOW..HIGH"
    )

    timed = add("time", timing.time_kernels)
    timed.add_argument("--rounds", type=int, default=10)
    timed.add_argument("--seconds-to-settle", dest="settle", type=float, default=2.0)

    for command in (checked, drifted):
        command.add_argument("--jobs", type=int, default=8)
    for command in (dots, predicted, checked, drifted, timed):
        command.add_argument(
            "--json", dest="report", metavar="FILE", type=Path, help="write a report"
        )
    return run(parser)


if __name__ == "__main__":
    sys.exit(main())

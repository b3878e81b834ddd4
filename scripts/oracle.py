"""The recorded verdicts of all kernels: no code change may alter one unnoticed.

A record holds the verdict on every kernel of the corpora, of kernels/ and of docs/examples (the
exit status, each property, each finding, each limit) and the answers of a few commands.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from scripts.command import run
from scripts.verdicts import record_files as files
from scripts.verdicts.differences import iter_differences
from scripts.verdicts.run import record_all, settle_environment

RECORD = ROOT / "tests" / "verdicts" / "record"
PROCESSES = 2


def record(
    out: Path | None = None, only: str = "", subset: bool = False, processes: int = PROCESSES,
    verbose: bool = False,
) -> int:  # fmt: skip
    """Record the verdicts of today, in tests/verdicts/record or in the folder --out.

    --only takes the subjects whose key contains a text, --subset the kernels of the full test
    lane; then --out is needed. --verbose prints on stderr the time of each subject.
    """
    if (only or subset) and out is None:
        print("record: got --only or --subset without --out, expected a folder", file=sys.stderr)
        return 2
    from scripts.verdicts.adapter import CASES, SEED, preload, record_subject
    from scripts.verdicts.subjects import list_subjects, pick_subset

    subjects = list_subjects()
    picked = (
        pick_subset(subject.key for subject in subjects)
        if subset
        else {subject.key for subject in subjects}
    )
    subjects = [subject for subject in subjects if subject.key in picked and only in subject.key]
    total = 0.0

    def report(key: str, seconds: float) -> None:
        nonlocal total
        total += seconds
        if verbose:
            print(f"{key}: {seconds:.1f} s", file=sys.stderr, flush=True)

    preload()
    records = record_all(subjects, partial(record_subject, cases=CASES), processes, report)
    files.write(out or RECORD, records, {"cases of each format": CASES, "seed": SEED})
    print(f"{len(records)} subjects recorded in {total:.0f} s of CPU time", file=sys.stderr)
    return 0


def compare(
    old: Path | None = None, new: Path | None = None, only: str = "", subset: bool = False,
    processes: int = PROCESSES,
) -> int:  # fmt: skip
    """Print a line for each difference to the record, and exit with 1 if there is any.

    The verdicts of today are compared, or the record in the folder --new; with that of
    tests/verdicts/record, or of the folder --old. --only and --subset are those of `record`.
    """
    if new is None:
        with tempfile.TemporaryDirectory() as folder:
            record(Path(folder), only, subset, processes)
            return compare(old, Path(folder), only, subset)
    try:
        (before, settings), (after, others) = files.read(old or RECORD), files.read(new)
    except files.Unreadable as reason:
        print(reason)
        return 1
    if settings != others:
        print(f"settings: got {others}, expected {settings}")
        return 1
    keys = {*before, *after}
    if subset:
        from scripts.verdicts.subjects import pick_subset

        keys = pick_subset(keys)
    lines = list(iter_differences(before, after, {key for key in keys if only in key}))
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(lines))


if __name__ == "__main__":
    settle_environment()
    sys.exit(run(__doc__, {"record": record, "compare": compare}))

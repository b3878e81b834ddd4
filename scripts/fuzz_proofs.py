"""Draw programs, prove them, and look for sizes at which something is false that is proved."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from scripts.command import run
from tests.properties.proof_fuzzer.draws import draw_program
from tests.properties.proof_fuzzer.saved import read, write

FAILURES = ("contradiction", "grid", "crash")
LIMIT = 120  # seconds of CPU time of one program, after which it counts as cut off


def draw(
    count: int = 1000,
    seed: int = 0,
    workers: int = 2,
    seconds: float = 3.0,
    out: Path | None = None,
) -> int:
    """Compare the prover with the truth about --count programs, of the seeds from --seed on.

    --seconds are those of each proof. The folder --out gets results.jsonl, a line for each program,
    and a file for each contradiction and crash. Seeds that results.jsonl has already are not run
    again, so that the same command continues a run.
    """
    folder = out or Path(tempfile.mkdtemp(prefix="fuzz_proofs_"))
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    rows = [json.loads(x) for x in results.read_text().splitlines()] if results.exists() else []
    finished = {row["seed"] for row in rows}
    tasks = [(n, seconds, str(folder)) for n in range(seed, seed + count) if n not in finished]
    began, last, at_start = time.time(), 0.0, len(rows)
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=200) as pool, results.open("a") as file:
        for row in pool.imap_unordered(_run_task, tasks, chunksize=1):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            if time.time() - last > 10:
                last = time.time()
                rate = (len(rows) - at_start) / (last - began)
                bad = sum(x["kind"] in FAILURES for x in rows)
                print(f"{len(rows)} of {count} programs, {rate:.2f} a second, {bad} contradictions"
                      " and crashes", file=sys.stderr)  # fmt: skip
    rows = [row for row in rows if seed <= row["seed"] < seed + count]
    print(summarize(rows, time.time() - began, folder))
    return 1 if any(row["kind"] in FAILURES for row in rows) else 0


def repeat(file: Path, seconds: float = 10.0) -> int:
    """Prove the program of one FILE again, and print its source and what is proved but false."""
    from tests.properties.proof_fuzzer.compare import compare
    from tests.properties.proof_fuzzer.language import print_program

    program, data = read(file)
    print(print_program(program))
    result = compare(program, seconds)
    print(
        f"cause: {data['cause'] or 'not known'}\n{result.kind}; proved: {' '.join(result.proved)}"
    )
    for x in result.witnesses:
        print(f"  {x.property} is false at M, N, K = {x.sizes}: {x.text}")
    for reason in result.reasons:
        print(f"  {reason}")
    return 1 if result.kind in FAILURES else 0


class _CutOff(BaseException):  # no handler of the prover's catches it
    pass


def _run_task(task: tuple[int, float, str]) -> dict[str, Any]:
    return run_seed(*task)


def run_seed(seed: int, seconds: float, folder: str) -> dict[str, Any]:
    """Compare the program of one seed, and return the row about it."""
    from tests.properties.proof_fuzzer.compare import Comparison, compare

    def stop(*_: Any) -> None:
        raise _CutOff

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    program = draw_program(seed)
    try:
        with tempfile.TemporaryDirectory(prefix="proof_fuzzer_") as sources:
            result = compare(program, seconds, Path(sources))
    except _CutOff:
        result = Comparison("cut off")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if result.kind in FAILURES:
        file = Path(folder) / f"{result.kind}_{seed}.json"
        write(file, program, result.text if result.kind == "crash" else "", result.witnesses)
    about = {x.property: [*x.sizes, x.text] for x in result.witnesses}
    return {
        "seed": seed, "kind": result.kind, "changes": program.changes,
        "proved": result.proved, "is_right": result.is_right,
        "is_whole": result.is_whole, "about": about,
        "text": result.text[-300:], "reasons": result.reasons, "seconds": result.seconds,
    }  # fmt: skip


def summarize(rows: list[dict[str, Any]], seconds: float, folder: Path) -> str:
    """Return the figures of a run, in one screen."""
    kinds = Counter(row["kind"] for row in rows)
    right = [row for row in rows if row["is_right"]]
    whole = sum(row["is_whole"] for row in right)
    share = f"{100 * whole / len(right):.0f} %" if right else "none"
    times = [sum(row.get("seconds", (0, 0))[i] for row in rows) / max(len(rows), 1) for i in (0, 1)]
    lines = [
        f"{len(rows)} programs in {seconds:.0f} s",
        f"  CPU seconds of a program    {times[0]:.2f} for the proof, {times[1]:.2f} for the truth",
        f"  right                       {len(right)}",
        f"    all properties proved     {whole}, {share} of the right ones",
        f"  wrong                       {kinds['wrong']}",
        f"  contradictions              {kinds['contradiction']}",
        f"  grids that are too long     {kinds['grid']}",
        f"  crashes of the prover       {kinds['crash']}",
        f"  cut off, or not valid       {kinds['cut off'] + kinds['invalid']}",
    ]
    for row in rows:
        if row["kind"] in FAILURES and len(lines) < 30:
            about = "; ".join(f"{n} at {x[:3]}: {x[3]}" for n, x in row["about"].items())
            name = f"{row['kind']}_{row['seed']}.json"
            lines.append(f"{name}: {(about or row['text'].strip().splitlines()[-1])[:160]}")
    return "\n".join([*lines, f"results: {folder}"])


COMMANDS = {"draw": draw, "repeat": repeat}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(run(__doc__ or "", COMMANDS))

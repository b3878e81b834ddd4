"""What measurements share: a process for each kernel, and rows that say where they were made."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton

Row = dict[str, Any]


def run_each(
    function: Callable[..., Row], tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[Row]:
    """`function(*task)` for each task in a process of its own, in the order of the tasks.

    Compilation takes most of the time, and a CUDA error breaks the process that it occurs in.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in [pool.submit(function, *task) for task in tasks]:
            yield future.result()


def collect(rows: Iterable[Row], describe: Callable[[Row], str], report: Path | None) -> int:
    """Print each row as it comes, and how many of them are as `row["expected"]` says.

    After each row the report is written (as JSON, below the device, the versions and the date): a
    run that is cut short leaves what it measured. Returns 1 where a row is not as expected, else 0.
    """
    device = torch.cuda.get_device_name()
    head = {
        "device": device,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    made: list[Row] = []
    for row in rows:
        made.append(row)
        print(describe(row), flush=True)
        if report is not None:
            report.write_text(json.dumps({**head, "kernels": made}, indent=1), encoding="utf-8")
    good = sum(row["expected"] for row in made)
    print(f"{device}: {good} of {len(made)} as expected")
    return int(good < len(made))

"""What measurements share: a process for each kernel, and JSON that says where it was made."""

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


def run_each(
    function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[Any]:
    """`function(*task)` for each task in a process of its own, in the order of the tasks.

    Compilation takes most of the time, and a CUDA error spoils the process that it occurs in.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in [pool.submit(function, *task) for task in tasks]:
            yield future.result()


def write_json(path: Path | None, **found: Any) -> None:
    """Write what was found below the device, the versions and the date; without a path, nothing."""
    if path is None:
        return
    head = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    path.write_text(json.dumps({**head, **found}, indent=1), encoding="utf-8")

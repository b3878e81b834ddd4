"""Shared parts of the measurements: kernels, a process for each, rows with their provenance."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import torch
import triton

from gemmproof.backends.cuda_device import Gpu
from gemmproof.fake_device import DeviceRequest
from gemmproof.properties.codec import Json
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import OPERANDS
from gemmproof.worker.load_kernel import load_registered

ROOT = Path(__file__).parents[2]
CONFTEST = str(ROOT / "conftest.py")
Row = Json  # the fields that one measurement writes


def run_each(
    function: Callable[..., Row], tasks: Iterable[tuple[Any, ...]], jobs: int,
    tasks_of_a_process: int | None = 1,
) -> Iterator[Row]:  # fmt: skip
    """Yield `function(*task)` for each task in its own process, in the order of the tasks.

    Compilation takes most of the time, and a CUDA error breaks the process that it occurs in;
    with None for `tasks_of_a_process` few processes run all.
    """
    with ProcessPoolExecutor(
        jobs, get_context("spawn"), max_tasks_per_child=tasks_of_a_process
    ) as pool:
        for future in [pool.submit(function, *task) for task in tasks]:
            yield future.result()


def refuse(command: str, got: str, expected: str) -> NoReturn:
    """End the process with one line on the missing requirement."""
    print(f"{command}: got {got}, expected {expected}", file=sys.stderr)
    raise SystemExit(2)


def require_gpu(command: str) -> None:
    """End the process with one line where torch finds no GPU."""
    if not torch.cuda.is_available():
        refuse(command, "no GPU that torch finds", "one")


def place_evidence(name: str, kernel: str, format: str) -> Path | None:
    """Return the path of a command's evidence, or None if only some kernels or formats are run."""
    return None if kernel or format else ROOT / "docs" / "evidence" / f"{name}.json"


def list_tasks(
    command: str,
    kernel: str = "",
    format: str = "",
    formats: Container[str] = OPERANDS,
    conftest: str = CONFTEST,
) -> list[tuple[str, str]]:
    """The name and a format of each registered kernel; those of one name, or in one format."""
    registered = list_kernels(command, conftest)
    tasks = [(entry.name, name) for entry in registered for name in entry.contract.formats]
    allowed = (format,) if format else formats
    chosen = [(name, fmt) for name, fmt in tasks if kernel in ("", name) and fmt in allowed]
    if not chosen:
        known = " ".join(dict.fromkeys(name for name, _ in tasks))
        got = f"--kernel {kernel or 'any'} --format {format or 'any'}"
        refuse(command, got, f"a format that the kernel takes, of {known}")
    return chosen


def find_kernel(name: str) -> KernelUnderTest:
    """A registered kernel, whose module meets this machine's GPU."""
    DeviceRequest.device = True
    return next(kernel for kernel in list_kernels("measure") if kernel.name == name)


def list_kernels(command: str, conftest: str = CONFTEST) -> list[KernelUnderTest]:
    """Return the kernels that a conftest.py registers; end the process with one line if none."""
    registered = load_registered(conftest)
    if not isinstance(registered, list):
        refuse(command, str(registered), "kernels of a conftest.py")
    return registered


def collect(
    rows: Iterable[Row],
    describe: Callable[[Row], str],
    report: Path | None,
    device: bool = True,
) -> int:
    """Print each row as it comes, and how many of them are as `row["expected"]` says.

    After each row the report is written (as JSON, a row a line, below the device, the versions and
    the date): an interrupted run leaves its measurements. Without `device` none is needed.
    Returns 1 where a row is not as expected, else 0.
    """
    gpu = Gpu() if device else None
    head = {
        **({} if gpu is None else gpu.facts),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    collected: list[Row] = []
    for row in rows:
        collected.append(row)
        print(describe(row), flush=True)
        if report is not None:
            report.write_text(_format(head, collected), encoding="utf-8")
    good = sum(row["expected"] for row in collected)
    print(f"{'without a GPU' if gpu is None else gpu.name}: {good} of {len(collected)} as expected")
    return int(good < len(collected))


def _format(head: Row, rows: list[Row]) -> str:
    facts = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{\n{facts} "kernels": [\n{lines}\n ]\n}}\n'

"""What measurements share: kernels, a process for each, rows that say where they were made."""

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
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import OPERANDS
from gemmproof.worker.serve import load_registered

ROOT = Path(__file__).parents[2]
CONFTEST = str(ROOT / "conftest.py")
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


def run_many(
    function: Callable[..., Row], tasks: Iterable[tuple[Any, ...]], jobs: int
) -> Iterator[Row]:
    """The same in few processes, for what needs none of its own."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for future in [pool.submit(function, *task) for task in tasks]:
            yield future.result()


def refuse(command: str, got: str, expected: str) -> NoReturn:
    """End the process with one line on what cannot be done."""
    print(f"{command}: got {got}, expected {expected}", file=sys.stderr)
    raise SystemExit(2)


def require_gpu(command: str) -> None:
    """End the process with one line where torch finds no GPU."""
    if not torch.cuda.is_available():
        refuse(command, "no GPU that torch finds", "one")


def place_evidence(name: str, kernel: str, format: str) -> Path | None:
    """Where the evidence of a command lies; None where only some kernels or formats are asked."""
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
    tasks = [(one.name, name) for one in registered for name in one.contract.formats]
    wanted = (format,) if format else formats
    chosen = [(name, fmt) for name, fmt in tasks if kernel in ("", name) and fmt in wanted]
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
    """What a conftest.py registers; ends the process with one line where it registers nothing."""
    found = load_registered(conftest)
    if not isinstance(found, list):
        refuse(command, str(found), "kernels of a conftest.py")
    return found


def collect(
    rows: Iterable[Row],
    describe: Callable[[Row], str],
    report: Path | None,
    device: bool = True,
) -> int:
    """Print each row as it comes, and how many of them are as `row["expected"]` says.

    After each row the report is written (as JSON, a row a line, below the device, the versions and
    the date): a run that is cut short leaves what it measured. Without `device` none is needed.
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
    made: list[Row] = []
    for row in rows:
        made.append(row)
        print(describe(row), flush=True)
        if report is not None:
            report.write_text(_format(head, made), encoding="utf-8")
    good = sum(row["expected"] for row in made)
    print(f"{'without a GPU' if gpu is None else gpu.name}: {good} of {len(made)} as expected")
    return int(good < len(made))


def _format(head: Row, rows: list[Row]) -> str:
    facts = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{\n{facts} "kernels": [\n{lines}\n ]\n}}\n'

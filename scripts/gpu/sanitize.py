"""Our kernels under NVIDIA's compute-sanitizer: memcheck and racecheck, on a few small shapes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import torch
from scripts.gpu.evidence import (
    ROOT,
    Row,
    collect,
    find_kernel,
    list_tasks,
    place_evidence,
    refuse,
    require_gpu,
)

from gemmproof.backends.autotune import force
from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.layouts import ROW
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.kernel import NONE, KernelUnderTest
from gemmproof.reference.fake_cuda.multiprocessors import multiprocessors

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck")
FORMATS = ("fp16", "fp8e4m3")
SECONDS = 300
SHOWN = 200  # findings that a tool prints
#: M, N, K: an element, sides that no vector divides, an empty sum; and where 16 bytes divide every
#: row, so that the copy engine is used, less and more than a tile.
ODD = ((1, 1, 1), (17, 33, 65), (3, 5, 0))
EVEN = ((8, 16, 32), (136, 272, 144))
SIDES = (ROW, "column")  # along which memory is dense
SMS = 2  # that persistent programs have several tiles, and split sums several parts
CALLED = re.compile(r"^calls: (\d+)$", re.MULTILINE)
SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (.*)$", re.MULTILINE)
CLEAN = re.compile(r"0 errors|0 hazards displayed \(0 errors, 0 warnings\)")
ACCESS = re.compile(r"access at \w+\+0x[0-9a-f]+ in (\S+):(\d+)")
#: Lines of a kernel that access no memory themselves: shared memory there belongs to Triton.
DISPATCH = re.compile(r"def \w+\(|.*warp_specialize\(")
SUMMED = re.compile(r"RACECHECK SUMMARY: ")
PLACE = re.compile(r"^=+ +(?!=|Host Frame|Saved host)(\S.*)$", re.MULTILINE)


def check_kernels(
    kernel: str = "", format: str = "", jobs: int = 4, report: Path | None = None
) -> int:
    """Run every registered kernel under compute-sanitizer's memcheck and racecheck.

    Each is called in fp16 and in fp8 on small shapes: odd ones, and ones that the copy engine
    addresses, in each configuration. Writes docs/evidence/sanitized.json where every kernel is run,
    else only what --report FILE says. Exits with 1 if a tool reports anything.
    """
    program = find_program()
    if program is None:
        refuse("sanitize", f"no {PROGRAM}", "it on PATH or in CUDA's folder")
    require_gpu("sanitize")
    tasks = [
        (tool, *task) for task in list_tasks("sanitize", kernel, format, FORMATS) for tool in TOOLS
    ]
    file = report or place_evidence("sanitized", kernel, format)
    with ThreadPoolExecutor(jobs) as pool:
        return collect(pool.map(partial(check, program), *zip(*tasks, strict=True)), describe, file)


def find_program() -> str | None:
    """compute-sanitizer's path: on PATH, in CUDA's folder, or in one that pip installed."""
    cuda = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    paths = [Path(root) / part for root in filter(None, cuda) for part in ("bin", PROGRAM)]
    paths += Path(torch.__file__).parents[1].glob(f"nvidia/**/{PROGRAM}")
    programs = (shutil.which(PROGRAM, path=str(p if p.is_dir() else p.parent)) for p in paths)
    return shutil.which(PROGRAM) or next(filter(None, programs), None)


def check(program: str, tool: str, name: str, format: str) -> Row:
    """Run a tool on one kernel in one format; return its answer as a row."""
    began = time.perf_counter()
    command = [sys.executable, str(ROOT / "scripts" / "measure.py"), "calls"]
    command += ["--kernel", name, "--format", format]
    watched = [program, "--tool", tool, "--print-limit", str(SHOWN), *command]
    # a separate allocation for each tensor: torch's blocks hide accesses next to a tensor
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(watched, env=env, capture_output=True, text=True, timeout=SECONDS)
        output = f"{done.stdout}\n{done.stderr}"
    except subprocess.TimeoutExpired:
        output = f"no end after {SECONDS} s"
    return {
        "kernel": name,
        "format": format,
        "tool": tool,
        **read_answer(output),
        "seconds": round(time.perf_counter() - began, 1),
    }


def read_answer(output: str) -> Row:
    """Return the number of calls, the tool's summary, and its findings, if any.

    Races of Triton's own dispatch are expected: waiting warps read their task where others wrote
    it, each between barriers of all warps, which racecheck does not follow from one to another.
    """
    called, summary = CALLED.search(output), SUMMARY.search(output)
    calls = int(called[1]) if called else 0
    is_clean = summary is not None and CLEAN.fullmatch(summary[1].strip()) is not None
    lines = PLACE.findall(output) or output.strip().splitlines()[-4:]
    return {
        "expected": calls > 0 and (is_clean or (summary is not None and _is_dispatch(lines))),
        "calls": calls,
        "summary": summary[1].strip() if summary else "none",
        "found": [] if is_clean and calls > 0 else [line[:200] for line in lines[:8]],
    }


def _is_dispatch(lines: list[str]) -> bool:
    """Return whether all reported accesses are at lines where a kernel has no access itself."""
    heads = sum("Race reported" in line for line in lines)
    races = [line for line in lines if "Race reported" in line or line.startswith("and ")]
    accesses = [ACCESS.search(line) for line in races]
    frame = [line for line in lines if line == "COMPUTE-SANITIZER" or SUMMED.match(line)]
    return (
        0 < heads < SHOWN
        and len(lines) == len(races) + len(frame)  # no other lines
        and f"RACECHECK SUMMARY: {heads} hazard" in frame[-1]
        and all(x is not None and _is_at_dispatch(x[1], int(x[2])) for x in accesses)
    )


def _is_at_dispatch(file: str, number: int) -> bool:
    """Return whether a line of a kernel's file belongs to Triton's dispatch."""
    paths = [path for path in (ROOT / "kernels").rglob("*.py") if path.name == Path(file).name]
    lines = [path.read_text(encoding="utf-8").splitlines()[number - 1 :][:1] for path in paths]
    return bool(lines) and all(x and DISPATCH.match(x[0]) for x in lines)


def describe(row: Row) -> str:
    """A line for the tool's summary, and its findings."""
    word = "ok " if row["expected"] else "BAD"
    about = f"{row['kernel']:18} {row['format']:8} {row['tool']:9} {row['seconds']:5.0f} s"
    return "\n    ".join(
        [f"{word} {about} {row['calls']:3} calls: {row['summary']}", *row["found"]]
    )


def call_kernel(kernel: str = "", format: str = "fp16") -> int:
    """Call a registered kernel on the cases of `sanitize`, in each configuration; print the count.

    This command runs under compute-sanitizer.
    """
    require_gpu("calls")
    registered, count = find_kernel(kernel), 0
    with multiprocessors(SMS):
        for case in list_cases(registered, format):
            tensors = {
                name: copy_to_device(x, torch.device("cuda"))
                for name, x in tensors_of(case, registered).items()
            }
            index, among = 0, 1
            while index < among:
                with force(index) as ran:
                    try:
                        registered.call(case, tensors)
                        count += 1
                    except CaseNotRunnable:  # skipped by its tuner too
                        pass
                torch.cuda.synchronize()
                among = max([choice.among for choice in ran], default=1)
                index += 1
    print(f"calls: {count}")
    return 0


def list_cases(kernel: KernelUnderTest, format: str) -> Iterator[Case]:
    """Yield the shapes that the contract admits; those for the copy engine by rows and by columns.

    Further operands are as usual where a and b are; with the other layouts, each takes the n-th of
    its options that is a layout by rows or columns, an omitted operand or a value.
    """
    options = {
        name: [x for x in values if x in (ROW, *SIDES, NONE) or name in kernel.choices]
        for name, values in kernel.list_options().items()
    }
    batch = 2 if kernel.contract.batched else None
    shapes = [*((s, (ROW, ROW), 0) for s in ODD)]
    shapes += [(s, sides, i) for s in EVEN for i, sides in enumerate(product(SIDES, repeat=2))]
    for (M, N, K), sides, i in shapes:
        arguments = tuple(
            (name, values[i % len(values)]) for name, values in options.items() if values
        )
        layouts = tuple(zip("ab", sides, strict=True))
        case = Case(M, N, K, format, batch=batch, layouts=layouts, arguments=arguments)
        if is_admitted(case, kernel.contract):
            yield case


def copy_to_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy x to a device, with its strides and nothing around it."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)

"""The wrong kernels of tests/corpora/mutants as other tools see them, on this machine's GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import torch
from scripts.gpu.evidence import ROOT, Row, collect, place_evidence, refuse, require_gpu
from scripts.gpu.sanitize import PROGRAM, SUMMARY, find_program
from tests.corpora.mutant import Mutant
from tests.corpora.mutants.table import MUTANTS, SURVIVORS

from gemmproof.reference.formats import FORMATS

#: M, N, K of a call: what benchmarks use, and sides that no tile divides.
SHAPES = {"square": (512, 512, 512), "odd": (129, 257, 65)}
#: The tolerance, absolute and relative, of torch.testing.assert_close. Its default for fp16 rejects
#: right kernels too (docs/explanation/acceptance-rules.md).
TOLERANCE = 1e-2
ASSERT_CLOSE, INTERPRETER, MEMCHECK = "assert_close", "interpreter", "memcheck"
TOOLS = (ASSERT_CLOSE, INTERPRETER, MEMCHECK)
SECONDS = 300
ANSWER = re.compile(r"^answer: (.*)$", re.MULTILINE)


def compare_tools(only: str = "", jobs: int = 8, report: Path | None = None) -> int:
    """Run each mutant of a plain product under assert_close, the interpreter and memcheck.

    assert_close compares a launch with torch's product, on normal data at 512 x 512 x 512 and at
    129 x 257 x 65; the interpreter does so on the CPU at the latter; memcheck watches launches of
    both. Writes docs/evidence/other-tools.json where every mutant is run, else only what --report
    FILE says. With --only TEXT, mutants whose name holds the text.
    """
    if find_program() is None:
        refuse("other-tools", f"no {PROGRAM}", "it on PATH or in CUDA's folder")
    require_gpu("other-tools")
    names = [mutant.name for mutant in list_mutants() if only in mutant.name]
    calls = [(tool, shape) for tool, shape in product(TOOLS, SHAPES)]
    calls.remove((INTERPRETER, "square"))  # minutes each
    tasks = [(name, tool, shape) for name in names for tool, shape in calls]
    with ThreadPoolExecutor(jobs) as pool:
        rows = pool.map(lambda task: run_tool(*task), tasks)
        return collect(rows, describe, report or place_evidence("other-tools", only, ""))


def list_mutants() -> list[Mutant]:
    """Return the mutants that take a and b alone. What the host computes (S) has right values."""
    own = (mutant for mutant in (*MUTANTS, *SURVIVORS) if mutant.right is None)
    return [mutant for mutant in own if mutant.letter != "S"]


def run_tool(name: str, tool: str, shape: str) -> Row:
    """Return what a tool reports of one call, in a separate process."""
    began = time.perf_counter()
    command = [sys.executable, str(ROOT / "scripts" / "measure.py"), "call-mutant"]
    command += ["--name", name, "--shape", shape]
    env = dict(os.environ)
    if tool == INTERPRETER:
        command, env["TRITON_INTERPRET"] = [*command, "--cpu"], "1"
    if tool == MEMCHECK:
        command = [str(find_program()), "--tool", "memcheck", "--print-limit", "1", *command]
        # a separate allocation for each tensor: torch's blocks hide accesses next to a tensor
        env["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
        answer = read_answer(tool, done.returncode, f"{done.stdout}\n{done.stderr}")
    except subprocess.TimeoutExpired:
        answer = f"no end after {SECONDS} s"
    seconds = round(time.perf_counter() - began, 1)
    row = {"kernel": name, "tool": tool, "shape": shape, "seconds": seconds, "answer": answer}
    return {**row, "expected": True, "reports": answer != "nothing"}


def read_answer(tool: str, status: int, output: str) -> str:
    """Return the first fault that a tool reports, or "nothing"."""
    if tool == MEMCHECK:
        summary = SUMMARY.search(output)
        if summary is not None and summary[1].strip() == "0 errors":
            return "nothing"
        return summary[1].strip() if summary else f"exit status {status}"
    answer = ANSWER.search(output)
    return answer[1] if answer else f"exit status {status}"


def describe(row: Row) -> str:
    """A line for what the tool reports."""
    return f"{row['kernel']:40} {row['tool']:12} {row['shape']:6} {row['answer'][:80]}"


def call_mutant(name: str = "", shape: str = "odd", cpu: bool = False) -> int:
    """Call a mutant once on normal data and compare the result with torch's product."""
    mutant = next(mutant for mutant in list_mutants() if mutant.name == name)
    kernel, device = mutant.kernel, "cpu" if cpu else "cuda"
    contract, (M, N, K) = kernel.contract, SHAPES[shape]
    batch = (2,) if contract.batched else ()
    sides = contract.fit({"M": M, "N": N, "K": K} | ({"batch": 2} if batch else {}))
    M, N, K = (sides[axis] for axis in "MNK") if sides else (M, N, K)
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, FORMATS[contract.formats[0]].stored.dtype)
    a, b = (make_operand((*batch, *axes), dtype, generator).to(device) for axes in ((M, K), (K, N)))
    try:
        c = kernel.launch(a, b)
        if not cpu:
            torch.cuda.synchronize()
        expected = (a.cpu().double() @ b.cpu().double()).to(c.dtype)
        torch.testing.assert_close(
            c.cpu().double(), expected.double(), atol=TOLERANCE, rtol=TOLERANCE
        )
        answer = "nothing"
    except Exception as error:
        answer = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    print(f"answer: {answer}")
    return 0


def make_operand(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Return normal data, or for integers all values of the format."""
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(-128, 128, shape, generator=generator).to(dtype)

"""The kernels of tests/corpora on a GPU: right ones are exact on integers, wrong ones compile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from scripts.gpu.evidence import Row, collect, run_each
from tests.corpora.families.table import RIGHT
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.corpora.no_false_alarm.table import KERNELS

from gemmproof.backends.cuda_device import Gpu, Launches
from gemmproof.engine.observe import judge, observe
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.judges.memory_use import COMPILES
from gemmproof.properties.kernel import KernelUnderTest

BENIGN, SMALLEST = (33, 47, 50, "row", "column"), (1, 1, 1, "row", "row")
#: M, N, K and the layouts of a and b that a kernel is launched on, by its declared kind.
SHAPES = {
    "right": (
        BENIGN,
        SMALLEST,
        (17, 33, 64, "sliced", "row"),
        (5, 1, 300, "column", "sliced"),
        (64, 80, 0, "row", "row"),
    ),
    "runs": (BENIGN,),
    "raises": (SMALLEST,),
}
# Triton 3.6 lowers dots of scaled operands for sm_90 by way of 16-bit ones, but not all of them
FP4 = "microscaled"


def launch_corpora(only: str = "", jobs: int = 8, report: Path | None = None) -> int:
    """Launch the kernels of tests/corpora on the GPU, on integers whose sums are exact.

    A right kernel must be right at five shapes and layouts, as far as its contract admits them, for
    every value and omitted operand, over any uninitialised memory. A mutant
    need only compile and run at one shape, where it often does no harm; one that Triton refuses
    must raise. With --only TEXT, kernels whose name holds the text. Exits with 0 when all are as
    expected.
    """
    tasks = [(kernel.name, "right") for kernel in (*KERNELS, *RIGHT)]
    for mutant in (*MUTANTS, *SURVIVORS):
        tasks.append((mutant.name, "raises" if mutant.property == COMPILES else "runs"))
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (10, 0):
        excluded = {kernel.name for kernel in RIGHT if kernel.name == "nvfp4_mm"}
        excluded |= {mutant.name for mutant in MUTANTS if mutant.wrapper.startswith(f"{FP4}:")}
        print(f"left out, because this device has no such dots: {' '.join(sorted(excluded))}")
        tasks = [task for task in tasks if task[0] not in excluded]
    chosen = [task for task in tasks if only in task[0]]
    return collect(run_each(launch, chosen, jobs), describe, report)


def launch(name: str, kind: str) -> Row:
    """Return the findings of the properties on a kernel; `kind` is its key in SHAPES."""
    # by name: a process cannot send a kernel that replaces another one
    corpus = (*KERNELS, *RIGHT) if kind == "right" else [m.kernel for m in (*MUTANTS, *SURVIVORS)]
    kernel = next(kernel for kernel in corpus if kernel.name == name)
    device, results = Gpu(), []
    for case in _list_cases(kernel, kind):
        backend = Launches(device, None, None, lambda event: None)
        results.append(judge(observe(kernel, case, backend)))
    raised = any(result.raised for result in results)
    findings = [f"{result.case}: {f.message}" for result in results for f in result.findings]
    expected = not findings if kind == "right" else raised == (kind == "raises")
    return {"kernel": name, "stated": kind, "expected": expected, "found": findings}


def _list_cases(kernel: KernelUnderTest, kind: str) -> Iterator[Case]:
    contract, options = kernel.contract, kernel.list_options()
    argument_sets = [(), *(((n, word),) for n, values in options.items() for word in values[1:])]
    for (M, N, K, a, b), fmt in product(SHAPES[kind], contract.formats):
        sides = {"M": M, "N": N, "K": K} | ({"batch": 2} if contract.batched else {})
        layouts = (("a", a), ("b", b))
        fitted = contract.fit(sides) or sides
        case = Case(dtype=fmt, **fitted, layouts=layouts, calls=3)
        for arguments in argument_sets if is_admitted(case, contract) or kind != "right" else ():
            yield replace(case, arguments=arguments)


def describe(row: Row) -> str:
    """A line for the kernel, and one for each finding where it is not as expected."""
    line = f"{'ok ' if row['expected'] else 'BAD'} {row['kernel']} {row['stated']}"
    return line if row["expected"] else "\n    ".join([line, *row["found"]])

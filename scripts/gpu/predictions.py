"""Kernels on a GPU beside the tile simulator: the bits of ours, and the drift of accumulators."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton
from scripts.docs.tensor_cores import SIZES
from scripts.gpu.evidence import Row, collect, run_each
from tests.witnesses.recorded.cases import operand

from gemmproof import kernels
from gemmproof.drift.run import drift, launch_product, simulate_product
from gemmproof.properties.cases.data import TORCH_DTYPES, as_array, as_tensor
from gemmproof.properties.codec import encode
from gemmproof.reference.arithmetic import Array, bits
from gemmproof.reference.simulator import run

# -- bits ------------------------------------------------------------------------------------------
SHAPES = ((129, 65, 300), (64, 200, 1056), (1, 33, 77), (300, 17, 16))
#: Shapes that the copy engine can address, with a dense k in both operands.
ALIGNED = ((136, 272, 304), (264, 400, 528))
#: The output formats of each input format.
OUTPUTS = {
    "fp16": (torch.float16, torch.float32),
    "bf16": (torch.bfloat16, torch.float32),
    "fp32": (torch.float32,),
    "tf32": (torch.float32,),
    "fp8e4m3": (torch.float32, torch.bfloat16, torch.float8_e4m3fn),
    "fp8e5m2": (torch.float32, torch.float16, torch.float8_e5m2),
    "int8": (torch.int32,),
}
KINDS = ("normal", "wide", "special")


def compare_kernels(jobs: int = 8, kernel: str = "", report: Path | None = None) -> int:
    """Launch our kernels, or one, on the GPU and compare every bit with the simulator's sm_90.

    Exits with 0 when all bits are equal, 1 otherwise.
    """
    names = [kernel] if kernel else list(kernels.KERNELS)
    tasks = [(name, fmt) for name in names for fmt in OUTPUTS]
    return collect(run_each(compare_bits, tasks, jobs), describe_bits, report)


def compare_bits(name: str, fmt: str) -> Row:
    """The equal outputs of one kernel in one input format, and each launch that differs."""
    module = import_module(f"gemmproof.kernels.{name}")
    tuned, wrapper = getattr(module, f"{name}_kernel"), getattr(module, name)
    # the simulator cannot run Gluon; its sums are those of the kernel that it replaces
    model = kernels.matmul_tma if name == "matmul_ws" else wrapper
    equal, total, wrong = 0, 0, []
    kinds = ("raw",) if fmt == "int8" else KINDS
    configs = itertools.cycle(_list_configs(module, fmt))
    for shape, kind, dtype in itertools.product((*SHAPES, *ALIGNED), kinds, OUTPUTS[fmt]):
        config = next(configs)
        try:
            config_patch = (
                nullcontext() if config is None else patch.object(tuned, "configs", [config])
            )
            with _with_one_by_pointers(), config_patch:
                same, size, finding = compare_launch(wrapper, model, fmt, kind, shape, dtype)
        except triton.runtime.errors.OutOfResources:
            if config is None:
                raise
            continue  # the tuner skips it too
        equal, total = equal + same, total + size
        if finding:
            launch = f"{shape} {kind} {dtype} {config or ''}"
            wrong.append(f"{launch}: {finding}")
    return {
        "kernel": name,
        "format": fmt,
        "expected": equal == total > 0 and not wrong,
        "equal": equal,
        "outputs": total,
        "different": wrong,
    }


def _with_one_by_pointers() -> Any:
    """While active, the fallback to pointers has one configuration: the tuner has no choice."""
    module = import_module("gemmproof.kernels.matmul_persistent")
    return patch.object(module.matmul_persistent_kernel, "configs", module.CONFIGS[-2:-1])


def _list_configs(module: ModuleType, fmt: str) -> list[triton.Config | None]:
    """Return the configurations that a kernel's tuner tries on a format; [None] without a tuner."""
    if not hasattr(module, "CONFIGS"):
        return [None]
    if not hasattr(module, "keep_fitting"):
        return list(module.CONFIGS)
    is_fp8 = fmt.startswith("fp8")
    given = {"a_desc": SimpleNamespace(base=torch.empty(0, dtype=TORCH_DTYPES[fmt]))}
    return list(module.keep_fitting(module.CONFIGS, given, PROMOTE=is_fp8, C_BYTES=1))


def describe_bits(row: Row) -> str:
    """A line for the row, and one for each of the first launches that differ."""
    head = f"{row['kernel']:18} {row['format']:8} {row['equal']}/{row['outputs']}"
    return "\n    ".join([head, *row["different"][:6]])


def compare_launch(
    wrapper: Callable[..., Any],
    model: Callable[..., Any],
    fmt: str,
    kind: str,
    shape: tuple[int, int, int],
    out_dtype: torch.dtype,
) -> tuple[int, int, str | None]:
    """Equal and all outputs of one launch, and the first difference in the memory of `out`.

    "wide" and "raw" data of SHAPES are stored in every third element of every second row of it.
    """
    M, N, K = shape
    stored = "fp32" if fmt == "tf32" else fmt
    options = {"out_dtype": out_dtype, "input_precision": "tf32" if fmt == "tf32" else "ieee"}
    a = as_tensor(operand(kind, stored, 11, (M, K)), stored)
    b = as_tensor(operand(kind, stored, 97, (K, N)), stored)
    if shape in ALIGNED:
        b = b.T.contiguous().T
    rows, columns = (2, 3) if kind in ("wide", "raw") and shape in SHAPES else (1, 1)
    memory = torch.zeros(rows * M, columns * N, dtype=torch.uint8).to(out_dtype)
    on_gpu = memory.cuda()
    wrapper(a.cuda(), b.cuda(), out=on_gpu[::rows, ::columns], **options)
    out = memory[::rows, ::columns]
    run(model, a, b, target="sm_90", kwargs={"out": out, **options})
    got, expected = as_array(on_gpu.cpu()), as_array(memory)
    differs = bits(got) != bits(expected)
    count = int(differs[::rows, ::columns].sum())
    if not differs.any():
        return M * N, M * N, None
    i, j = np.argwhere(differs)[0]
    where = f"{count} differ, memory[{i}, {j}] where out is memory[::{rows}, ::{columns}]"
    return M * N - count, M * N, f"{where}: got {got[i, j]}, expected {expected[i, j]}"


# -- drift -----------------------------------------------------------------------------------------
OURS, THEIRS = "gemmproof.kernels", "tests.support.drift_kernels"
#: Formats of each kernel; every configuration of an autotuned one is compiled.
KERNELS = {
    (OURS, "matmul"): ("fp16", "fp32", "fp8e4m3"),
    (OURS, "matmul_grouped"): ("bf16",),
    (OURS, "matmul_swizzled"): ("fp16",),
    (OURS, "matmul_persistent"): ("fp8e5m2",),
    (THEIRS, "passed"): ("fp16", "bf16", "fp8e4m3"),
    (THEIRS, "added"): ("fp16", "fp8e4m3"),
    (THEIRS, "ieee"): ("fp32",),
    (THEIRS, "tf32"): ("fp32",),
    (THEIRS, "half"): ("fp16",),
    (THEIRS, "rounded_to_bf16"): ("bf16",),
    (THEIRS, "rounded_to_fp16"): ("fp16",),
    (THEIRS, "fp8_unpromoted"): ("fp8e4m3", "fp8e5m2"),
    (THEIRS, "fp8_promoted_128"): ("fp8e4m3", "fp8e5m2"),
    (THEIRS, "fp8_promoted_32"): ("fp8e4m3", "fp8e5m2"),
    (THEIRS, "split_in_fp16"): ("fp16",),
    (THEIRS, "split_in_fp32"): ("fp16",),
    (THEIRS, "interleaved_in_fp16"): ("fp16",),
    (THEIRS, "truncating"): ("bf16",),
}
#: Kernels whose programs add to c in any order: their bits are not guaranteed.
ATOMIC = ("split_in_fp16", "split_in_fp32", "interleaved_in_fp16")


def compare_drift(target: str = "sm_90", jobs: int = 8, report: Path | None = None) -> int:
    """Drift of our kernels and of tests/support/drift_kernels.py, launched and simulated.

    Each kernel is probed and measured twice by the same code, on the GPU and for the target. Prints
    both accumulators and the share of equal bits of the measured results. Exits with 0 when every
    accumulator is the same and every bit is equal, 1 otherwise. Autotuned kernels are simulated in
    the configuration that was launched; the bits of atomic additions are not compared.
    tests/witnesses/recorded/drift_h200.json holds the accumulators of such a report.
    """
    tasks = [(*kernel, fmt, target) for kernel, formats in KERNELS.items() for fmt in formats]
    return collect(run_each(compare_accumulators, tasks, jobs), describe_accumulators, report)


def compare_accumulators(module: str, name: str, fmt: str, target: str) -> Row:
    """One kernel in one format, on the device and on the tile simulator."""
    function = getattr(import_module(module), name)
    row = {"kernel": name, "format": fmt, "expected": False}
    tuned = getattr(sys.modules.get(f"{module}.{name}"), f"{name}_kernel", None)
    chosen: dict[int, int] = {}  # by K
    launched: dict[int, Array] = {}  # the last result of each K, which is the measured one
    simulated: dict[int, Array] = {}

    def on_device(a: Array, b: Array) -> Array:
        K = a.shape[1]
        launched[K] = launch_product(function, fmt)(a, b)
        if tuned is not None:
            chosen[K] = tuned.configs.index(tuned.best_config)
        return launched[K]

    def on_simulator(a: Array, b: Array) -> Array:
        K = a.shape[1]
        simulated[K] = simulate_product(function, fmt, target, chosen.get(K, 0))(a, b)
        return simulated[K]

    reports = []
    for product, gpu in ((on_device, torch.cuda.get_device_name()), (on_simulator, target)):
        try:
            report = drift(product, fmt, sizes=SIZES, name=name, gpu=gpu)
        except Exception as error:
            return {**row, "error": f"{gpu}: {type(error).__name__}: {str(error)[:200]}"}
        reports.append(encode(report))
    on_gpu, predicted = reports
    measured = set() if name in ATOMIC else {*SIZES} & {*launched} & {*simulated}
    pairs = [(bits(launched[K]), bits(simulated[K])) for K in measured]
    equal = sum(int((x == y).sum()) for x, y in pairs)
    outputs = sum(x.size for x, _ in pairs)
    accumulator = on_gpu["drift"]["accumulator"]
    same = accumulator is not None and accumulator == predicted["drift"]["accumulator"]
    return {
        **row,
        "expected": same and equal == outputs,
        "configs": chosen,
        "equal": equal,
        "outputs": outputs,
        "accumulator": accumulator,
        "launched": on_gpu,
        "simulated": predicted,
    }


def describe_accumulators(row: Row) -> str:
    """One line, two more where the accumulators differ."""
    head = f"{row['kernel']:20} {row['format']:8}"
    if "error" in row:
        return f"{head} {row['error']}"
    ours, theirs = row["launched"], row["simulated"]
    share = f"{row['equal']}/{row['outputs']} bits equal"
    seconds = f"{ours['seconds']:.1f} s, simulated {theirs['seconds']:.1f} s"
    launched, predicted = ours["drift"]["accumulator"], theirs["drift"]["accumulator"]
    line = f"{head} {ours['verdict']}: {launched and launched['name']}; {share}; {seconds}"
    if launched == predicted:
        return line
    return f"{line}\n    launched  {launched}\n    simulated {predicted}"

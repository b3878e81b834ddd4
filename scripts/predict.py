"""The bits of our kernels on a GPU, beside those that the simulator predicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import triton
from scripts.evidence import run_each, write_json
from tests.witnesses.recorded.cases import operand

from gemmproof import kernels
from gemmproof.properties.cases.tensors import as_array, as_tensor
from gemmproof.reference.arithmetic.conversions import bits
from gemmproof.reference.simulator import run

SHAPES = ((129, 65, 300), (64, 200, 1056), (1, 33, 77), (300, 17, 16))
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

#: Equal outputs, all outputs, and a line for each launch that differs.
Share = tuple[int, int, list[str]]


def compare_kernels(report: Path | None) -> int:
    """Launch our kernels on the GPU and compare every bit with the simulator's sm_90.

    Exit 0 when all bits are equal, 1 otherwise.
    """
    names = kernels.__all__
    found = dict(zip(names, run_each(compare, [(n,) for n in names], len(names)), strict=True))
    for name, formats in found.items():
        for fmt, (equal, total, wrong) in formats.items():
            print(f"{name:18} {fmt:8} {equal}/{total}")
            print("".join(f"    {w}\n" for w in wrong[:6]), end="")
    write_json(report, kernels=found)
    shares = [share for formats in found.values() for share in formats.values()]
    return int(not all(equal == total > 0 and not wrong for equal, total, wrong in shares))


def compare(name: str) -> dict[str, Share]:
    """The share of equal outputs of one kernel in each input format."""
    module = import_module(f"gemmproof.kernels.{name}")
    tuned, wrapper = getattr(module, f"{name}_kernel"), getattr(module, name)
    turns = itertools.count(1)
    found = {}
    for fmt, out_dtypes in OUTPUTS.items():
        equal, total, wrong = 0, 0, []
        kinds = ("raw",) if fmt == "int8" else KINDS
        for shape, kind, dtype in itertools.product(SHAPES, kinds, out_dtypes):
            config = module.CONFIGS[next(turns) % len(module.CONFIGS)]
            try:
                with patch.object(tuned, "configs", [config]):
                    same, size, finding = compare_launch(wrapper, fmt, kind, shape, dtype)
            except triton.runtime.errors.OutOfResources:
                continue  # the tuner passes over it too
            equal, total = equal + same, total + size
            if finding:
                launch = f"{fmt} {shape} {kind} {dtype} {config.kwargs} warps {config.num_warps}"
                wrong.append(f"{launch}: {finding}")
        found[fmt] = (equal, total, wrong)
    return found


def compare_launch(
    wrapper: Callable[..., Any],
    fmt: str,
    kind: str,
    shape: tuple[int, int, int],
    out_dtype: torch.dtype,
) -> tuple[int, int, str | None]:
    """Equal and all outputs of one launch, and the first difference in the memory of `out`.

    "wide" and "raw" data are stored in every third element of every second row of that memory.
    """
    M, N, K = shape
    stored = "fp32" if fmt == "tf32" else fmt
    options = {"out_dtype": out_dtype, "input_precision": "tf32" if fmt == "tf32" else "ieee"}
    a = as_tensor(operand(kind, stored, 11, (M, K)), stored)
    b = as_tensor(operand(kind, stored, 97, (K, N)), stored)
    rows, columns = (2, 3) if kind in ("wide", "raw") else (1, 1)
    memory = torch.zeros(rows * M, columns * N, dtype=torch.uint8).to(out_dtype)
    on_gpu = memory.cuda()
    wrapper(a.cuda(), b.cuda(), out=on_gpu[::rows, ::columns], **options)
    out = memory[::rows, ::columns]
    run(wrapper, a, b, target="sm_90", kwargs={"out": out, **options})
    got, expected = as_array(on_gpu.cpu()), as_array(memory)
    differs = bits(got) != bits(expected)
    count = int(differs[::rows, ::columns].sum())
    if not differs.any():
        return M * N, M * N, None
    i, j = np.argwhere(differs)[0]
    where = f"{count} differ, memory[{i}, {j}] where out is memory[::{rows}, ::{columns}]"
    return M * N - count, M * N, f"{where}: got {got[i, j]}, expected {expected[i, j]}"

"""Drift of kernels launched on a GPU, beside that of the same kernels on the simulator."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scripts.evidence import run_each, write_json
from tests.support import drift_kernels

from gemmproof import kernels
from gemmproof.engine.drift import Product, drift, launch_product, simulate_product
from gemmproof.reference.arithmetic.conversions import Array, bits

#: Formats of our kernels; every configuration of each is compiled.
OURS = {
    "matmul": ("fp16", "fp32", "fp8e4m3"),
    "matmul_grouped": ("bf16",),
    "matmul_swizzled": ("fp16",),
    "matmul_persistent": ("fp8e5m2",),
}
#: Formats of each drift kernel.
THEIRS = {
    "passed": ("fp16", "bf16", "fp8e4m3"),
    "added": ("fp16", "fp8e4m3"),
    "ieee": ("fp32",),
    "tf32": ("fp32",),
    "half": ("fp16",),
    "rounded_to_bf16": ("bf16",),
    "rounded_to_fp16": ("fp16",),
    "fp8_unpromoted": ("fp8e4m3", "fp8e5m2"),
    "fp8_promoted_128": ("fp8e4m3", "fp8e5m2"),
    "fp8_promoted_32": ("fp8e4m3", "fp8e5m2"),
    "split_in_fp16": ("fp16",),
    "split_in_fp32": ("fp16",),
    "interleaved_in_fp16": ("fp16",),
    "truncating": ("bf16",),
}
#: Kernels whose programs add to c in any order: their bits are not promised.
ATOMIC = ("split_in_fp16", "split_in_fp32", "interleaved_in_fp16")


def compare_drift(target: str, sizes: tuple[int, ...], jobs: int, report: Path | None) -> int:
    """Drift of our kernels and of tests/support/drift_kernels.py, launched and simulated.

    Each kernel is probed and measured twice by the same code, on the GPU and for the target. Prints
    both accumulators and the share of equal bits of the measured results. Exit 0 when every
    accumulator is the same and every bit is equal, 1 otherwise. Autotuned kernels are simulated in
    the configuration that was launched; the bits of atomic additions are not compared.
    tests/witnesses/recorded/drift_h200.json holds the accumulators of such a report.
    """
    tasks = [
        (module.__name__, name, fmt, target, sizes)
        for module, found in ((kernels, OURS), (drift_kernels, THEIRS))
        for name, formats in found.items()
        for fmt in formats
    ]
    rows = []
    for row in run_each(compare, tasks, jobs):
        rows.append(row)
        print(describe(row), flush=True)
    write_json(report, kernels=rows)
    right = [row for row in rows if row["same"] and row["equal"] == row["outputs"]]
    device = torch.cuda.get_device_name()
    print(f"{device}: {len(right)} of {len(rows)} as predicted, bit for bit")
    return int(len(right) != len(rows))


def compare(
    module: str, name: str, fmt: str, target: str, sizes: tuple[int, ...]
) -> dict[str, Any]:
    """One kernel in one format, on the device and on the tile simulator."""
    function = getattr(import_module(module), name)
    row = {"kernel": name, "format": fmt, "same": False, "equal": 0, "outputs": 1}
    tuned = getattr(sys.modules.get(f"{module}.{name}"), f"{name}_kernel", None)
    chosen: dict[int, int] = {}

    def on_device(a: Array, b: Array) -> Array:
        c = launch_product(function, fmt)(a, b)
        if tuned is not None:
            chosen[a.shape[1]] = tuned.configs.index(tuned.best_config)
        return c

    def on_simulator(a: Array, b: Array) -> Array:
        return simulate_product(function, fmt, target, chosen.get(a.shape[1], 0))(a, b)

    reports, results = [], []
    for product, gpu in ((on_device, torch.cuda.get_device_name()), (on_simulator, target)):
        kept: dict[int, Array] = {}
        try:
            report = drift(
                _keep_results(product, kept, sizes), fmt, sizes=sizes, name=name, gpu=gpu
            )
        except Exception as error:
            return {**row, "error": f"{gpu}: {type(error).__name__}: {str(error)[:200]}"}
        reports.append(report)
        results.append(kept)
    on_gpu, predicted = (json.loads(report.to_json()) for report in reports)
    pairs = [(bits(c), bits(results[1][K])) for K, c in results[0].items() if name not in ATOMIC]
    return {
        **row,
        "configs": chosen,
        "same": on_gpu["drift"]["accumulator"] == predicted["drift"]["accumulator"],
        "equal": sum(int((x == y).sum()) for x, y in pairs),
        "outputs": sum(x.size for x, _ in pairs),
        "accumulator": on_gpu["drift"]["accumulator"],
        "launched": on_gpu,
        "simulated": predicted,
    }


def describe(row: dict[str, Any]) -> str:
    """One line, two more where the accumulators differ."""
    head = f"{row['kernel']:20} {row['format']:8}"
    if "error" in row:
        return f"{head} {row['error']}"
    ours, theirs = row["launched"], row["simulated"]
    share = (
        f"{row['equal']}/{row['outputs']} bits"
        if row["equal"] < row["outputs"]
        else f"all {row['outputs']} bits"
    )
    seconds = f"{ours['seconds']:.1f} s, simulated {theirs['seconds']:.1f} s"
    found, theirs_found = ours["drift"]["accumulator"], theirs["drift"]["accumulator"]
    line = f"{head} {ours['verdict']}: {found and found['name']}; {share} equal; {seconds}"
    if row["same"]:
        return line
    return f"{line}\n    launched  {found}\n    simulated {theirs_found}"


def _keep_results(product: Product, kept: dict[int, Array], sizes: Iterable[int]) -> Product:
    """The product; its last result of each K, which is the measured one, is kept."""

    def keeping(a: Array, b: Array) -> Array:
        c = product(a, b)
        if a.shape[1] in sizes:
            kept[a.shape[1]] = np.ascontiguousarray(c)
        return c

    return keeping

"""Drift of our kernels and of tests/drift_kernels.py, launched on this machine's GPU.

    python scripts/gpu_drift.py [--target sm_90] [--json FILE] [--K 512..16384] [--jobs 8]

Each kernel is probed and measured twice by the same code, launched and simulated for the target.
Prints both accumulators and the share of equal bits of the measured results. Exit 0 when every
accumulator is the same and every bit is equal, 1 otherwise. Autotuned kernels are simulated in the
configuration that was launched; the bits of atomic additions are not compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests import drift_kernels

from gemmproof import kernels
from gemmproof.cli import _sizes
from gemmproof.drift import Product, drift, launched, simulated
from gemmproof.reference.formats import Array, bits

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--K", dest="sizes", type=_sizes, default="512..16384")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    found = [(kernels.__name__, name, fmt) for name, formats in OURS.items() for fmt in formats]
    found += [(drift_kernels.__name__, name, fmt) for name, f in THEIRS.items() for fmt in f]
    rows = []
    # a process each: compilation dominates, and no process waits for another's kernels
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        asked = [pool.submit(one, *key, options.target, options.sizes) for key in found]
        for future in asked:
            rows.append(future.result())
            print(shown(rows[-1]), flush=True)
    device = torch.cuda.get_device_name()
    if options.json:
        report = {"device": device, "torch": torch.__version__, "kernels": rows}
        options.json.write_text(json.dumps(report, indent=1))
    right = [row for row in rows if row["same"] and row["equal"] == row["outputs"]]
    print(f"{device}: {len(right)} of {len(rows)} as predicted, bit for bit")
    return int(len(right) != len(rows))


def one(module: str, name: str, fmt: str, target: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """One kernel in one format, on the device and on the tile simulator."""
    function = getattr(import_module(module), name)
    row = {"kernel": name, "format": fmt, "same": False, "equal": 0, "outputs": 1}
    tuned = getattr(sys.modules.get(f"{module}.{name}"), f"{name}_kernel", None)
    chosen: dict[int, int] = {}

    def on_device(a: Array, b: Array) -> Array:
        c = launched(function, fmt)(a, b)
        if tuned is not None:
            chosen[a.shape[1]] = tuned.configs.index(tuned.best_config)
        return c

    def on_machine(a: Array, b: Array) -> Array:
        return simulated(function, fmt, target, chosen.get(a.shape[1], 0))(a, b)

    reports, results = [], []
    for product, gpu in ((on_device, torch.cuda.get_device_name()), (on_machine, target)):
        kept: dict[int, Array] = {}
        try:
            report = drift(_kept(product, kept, sizes), fmt, sizes=sizes, name=name, gpu=gpu)
        except Exception as error:
            return {**row, "error": f"{gpu}: {type(error).__name__}: {str(error)[:200]}"}
        reports.append(report)
        results.append(kept)
    on_gpu, predicted = reports
    pairs = [(bits(c), bits(results[1][K])) for K, c in results[0].items() if name not in ATOMIC]
    return {
        **row,
        "configs": chosen,
        "same": on_gpu.accumulator == predicted.accumulator,
        "equal": sum(int((x == y).sum()) for x, y in pairs),
        "outputs": sum(x.size for x, _ in pairs),
        "launched": json.loads(on_gpu.to_json()),
        "simulated": json.loads(predicted.to_json()),
    }


def shown(row: dict[str, Any]) -> str:
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
    found = ours["accumulator"] and ours["accumulator"]["name"]
    line = f"{head} {ours['verdict']}: {found}; {share} equal; {seconds}"
    if row["same"]:
        return line
    return f"{line}\n    launched  {ours['accumulator']}\n    simulated {theirs['accumulator']}"


def _kept(product: Product, kept: dict[int, Array], sizes: tuple[int, ...]) -> Product:
    """The product; its last result of each K, which is the measured one, is kept."""

    def keeping(a: Array, b: Array) -> Array:
        c = product(a, b)
        if a.shape[1] in sizes:
            kept[a.shape[1]] = np.ascontiguousarray(c)
        return c

    return keeping


if __name__ == "__main__":
    sys.exit(main())

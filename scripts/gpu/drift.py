"""Drift of kernels launched on a GPU, compared with the same kernels on the simulator."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import torch
from scripts.docs.tensor_cores import SIZES
from scripts.gpu.evidence import Row, collect, run_each

from gemmproof.drift.run import drift, launch_product, simulate_product
from gemmproof.properties.codec import encode
from gemmproof.reference.arithmetic import Array, bits

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
    return collect(run_each(compare, tasks, jobs), describe, report)


def compare(module: str, name: str, fmt: str, target: str) -> Row:
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


def describe(row: Row) -> str:
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

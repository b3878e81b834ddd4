"""The requests of the command, and the workers that compile for each target."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import product

from gemmproof.compiled.run import WorkerResults, compile_in_worker
from gemmproof.lowering.record import USUAL_WARPS, Dot, is_fp32, sums_of
from gemmproof.properties.codec import encode
from gemmproof.reference.formats import FP8
from gemmproof.reference.gpus import DEFAULT, GPUS
from gemmproof.worker.protocol import Listener, Request
from gemmproof.worker.supervisor import Limits, open_pool

# -- request -------------------------------------------------------------------------------------
# the functions that compile in a worker
LAUNCHES = "gemmproof.lowering.task:compile_launches"
SWEEP = "gemmproof.lowering.task:compile_sweep"
DOTS = "gemmproof.lowering.task:compile_dots"
#: Options of a kernel, by their usual values, and those of a dot: they exclude each other.
OF_A_KERNEL: dict[str, object] = {
    "kernel": None, "sizes": {}, "case": None, "batched": False, "config": "first",
    "sweep": False, "operand": [], "spec": None, "call": None,
}  # fmt: skip
OF_A_DOT = {
    "warps": None, "stages": None, "precision": None, "acc": None, "max_num_imprecise_acc": None,
}  # fmt: skip


def ask_preview(options: argparse.Namespace) -> Request:
    """Make the workers' request. Raises ValueError, in one line, for conflicting options."""
    if options.target is not None:
        got = f"{options.target!r} and --dot"
        raise ValueError(f"target: got {got}, expected one of them")
    for name, usual in OF_A_KERNEL.items():
        if getattr(options, name) != usual:
            raise ValueError(f"--{name}: got it with --dot, expected it with TARGET")
    for name, layout in options.layouts.items():
        if layout not in ("row", "column"):
            raise ValueError(f"--layouts: got {name}={layout} with --dot, expected row or column")
    tile = tuple(options.dot)
    formats = dict.fromkeys(options.dtype or ["fp16"])
    for dtype in formats:
        sums = sums_of(dtype)
        if options.acc and options.acc not in sums:
            expected = " or ".join(sums)
            raise ValueError(f"--acc: got {options.acc} for {dtype}, expected {expected}")
        if options.precision and not is_fp32(dtype):
            got = f"{options.precision} for {dtype}"
            raise ValueError(f"--precision: got {got}, expected it for fp32 alone")
    if options.max_num_imprecise_acc is not None:
        _require_promotion(options, formats)
    dots = [
        Dot(
            tile,
            dtype,
            warps,
            options.stages,
            options.precision or ("tf32" if dtype == "tf32" else None),
            options.acc,
            options.max_num_imprecise_acc,
            **options.layouts,
        )
        for dtype, warps in product(formats, dict.fromkeys(options.warps or [USUAL_WARPS]))
    ]
    name = f"dot {'x'.join(map(str, tile))}"
    plan = {"task": DOTS, "dots": encode(dots), "remedies": True}
    return Request(ask="compile", name=name, plan=plan)


def _require_promotion(options: argparse.Namespace, formats: Iterable[str]) -> None:
    """Refuse max_num_imprecise_acc where Triton ignores or refuses it.

    Only wgmma of fp8 onto fp32 is promoted; a test compiles the others with it and without.
    """
    value, most = options.max_num_imprecise_acc, options.dot[2]
    name = f"--max-num-imprecise-acc: got {value}"
    for dtype in formats:
        if dtype not in FP8:
            raise ValueError(f"{name} for {dtype}, expected it for {' or '.join(FP8)} alone")
    if options.acc == "fp16":
        raise ValueError(f"{name} for sums of fp16, expected it for those of fp32 alone")
    for gpu in options.gpus or [DEFAULT]:
        if GPUS[gpu].core("wgmma") is None:
            gpus = " or ".join(x.name for x in GPUS.values() if x.core("wgmma"))
            raise ValueError(f"{name} for {gpu}, expected it for {gpus} alone, which has wgmma")
    if value > most:
        raise ValueError(f"{name}, expected at most K = {most}")


def refuse_without_dot(options: argparse.Namespace) -> None:
    """Raise ValueError, in one line, for an option that only --dot has."""
    for name, usual in OF_A_DOT.items():
        if getattr(options, name) != usual:
            option = name.replace("_", "-")
            raise ValueError(f"--{option}: got it without --dot, expected it with --dot M N K")


# -- workers -------------------------------------------------------------------------------------
Follow = Callable[[str], AbstractContextManager[Listener]]


def lower(
    request: Request, gpus: Sequence[str], limits: Limits, follow: Follow, jobs: int = 1
) -> list[WorkerResults]:
    """Compile the launches of the request's kernel on each GPU, with a result per GPU in order."""

    def lower_one(gpu: str) -> WorkerResults:
        with follow(gpu) as listener:
            return compile_in_worker(replace(request, gpu=gpu), limits, listener)

    with open_pool(jobs) as pool:
        return list(pool.map(lower_one, gpus))

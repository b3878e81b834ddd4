"""The requests of the command, and the results of the workers that compile for each target."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

from gemmproof.compiled.run import WorkerResults, compile_in_worker
from gemmproof.reference.formats import FNUZ, FORMATS, FP8, OPERANDS
from gemmproof.reference.gpus import DEFAULT, GPUS
from gemmproof.worker.protocol import Listener, Request
from gemmproof.worker.supervisor import Limits, open_pool

# -- dot -----------------------------------------------------------------------------------------
PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
#: Formats of a and b: those of a contract, and the others that tl.dot takes.
PREVIEWED = (*OPERANDS, "fp64", *(fmt.name for fmt in FNUZ[:2]))
ENOUGH = 64  # elements of a side: every tensor core instruction has a tile that is no larger
USUAL_WARPS = 4
WARPS = (1, 2, 4, 8, 16, 32)  # of a block: powers of two, as Triton requires


@dataclass(frozen=True, slots=True)
class Dot:
    """acc = tl.dot(a, b, acc) of a tile (M, N, K) in a loop.

    `accumulator` is the format of acc; `precision` and `imprecise` are the options for fp32
    operands and for fp8 sums (input_precision, max_num_imprecise_acc), None if absent. `a` and `b`
    are "row" or "column". Without `stages` it has as many as the target's backend gives.
    """

    tile: tuple[int, int, int]
    dtype: str = "fp16"
    warps: int = USUAL_WARPS
    stages: int | None = None
    precision: str | None = None
    acc: str | None = None
    imprecise: int | None = None
    a: str = "row"
    b: str = "row"

    @property
    def accumulator(self) -> str:
        """The format of the sums: `acc`, or the usual one."""
        return self.acc or sums_of(self.dtype)[0]


def sums_of(dtype: str) -> tuple[str, ...]:
    """Return the formats that tl.dot adds products of a format in, the usual one first."""
    return FORMATS[dtype].sums if dtype in FORMATS else ("fp32",)


def is_fp32(dtype: str) -> bool:
    """Return whether operands of a format are stored in memory as fp32."""
    return dtype in FORMATS and FORMATS[dtype].stored.name == "fp32"


def list_changes(dot: Dot) -> Iterator[tuple[str, Dot]]:
    """Yield each change that may bring a dot to tensor cores, as text, and the changed dot."""
    if is_fp32(dot.dtype) and dot.precision != "tf32":
        yield "input_precision=tf32", replace(dot, precision="tf32")
    M, N, K = dot.tile
    yield from ((f"M={n}", replace(dot, tile=(n, N, K))) for n in _double(M))
    yield from ((f"N={n}", replace(dot, tile=(M, n, K))) for n in _double(N))
    yield from ((f"K={n}", replace(dot, tile=(M, N, n))) for n in _double(K))
    if dot.warps != USUAL_WARPS:
        yield f"{USUAL_WARPS} warps", replace(dot, warps=USUAL_WARPS)
    if dot.accumulator == "fp16":
        yield "an accumulator of fp32", replace(dot, acc="fp32")


def _double(size: int) -> Iterator[int]:
    while size < ENOUGH:
        size *= 2
        yield size


# -- request -------------------------------------------------------------------------------------
# the functions that compile in a worker
LAUNCHES, SWEEP, DOTS = (
    f"gemmproof.lowering.task:compile_{name}" for name in ("launches", "sweep", "dots")
)
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
    plan = {"task": DOTS, "dots": [asdict(dot) for dot in dots], "remedies": True}
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


# -- results -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Variant:
    """The difference of a swept launch from base number `base` of a format.

    `change` describes it, "" for the base itself. `arguments`: the specialisations that differ,
    before and after. `constants`: constants of the source that differ. `altered`: no case changes
    these alone. `also`: other changes that give this very launch.
    """

    base: int
    change: str = ""
    also: tuple[str, ...] = ()
    altered: bool = False
    arguments: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    constants: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Variant:
        """Rebuild the record that `to_dict` gave, also after JSON."""
        pairs = {name: {k: tuple(x) for k, x in data[name].items()} for name in PAIRS}
        return Variant(**{**data, **pairs, "also": tuple(data["also"])})


PAIRS = ("arguments", "constants")


def format_known(known: str) -> str:
    """Return the text for a specialisation of an argument."""
    return {"": "neither", "16": "divisible by 16", "1": "equal to 1"}[known]


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

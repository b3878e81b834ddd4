"""The records of the command: a requested dot, and the variants of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gemmproof.reference.formats import FNUZ, FORMATS, OPERANDS
from gemmproof.target import KernelRef

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


# -- sweep ---------------------------------------------------------------------------------------
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


def format_known(known: str) -> str:
    """Return the text for a specialisation of an argument."""
    return {"": "neither", "16": "divisible by 16", "1": "equal to 1"}[known]


# -- requests ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """The launches of a kernel that a worker compiles, alone or in a sweep.

    `case` is the JSON of the only case; without it there is one for each format, of `sizes` and
    `layouts` by name. `every` asks for all configurations of a tuner, not only the first.
    """

    kernel: KernelRef
    case: str | None
    sizes: dict[str, int]
    layouts: dict[str, str]
    every: bool
    gpu: str = ""

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name


@dataclass(frozen=True, slots=True)
class DotRequest:
    """The dots that a worker compiles, as `name` in reports.

    `remedies` asks for changes of those that miss the tensor cores.
    """

    name: str
    dots: tuple[Dot, ...]
    remedies: bool
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The variants of a sweep by number, and a line on each change that is not compared."""

    variants: tuple[Variant, ...] = ()
    notes: tuple[str, ...] = ()

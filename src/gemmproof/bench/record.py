"""The records of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gemmproof.bench.problems import Problem
from gemmproof.properties.contract import Contract
from gemmproof.target import Calling, Target

SOURCE = "source of "  # a fact of a benchmark: hashes of the parts that a kernel can reach
FASTER, SLOWER, NOISE = "faster", "slower", "within noise"
CONTROL, WRONG, RIGHT = "control", "wrong", "right"  # RIGHT: verified, and not timed
GRAPH, EAGER = "CUDA graph", "eager calls"
Reading = dict[str, float | str]  # of clocks, temperature and power, by unit, and its source


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of some ratios, and its 95 % interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The rates that this GPU reached in the same run, in a large copy and a large product.

    `copy_bytes` are bytes/s. `product_flops` are FLOP/s, None if torch has no product of the
    format. `peak_bytes` and `peak_flops` are what its clocks and units allow, None if unknown.
    """

    format: str
    copy_bytes: float
    product_flops: float | None
    peak_bytes: float | None = None
    peak_flops: float | None = None


@dataclass(frozen=True, slots=True)
class TimedRow:
    """One kernel on one shape in one format.

    `seconds` and `peer_seconds` are medians over the rounds of one call, `samples` the kernel's
    seconds in each round. `ratio` is the peer's time over the kernel's, so above 1 is faster.
    `floor` is the lowest and the highest ratio of the peer to itself. `roofline` and `ceiling` are
    shares of what the GPU's figures and what its own measured ceiling allow, None if unknown.
    `sets` buffers of `set_bytes` each rotate; `clocks` were read before and after the rounds.
    `wrong` describes in one line what was wrong with the result: then nothing was timed. `operands`
    are the declared ones, by name; `peer_differs` describes in one line where the peer's result
    differs from the formula.
    """

    kernel: str
    peer: str
    format: str
    out_format: str
    shape: str
    M: int
    N: int
    K: int
    batch: int | None
    verdict: str
    how: str = ""
    wrong: str = ""
    seconds: float | None = None
    peer_seconds: float | None = None
    ratio: Interval | None = None
    floor: tuple[float, float] | None = None
    tflops: float | None = None
    gbytes: float | None = None
    roofline: float | None = None
    ceiling: float | None = None
    equal_bits: bool | None = None
    configs: tuple[str, ...] = ()
    sets: int = 0
    set_bytes: int = 0
    l2_bytes: int = 0
    repeats: int = 0
    clocks: dict[str, Reading] = field(default_factory=dict)
    samples: tuple[float, ...] = ()
    operands: dict[str, str] = field(default_factory=dict)
    peer_differs: str = ""

    @property
    def problem(self) -> str:
        """The shape as reports name it."""
        lead = "" if self.batch is None else f"{self.batch}x"
        return f"{self.shape} {lead}{self.M}x{self.N}x{self.K}".strip()


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A run: its environment (`facts`), the ceilings, and a row for each measurement."""

    schema: Literal[1] = field(default=1, kw_only=True)
    facts: dict[str, str]
    ceilings: tuple[Ceiling, ...]
    rows: tuple[TimedRow, ...]


# -- request -------------------------------------------------------------------------------------
ROW = "row"  # a part of a worker's result: a TimedRow


@dataclass(frozen=True, slots=True)
class NamedTarget:
    """A function to time, and its name in reports."""

    target: Target
    name: str


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """The measurement of several functions, against a function or a peer of torch's by name.

    `out` is the format of the results, None for that of the operands; `columns` asks for operands
    that are stored by columns; `rounds` and `settle` are those of bench/run.py.
    """

    targets: tuple[NamedTarget, ...]
    against: NamedTarget | str | None
    contract: Contract
    calling: Calling
    problems: tuple[Problem, ...]
    out: str | None
    columns: bool
    rounds: int
    settle: float

    @property
    def name(self) -> str:
        """The names of the functions."""
        return " ".join(named.name for named in self.targets)

"""The requests of a check: what a worker judges, shrinks and compiles."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.proof import SECONDS
from gemmproof.settings import EXAMPLES
from gemmproof.target import KernelRef


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A check of one kernel.

    `case` is the JSON of the only case, `saved` that of cases to be tried first. `launch` asks for
    launches on this machine's GPU, `limits` for steps beyond the contract, `proof` for a solver's
    proofs in `proof_seconds`, `check_model` for predicted launches to be compiled as well.
    `engine` is the "module:function" that judges the kernel, "" for that of entry_points.py.
    """

    kernel: KernelRef
    max_examples: int = EXAMPLES
    seed: int = 0
    gpu: str | None = None
    case: str | None = None
    saved: tuple[str, ...] = ()
    launch: bool = False
    limits: bool = False
    proof: bool = False
    proof_seconds: float = SECONDS
    check_model: bool = False
    engine: str = ""

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name


@dataclass(frozen=True, slots=True)
class ShrinkRequest:
    """A search for the smallest case that crashes a worker as `case` did.

    A candidate may hold `memory` bytes.
    """

    kernel: KernelRef
    case: str
    memory: int
    gpu: str | None
    engine: str


@dataclass(frozen=True, slots=True)
class CasesRequest:
    """Cases of one kernel, judged in one worker, one after another.

    `pipe` is the path of a named pipe, on which the requests come, a line each: the JSON of a case,
    SURVEY or END.
    """

    kernel: KernelRef
    gpu: str | None
    pipe: str


@dataclass(frozen=True, slots=True)
class JudgedCase:
    """The findings on one case by every property that applies, and the error ratios by property.

    If nothing is known about the case, `unknown` is the reason; `case` is None if no case ran.
    `launches` is the number of kernels that it launched.
    """

    case: Case | None
    findings: tuple[Finding, ...] = ()
    ratios: dict[str, float] = field(default_factory=dict)
    unknown: str | None = None
    launches: int = 0


@dataclass(frozen=True, slots=True)
class GuaranteeRequest:
    """The compilation of every launch of a kernel, for `gpu` or the GPUs of its contract.

    `case` is the JSON of the only case; None for those that a check of `max_examples` covers.
    """

    kernel: KernelRef
    gpu: str | None
    case: str | None
    max_examples: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name


@dataclass(frozen=True, slots=True)
class Guarantees:
    """The guarantees about compiled code that a kernel's contract gives, sent before any case.

    `names` are properties, `expected` the reasons why some are known to fail.
    """

    names: tuple[str, ...]
    gpus: tuple[str, ...]
    expected: dict[str, str]


@dataclass(frozen=True, slots=True)
class SavedTried:
    """The saved cases that were tried: how many, and the JSON of those to be dropped."""

    tried: int
    dropped: tuple[str, ...]


# the parts of a check's result that a worker sends before it returns
IDENTITY, GUARANTEES, SAVED, PRINTED = "identity", "guarantees", "saved", "printed"
# the answers to the requests of a CasesRequest, and the request that ends it
CASE, SURVEY, END = "case", "survey", "end"

"""The record of a sign-off, and its seal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gemmproof.report.record import Report
from gemmproof.report.text import Reproduce, document

# -- seal ----------------------------------------------------------------------------------------
FIELD = "hash"
TIMES = "seconds"  # no input and no result: two runs that agree in all else have one hash


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its hash, in place of any that it has."""
    return {**document, FIELD: find_hash(document)}


def is_sealed(document: dict[str, Any]) -> bool:
    """Whether the hash is that of what the document says."""
    return document.get(FIELD) == find_hash(document)


def find_hash(document: dict[str, Any]) -> str:
    """The SHA-256 of the document as canonical JSON: keys sorted, no spaces, ASCII."""
    said = {name: value for name, value in document.items() if name != FIELD}
    text = json.dumps(_plain(said), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items() if name != TIMES}
    return [_plain(x) for x in value] if isinstance(value, list | tuple) else value


# -- record --------------------------------------------------------------------------------------
SIGNOFF_SCHEMA = 3  # 2 had neither facts of the kernels nor a hash
SIGNED, REFUSED, INCOMPLETE = VERDICTS = ("signed off", "refused", "incomplete")
GRAVEST = (REFUSED, INCOMPLETE, SIGNED)
NOT_MEASURED, NOT_RUN = "not measured", "not run"
ACCUMULATOR = "accumulator_as_declared"  # properties/judges/accumulator_drift.py brings numpy


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a sign-off is not, or what it does not cover: `weight` is the verdict that it asks for.

    `kind` is a word of `--accept` for what a baseline shows; else "finding", "error" and the like.
    `accepted`: it was there, and was accepted.
    """

    kernel: str
    kind: str
    weight: str
    text: str
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Ratios:
    """How fast a kernel was in one format: the peer's time over its own, above 1 is faster.

    `products` were timed; `mean` is the geometric mean of their ratios.
    """

    format: str
    peer: str
    products: int
    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What `gemmproof bench` measured of a kernel, and on what."""

    device: str
    date: str
    ratios: tuple[Ratios, ...]

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Benchmark:
        """The benchmark that `asdict` and JSON made plain."""
        ratios = tuple(Ratios(**one) for one in data["ratios"])
        return Benchmark(data["device"], data["date"], ratios)


@dataclass(frozen=True, slots=True)
class MutationScore:
    """How many mutants of a kernel's source a check kills; `equivalent` ones are no mutants.

    `unseen` show no difference, and nothing proves that there is none; `tried` were judged, a
    sample of the `of` that there are, or all.
    """

    killed: int
    equivalent: int
    survivors: int
    unseen: int = 0
    tried: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class DriftClass:
    """What the sums of a kernel are in one format, as its results show: `name` is that in words.

    `gpu`: whose dot products were predicted. `is_kept`: whether the sums are as good as `declared`,
    the accumulator of the contract. `keeps`: the bits that a contract may promise of them; `reads`:
    the significant bits of the operands that count; `truncated`: whether c is. Where nothing was
    measured `name` is "" and `why` says why; it is `missed` where there was something to measure.
    """

    format: str
    gpu: str = ""
    declared: str = ""
    name: str = ""
    is_kept: bool = False
    keeps: int = 0
    reads: int = 0
    truncated: bool = False
    why: str = ""
    missed: bool = False


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """What is said of one kernel: its report, and what was measured elsewhere.

    `why_not_timed` and `why_not_mutated` say why what was given is not taken. `drift` has a record
    for each format, none where it was not asked for.
    """

    report: Report
    benchmark: Benchmark | None = None
    why_not_timed: str = ""
    mutation: MutationScore | None = None
    why_not_mutated: str = ""
    drift: tuple[DriftClass, ...] = ()

    @property
    def verdict(self) -> str:
        """The kernel by itself, whatever a baseline says."""
        return {"pass": SIGNED, "fail": REFUSED}.get(self.report.verdict, INCOMPLETE)

    @property
    def is_held(self) -> bool:
        """Whether its check held, whatever its drift is: that is measured of no other kernel."""
        return self.report.verdict == "pass" or any(one.name or one.missed for one in self.drift)

    @property
    def source(self) -> str:
        """The hash of what was judged, "" where it is not known."""
        return "" if self.report.facts is None else self.report.facts.digest

    def to_dict(self, verdict: str) -> dict[str, Any]:
        """What stands beside the report in JSON."""
        measured = {"benchmark": self.benchmark, "mutation": self.mutation}
        said = {n: NOT_MEASURED if x is None else asdict(x) for n, x in measured.items()}
        ran = [p for p in self.report.properties if p.backend == "cuda" and p.status != NOT_RUN]
        return {
            "verdict": verdict,
            "source": self.source,
            "gpu": {p.name: p.examples for p in ran} or NOT_RUN,
            "drift": [asdict(one) for one in self.drift] or NOT_MEASURED,
            **said,
            "why_not_timed": self.why_not_timed,
            "why_not_mutated": self.why_not_mutated,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> KernelRecord:
        """The record that a sign-off's JSON holds. Raises what malformed data make Python raise."""
        own = data["signoff"]
        said = {name: x for name, x in data.items() if name != "signoff"}
        for found in ("findings", "expected"):
            said[found] = [
                {name: x for name, x in one.items() if name != "reproduce"} for one in data[found]
            ]
        mutation, benchmark = (
            None if own[name] == NOT_MEASURED else own[name] for name in ("mutation", "benchmark")
        )
        return KernelRecord(
            Report.from_dict(said),
            None if benchmark is None else Benchmark.from_dict(benchmark),
            own["why_not_timed"],
            None if mutation is None else MutationScore(**mutation),
            own["why_not_mutated"],
            () if own["drift"] == NOT_MEASURED else tuple(DriftClass(**x) for x in own["drift"]),
        )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was asked of the check of every kernel; `case` is the only one judged, if it is one."""

    target: str | None
    device: str
    seed: int
    max_examples: int
    proof: bool
    case: str | None = None
    kernels: tuple[str, ...] = ()  # the only ones that were asked for, none for all

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Inputs:
        """The inputs that `asdict` and JSON made plain."""
        return Inputs(**{**data, "kernels": tuple(data["kernels"])})


@dataclass(frozen=True, slots=True)
class Signoff:
    """The sign-off of some kernels; `verdict` is one of VERDICTS, `code` names its exit code.

    `changes` are what is different from a baseline, whose hash is `baseline`, None without one.
    """

    verdict: str
    code: str
    inputs: Inputs
    kernels: tuple[KernelRecord, ...]
    left_out: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    changes: tuple[Reason, ...] = ()
    baseline: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hash: str = ""

    @property
    def told(self) -> tuple[Reason, ...]:
        """The changes that are no reasons."""
        return tuple(one for one in self.changes if one.weight == SIGNED)

    def judge(self, kernel: KernelRecord) -> str:
        """The verdict on one kernel, what a baseline says of it included."""
        name = kernel.report.target
        found = {weigh(one) for one in self.reasons if one.kernel == name} | {kernel.verdict}
        return next(v for v in GRAVEST if v in found)

    def to_dict(self, reproduce: dict[str, Reproduce]) -> dict[str, Any]:
        """The JSON document, sealed; `reproduce` is looked up by a kernel's name."""
        kernels = [
            {**document(k.report, reproduce[k.report.target]), "signoff": k.to_dict(self.judge(k))}
            for k in self.kernels
        ]
        said = {
            "schema": SIGNOFF_SCHEMA,
            "verdict": self.code,
            "signoff": self.verdict,
            "reasons": _list(self.reasons),
            "changes": _list(self.changes),
            "baseline": self.baseline,
            "inputs": asdict(self.inputs),
            "versions": self.versions,
            "kernels": kernels,
            "left_out": list(self.left_out),
        }
        return seal(said)

    def with_hash(self, document: dict[str, Any]) -> Signoff:
        """The same with the hash that its JSON bears, for pages that name it."""
        return replace(self, hash=document[FIELD])

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Signoff:
        """The sign-off of a JSON document. Raises what malformed data make Python raise."""
        return Signoff(
            data["signoff"],
            data["verdict"],
            Inputs.from_dict(data["inputs"]),
            tuple(KernelRecord.from_dict(one) for one in data["kernels"]),
            tuple(data["left_out"]),
            tuple(Reason(**one) for one in data["reasons"]),
            tuple(Reason(**one) for one in data["changes"]),
            data["baseline"],
            dict(data["versions"]),
            data[FIELD],
        )


def list_accepting(reason: Reason) -> tuple[str, str]:
    """The words of --accept that accept it."""
    return reason.kind, f"{reason.kind}:{reason.kernel}"


def weigh(reason: Reason) -> str:
    """What a reason weighs, once it is accepted or not."""
    return SIGNED if reason.accepted else reason.weight


def _list(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    return [asdict(one) for one in reasons]

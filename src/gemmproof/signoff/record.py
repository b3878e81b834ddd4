"""The record of a sign-off, and its seal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gemmproof.properties.codec import (
    Describe,
    Json,
    decode_fields,
    describe_fields,
    describe_object,
    encode,
)
from gemmproof.report.record import UNJUDGED, Report, Verdict
from gemmproof.report.text import Reproduce, add_commands

# -- seal ----------------------------------------------------------------------------------------
FIELD = "hash"
TIMES = "seconds"  # neither input nor result: two runs that agree in all else have one hash


def seal(document: Mapping[str, object]) -> dict[str, object]:
    """Return the document with its hash, replacing any that it has."""
    return {**document, FIELD: find_hash(document)}


def is_sealed(document: Mapping[str, object]) -> bool:
    """Return whether the hash is that of the document's content."""
    return document.get(FIELD) == find_hash(document)


def find_hash(document: Mapping[str, object]) -> str:
    """Return the SHA-256 of the document as canonical JSON: keys sorted, no spaces, ASCII."""
    content = {name: value for name, value in document.items() if name != FIELD}
    text = json.dumps(_plain(content), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(x) for name, x in value.items() if name != TIMES}
    return [_plain(x) for x in value] if isinstance(value, list | tuple) else value


# -- record --------------------------------------------------------------------------------------
SIGNOFF_SCHEMA = 4
SHARED = ("reasons", "changes", "baseline", "inputs", "versions", "left_out")
SIGNED, REFUSED, INCOMPLETE = VERDICTS = ("signed off", "refused", "incomplete")
GRAVEST = (REFUSED, INCOMPLETE, SIGNED)
NOT_MEASURED = "not measured"
ACCUMULATOR = "accumulator_as_declared"  # properties/judges/accumulator_drift.py imports numpy


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason against a sign-off, or a gap in it: `weight` is the verdict that it asks for.

    `kind` is a value of `--accept` for a change from a baseline; else "finding", "error" and the
    like. `accepted`: it occurred, and was accepted.
    """

    kernel: str
    kind: str
    weight: str
    text: str
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Ratios:
    """The speed of a kernel in one format: the peer's time over its own, above 1 is faster.

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
    """The measurements of a kernel by `gemmproof bench`, and their device."""

    device: str
    date: str
    ratios: tuple[Ratios, ...]


@dataclass(frozen=True, slots=True)
class MutationScore:
    """The mutants of a kernel's source that a check kills; `equivalent` ones are no mutants.

    `unseen` show no difference, without a proof that there is none; `tried` were judged, a sample
    of the `of` that exist, or all.
    """

    killed: int
    equivalent: int
    survivors: int
    unseen: int = 0
    tried: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class DriftClass:
    """The class of a kernel's sums in one format, as its results show: `name` is its description.

    `gpu`: whose dot products were predicted. `is_kept`: whether the sums are as good as `declared`,
    the accumulator of the contract. `keeps`: the bits that a contract may guarantee; `reads`: the
    significant bits of the operands that count; `truncated`: whether c is. If nothing was measured,
    `name` is "" and `why` the reason; it is `missed` if there was something to measure.
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
    """The record of one kernel: its report, and the measurements of other commands.

    `why_not_timed` and `why_not_mutated` are the reasons why measurements do not count. `drift` has
    a record for each format, none if it was not requested.
    """

    report: Report
    benchmark: Benchmark | None = None
    why_not_timed: str = ""
    mutation: MutationScore | None = None
    why_not_mutated: str = ""
    drift: tuple[DriftClass, ...] = ()
    derived: ClassVar[tuple[str, ...]] = ("source", "gpu")

    @property
    def verdict(self) -> str:
        """The verdict on the kernel alone, without a baseline."""
        return {"pass": SIGNED, "fail": REFUSED, "draft": REFUSED}.get(
            self.report.verdict, INCOMPLETE
        )

    @property
    def is_held(self) -> bool:
        """True if its check held, whatever its drift, which is measured of no other kernel."""
        return self.report.verdict == "pass" or any(
            drift.name or drift.missed for drift in self.drift
        )

    @property
    def source(self) -> str:
        """The hash of the judged source, "" if it is not known."""
        return "" if self.report.identity is None else self.report.identity.digest

    @property
    def gpu(self) -> dict[str, int]:
        """The number of launched cases by property."""
        ran = (
            p for p in self.report.properties if p.backend == "cuda" and p.status not in UNJUDGED
        )
        return {p.name: p.examples for p in ran}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of the check of every kernel; `case` is the only one judged, if it is set."""

    target: str | None
    device: str
    seed: int
    max_examples: int
    proof: bool
    case: str | None = None
    kernels: tuple[str, ...] = ()  # the only ones requested, none for all


@dataclass(frozen=True, slots=True)
class Signoff:
    """The sign-off of some kernels; `verdict` is one of VERDICTS, `code` names its exit code.

    `changes` are the differences from a baseline, whose hash is `baseline`, None without one.
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
    def notes(self) -> tuple[Reason, ...]:
        """The changes that are no reasons for a verdict."""
        return tuple(change for change in self.changes if change.weight == SIGNED)

    def judge(self, kernel: KernelRecord) -> str:
        """Return the verdict on one kernel, its changes from a baseline included."""
        name = kernel.report.target
        weights = {weigh(reason) for reason in self.reasons if reason.kernel == name} | {
            kernel.verdict
        }
        return next(v for v in GRAVEST if v in weights)

    def to_dict(self, reproduce: dict[str, Reproduce]) -> dict[str, object]:
        """Return the sealed JSON document; `reproduce` is looked up by a kernel's name.

        What is known of a kernel beside its report is `signoff` in that report.
        """
        kernels = []
        for kernel in self.kernels:
            own = {"verdict": self.judge(kernel), **encode(kernel)}
            del own["report"]
            report = add_commands(kernel.report, reproduce[kernel.report.target])
            kernels.append({**encode(report), "signoff": own})
        content = {"schema": SIGNOFF_SCHEMA, "verdict": self.code, "signoff": self.verdict}
        content |= {name: encode(getattr(self, name)) for name in SHARED} | {"kernels": kernels}
        return seal(content)

    def with_hash(self, document: Mapping[str, object]) -> Signoff:
        """Return the sign-off with the hash of its JSON, for pages that show it."""
        return replace(self, hash=str(document[FIELD]))

    @staticmethod
    def json_schema(describe: Describe) -> Json:
        """Return the JSON Schema of what `to_dict` gives."""
        own = {"verdict": {"enum": list(VERDICTS)}, **describe_fields(KernelRecord, describe)}
        del own["report"]
        kernel = {**describe_fields(Report, describe), "signoff": describe_object(own)}
        parts = describe_fields(Signoff, describe)
        content = {
            "schema": {"enum": [SIGNOFF_SCHEMA]},
            "verdict": describe(Verdict),
            "signoff": {"enum": list(VERDICTS)},
            **{name: parts[name] for name in SHARED},
            "kernels": {"type": "array", "items": describe_object(kernel)},
            FIELD: {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        }
        return describe_object(content)

    @staticmethod
    def from_dict(data: Json) -> Signoff:
        """Return the sign-off of a JSON document. Raises ValueError naming the invalid field."""
        shared = {name: data.get(name) for name in SHARED}
        content = {"verdict": data.get("signoff"), "code": data.get("verdict"), "hash": data[FIELD]}
        kernels = [_join_report(kernel) for kernel in data["kernels"]]
        return decode_fields(Signoff, {**content, **shared, "kernels": kernels}, "signoff")


def _join_report(data: Json) -> Json:
    """Return the fields of a KernelRecord, from a report that contains the others."""
    own = {name: x for name, x in data["signoff"].items() if name != "verdict"}
    return {**own, "report": {name: x for name, x in data.items() if name != "signoff"}}


def list_accepting(reason: Reason) -> tuple[str, str]:
    """Return the values of --accept that accept it."""
    return reason.kind, f"{reason.kind}:{reason.kernel}"


def weigh(reason: Reason) -> str:
    """Return the weight of a reason, which is SIGNED once it is accepted."""
    return SIGNED if reason.accepted else reason.weight

"""The outcome of a check as records, and their JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from typing import TYPE_CHECKING, Any

from gemmproof.lowering.premise.record import Premises
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.report.facts import Coverage, Identity

if TYPE_CHECKING:
    from gemmproof.properties.judges.accumulator_drift import Drift

SCHEMA = 2
PACKAGES = ("gemmproof", "triton", "torch", "numpy", "ml_dtypes")
# The verdicts, each with the exit code of a command.
EXIT = {"pass": 0, "fail": 1, "error": 2, "incomplete": 3}
GRAVEST_FIRST = ("fail", "error", "incomplete", "pass")


@dataclass(frozen=True, slots=True)
class ProofResult:
    """What a solver says of a property: `status` is "proved", "refuted" or "not decided".

    `scope` says where it is proved ("every M, N, K, any strides"), `why` what was refuted, or the
    reason for which nothing was decided; `cut` is "time" or "death" where only that is the reason.
    """

    status: str
    scope: str = ""
    why: str = ""
    cut: str = ""


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """What became of one property: `status` is "pass", "fail", "expected" or "not run".

    `reason` is why it is expected to fail, None where it is not; it is "expected" where it does.
    `examples` is how many cases it judged; `ratio` the largest error over its bound, None where the
    property has no bound. `backend` is "simulator", "cuda" for what was launched, or "compiler" for
    what launches were compiled to: then those are counted. `proof` is what was decided for every
    size, None where that was not tried; `status` is that of the cases.
    """

    name: str
    claim: str
    status: str
    examples: int
    ratio: float | None = None
    backend: str = "simulator"
    proof: ProofResult | None = None
    reason: str | None = None

    @property
    def label(self) -> str:
        """The name, with the backend where that is a GPU: others have it as well."""
        return f"{self.name} on {self.backend}" if self.backend == "cuda" else self.name

    @property
    def is_proved(self) -> bool:
        """Whether it holds for every size, and no case says otherwise."""
        held = self.status not in ("fail", "expected")
        return held and self.proof is not None and self.proof.status == "proved"

    @property
    def is_disputed(self) -> bool:
        """Whether it is refuted, and no case shows that: an error of gemmproof's own."""
        held = self.status not in ("fail", "expected")
        return held and self.proof is not None and self.proof.status == "refuted"

    @staticmethod
    def from_dict(data: Any) -> PropertyResult:
        """The result that `asdict` gave. Raises ValueError naming what is wrong."""
        _require_fields("property", data, PropertyResult)
        proof = data["proof"]
        if proof is not None:
            _require_fields("proof", proof, ProofResult, {"cut"})  # which older reports lack
            proof = ProofResult(**proof)
        return PropertyResult(**{**data, "proof": proof})


@dataclass(frozen=True, slots=True)
class Limit:
    """What a kernel does one step beyond its contract; `option` turns that into a promise.

    `status` is "holds", "limit" (`message` says what happens at `case`), "not tried" (why), or
    "needed": a narrower promise, of a kernel that breaks its contract. `proof`: where exactly it
    begins, in words, or "" where no solver decided that.
    """

    name: str
    option: str
    status: str
    message: str = ""
    case: Case | None = None
    proof: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        case = None if self.case is None else self.case.to_dict()
        return {name: getattr(self, name) for name in self.__slots__} | {"case": case}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Limit:
        """The limit that `to_dict` gave."""
        case = None if data["case"] is None else Case.from_dict(data["case"])
        return Limit(**{**data, "case": case})


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one check; findings come root causes first, each with its smallest case.

    `target` is the kernel's name (a command puts TARGET there as it was typed). `note` says in one
    line why there was an error, what could not run or what was launched where, None otherwise.
    `versions` are those of the packages involved. `drift` is what `gemmproof drift` found, `limits`
    what lies beyond the contract, where that was tried: they are no findings. `names` is what the
    wrapper calls a and b, where that is known: findings and cases say a and b, messages its names.
    `unvisited` are the paths of wrapper and kernel that no case visited, in words. `expected` are
    findings that the contract expects: they change no verdict. `facts` say what was judged, where a
    worker loaded it, `coverage` which tiles and bits the cases reached, `premises` whether what was
    predicted is what is compiled, where that was asked for.
    """

    schema: int
    target: str
    verdict: str
    properties: tuple[PropertyResult, ...]
    findings: tuple[Finding, ...]
    seconds: float
    versions: dict[str, str]
    note: str | None = None
    drift: Drift | None = None
    limits: tuple[Limit, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    unvisited: tuple[str, ...] = ()
    expected: tuple[Finding, ...] = ()
    facts: Identity | None = None
    coverage: Coverage | None = None
    premises: Premises | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, `schema` first."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data["properties"] = [asdict(p) for p in self.properties]
        data["findings"] = [f.to_dict() for f in self.findings]
        data["drift"] = None if self.drift is None else self.drift.to_dict()
        data["limits"] = [limit.to_dict() for limit in self.limits]
        data["unvisited"] = list(self.unvisited)
        data["expected"] = [f.to_dict() for f in self.expected]
        data["facts"] = None if self.facts is None else asdict(self.facts)
        data["coverage"] = None if self.coverage is None else self.coverage.to_dict()
        data["premises"] = None if self.premises is None else self.premises.to_dict()
        return data

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(self.to_dict(), indent=2)

    @staticmethod
    def from_json(text: str) -> Report:
        """The report that `to_json` wrote. Raises ValueError naming what is wrong."""
        try:
            return Report.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(f"report: got broken JSON ({error}), expected a report") from None

    @staticmethod
    def from_dict(data: Any) -> Report:
        """The report that `to_dict` gave. Raises ValueError naming what is wrong."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            got = data.get("schema") if isinstance(data, dict) else data
            raise ValueError(f"report schema: got {got!r}, expected {SCHEMA}")
        data = {"premises": None, **data}  # which older reports lack
        if set(data) != set(Report.__slots__):
            known = " ".join(Report.__slots__)
            raise ValueError(f"report: got fields {' '.join(sorted(data))}, expected {known}")
        if data["verdict"] not in EXIT:
            raise ValueError(
                f"report verdict: got {data['verdict']!r}, expected one of {tuple(EXIT)}"
            )
        drift = data["drift"]
        if drift is not None:
            from gemmproof.properties.judges.accumulator_drift import (
                Drift,  # brings numpy, which few need
            )

            drift = Drift.from_dict(drift)
        properties = tuple(PropertyResult.from_dict(p) for p in data["properties"])
        findings = tuple(Finding.from_dict(f) for f in data["findings"])
        limits = tuple(Limit.from_dict(x) for x in data["limits"])
        records = {"properties": properties, "findings": findings, "drift": drift, "limits": limits}
        records["expected"] = tuple(Finding.from_dict(f) for f in data["expected"])
        for name, record in (("facts", Identity), ("coverage", Coverage), ("premises", Premises)):
            records[name] = None if data[name] is None else record.from_dict(data[name])
        return Report(**{**data, **records, "unvisited": tuple(data["unvisited"])})


def _require_fields(
    what: str, data: Any, record: type, optional: Collection[str] = frozenset()
) -> None:
    known = [f.name for f in fields(record)]
    if not isinstance(data, dict) or {*data, *optional} != set(known):
        got = " ".join(map(str, data)) if isinstance(data, dict) else repr(data)
        raise ValueError(f"report {what}: got fields {got}, expected {' '.join(known)}")


def versions() -> dict[str, str]:
    """The versions of Python and of the packages involved, where they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a source tree on the path
            continue
    return found

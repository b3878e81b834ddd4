"""The outcome of a check as records, and their JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding

if TYPE_CHECKING:
    from gemmproof.properties.accumulator import Drift

SCHEMA = 2
PACKAGES = ("gemmproof", "triton", "torch", "numpy", "ml_dtypes")
# The verdicts, each with the exit code of a command.
EXIT = {"pass": 0, "fail": 1, "error": 2, "incomplete": 3}


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """What became of one property: `status` is "pass", "fail" or "not run".

    `examples` is how many cases it judged; `ratio` the largest error over its bound, None where the
    property has no bound. `backend` is "simulator", or "cuda" for what was launched.
    """

    name: str
    claim: str
    status: str
    examples: int
    ratio: float | None = None
    backend: str = "simulator"

    @property
    def label(self) -> str:
        """The name, with the backend where that is not the simulator."""
        return self.name if self.backend == "simulator" else f"{self.name} on {self.backend}"


@dataclass(frozen=True, slots=True)
class Limit:
    """What a kernel does one step beyond its contract; `option` turns that into a promise.

    `status` is "holds", "limit" (`message` says what happens at `case`) or "not tried" (why).
    """

    name: str
    option: str
    status: str
    message: str = ""
    case: Case | None = None

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
    what lies beyond the contract, where that was tried: they are no findings.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, `schema` first."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data["properties"] = [asdict(p) for p in self.properties]
        data["findings"] = [f.to_dict() for f in self.findings]
        data["drift"] = None if self.drift is None else self.drift.to_dict()
        data["limits"] = [limit.to_dict() for limit in self.limits]
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
        if set(data) != set(Report.__slots__):
            known = " ".join(Report.__slots__)
            raise ValueError(f"report: got fields {' '.join(sorted(data))}, expected {known}")
        if data["verdict"] not in EXIT:
            raise ValueError(
                f"report verdict: got {data['verdict']!r}, expected one of {tuple(EXIT)}"
            )
        drift = data["drift"]
        if drift is not None:
            from gemmproof.properties.accumulator import Drift  # brings numpy, which few need

            drift = Drift.from_dict(drift)
        properties = tuple(PropertyResult(**p) for p in data["properties"])
        findings = tuple(Finding.from_dict(f) for f in data["findings"])
        limits = tuple(Limit.from_dict(x) for x in data["limits"])
        records = {"properties": properties, "findings": findings, "drift": drift, "limits": limits}
        return Report(**{**data, **records})


def versions() -> dict[str, str]:
    """The versions of Python and of the packages involved, where they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a source tree on the path
            continue
    return found

"""The outcome of a check as records, and their JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from gemmproof.properties.finding import Finding

SCHEMA = 1
PACKAGES = ("gemmproof", "triton", "torch", "numpy", "ml_dtypes")
VERDICTS = ("pass", "fail", "error", "incomplete")


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """How one property fared: `status` is "pass", "fail" or "not run".

    `examples` is how many cases it judged; `ratio` the largest error over its bound, None where the
    property has no bound.
    """

    name: str
    claim: str
    status: str
    examples: int
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one check; findings come root causes first, each with its smallest case.

    `target` is the kernel's name (a command line puts its own spelling there). `note` says in one
    line what an error or an incomplete run lacks, None otherwise. `versions` are those of the
    packages that took part.
    """

    schema: int
    target: str
    verdict: str
    properties: tuple[PropertyResult, ...]
    findings: tuple[Finding, ...]
    seconds: float
    versions: dict[str, str]
    note: str | None = None

    def to_json(self) -> str:
        """One JSON document, `schema` first."""
        data = {name: getattr(self, name) for name in self.__slots__}
        data["properties"] = [asdict(p) for p in self.properties]
        data["findings"] = [f.to_dict() for f in self.findings]
        return json.dumps(data, indent=2)

    @staticmethod
    def from_json(text: str) -> Report:
        """The report that `to_json` wrote. Raises ValueError naming what is wrong."""
        try:
            data: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"report: got broken JSON ({error}), expected a report") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            got = data.get("schema") if isinstance(data, dict) else data
            raise ValueError(f"report schema: got {got!r}, expected {SCHEMA}")
        if set(data) != set(Report.__slots__):
            known = " ".join(Report.__slots__)
            raise ValueError(f"report: got fields {' '.join(sorted(data))}, expected {known}")
        if data["verdict"] not in VERDICTS:
            raise ValueError(f"report verdict: got {data['verdict']!r}, expected one of {VERDICTS}")
        return Report(
            **{
                **data,
                "properties": tuple(PropertyResult(**p) for p in data["properties"]),
                "findings": tuple(Finding.from_dict(f) for f in data["findings"]),
            }
        )


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that take part, those that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a source tree on the path
            continue
    return found

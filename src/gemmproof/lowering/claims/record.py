"""What is to be compiled for a contract's claims, and what each compilation says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gemmproof.properties.finding import Finding


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A launch that is to be compiled for `gpu`: of which kernel, at which case, as JSON.

    `configuration` is the words of a tuned one, "" for others; `where` and `file` are the wrapper's
    line that launches it, `name` says all of it.
    """

    gpu: str
    kernel: str
    case: str
    configuration: str
    where: str
    file: str
    name: str


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Every launch once that compiles to something of its own, and the `calls` that make them.

    A call is the numbers of its launches, where none of M, N and K is 1 or 0. `lacks` says in a
    line each what is not compiled.
    """

    launches: tuple[PlannedLaunch, ...] = ()
    calls: tuple[tuple[int, ...], ...] = ()
    lacks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LaunchPlan:
        """The plan that `to_dict` gave, also after JSON."""
        launches = tuple(PlannedLaunch(**one) for one in data["launches"])
        return LaunchPlan(launches, tuple(map(tuple, data["calls"])), tuple(data["lacks"]))


@dataclass(frozen=True, slots=True)
class Weighed:
    """What one compiled launch says of the claims: of those that it bears on, what is wrong.

    `unknown` is why nothing is known of one, by its name. `has_dot`: whether anything in it
    multiplies matrices; None where that is not known.
    """

    judged: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    has_dot: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = [one.to_dict() for one in self.findings]
        return {**asdict(self), "findings": found}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Weighed:
        """What `to_dict` gave, also after JSON."""
        found = tuple(Finding.from_dict(one) for one in data["findings"])
        return Weighed(tuple(data["judged"]), found, data["unknown"], data["has_dot"])

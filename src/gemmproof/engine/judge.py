"""What all properties say of one observation, and which finding brings which other about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmproof.properties import memory, table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.finding import Finding
from gemmproof.properties.observation import Observation, Raised


@dataclass(frozen=True, slots=True)
class Judged:
    """One case judged by every property that applies; the observation's memory is not kept.

    `tiles` are the dots of the launches, `splits` constexprs that divide K, `configs` how many
    autotune configurations the kernel has, `launches` how many kernels ran, `constants` the
    constexprs of all of them, `asked_sms` whether the wrapper asked how many multiprocessors there
    are.
    """

    case: Case
    backend: str
    findings: tuple[Finding, ...]
    applied: frozenset[str]
    ratios: dict[str, float]
    raised: Raised | None
    tiles: tuple[Tile, ...]
    splits: tuple[int, ...]
    configs: int
    launches: int
    constants: tuple[tuple[str, Any], ...]
    asked_sms: bool

    def to_event(self, index: int, seconds: float) -> dict[str, Any]:
        """What a listener is told of it."""
        facts = {"examples": sorted(self.applied), "ratios": self.ratios, "backend": self.backend}
        return {"event": "judged", "index": index, "seconds": seconds, **facts}


def judge(observation: Observation) -> Judged:
    """Every finding of one observation, root causes first, consequences marked as such."""
    findings: list[Finding] = []
    applied, ratios = set(), {}
    for each in table.list_required(observation.kernel, not observation.is_simulated):
        spoiled = any(f.property not in table.HARMLESS for f in findings)
        if not each.applies(observation) or (each.sound and spoiled):
            continue
        applied.add(each.name)
        findings += (_with_cause(f, findings, observation) for f in each.judge(observation))
        ratio = each.ratio(observation) if each.ratio is not None else None
        if ratio is not None:
            ratios[each.name] = ratio
    launches = [launch for call in observation.calls for launch in call.run.launches]
    return Judged(
        case=observation.case,
        backend=observation.backend,
        findings=tuple(findings),
        applied=frozenset(applied),
        ratios=ratios,
        raised=observation.raised,
        tiles=observation.tiles,
        splits=tuple(
            sorted(
                {
                    value
                    for launch in launches
                    for name, value in launch.constexprs.items()
                    if "SPLIT" in name.upper() and type(value) is int and 2 <= value <= 64
                }
            )
        ),
        configs=max((launch.configs for launch in launches), default=1),
        launches=len(launches),
        constants=tuple(
            dict.fromkeys(pair for launch in launches for pair in launch.constexprs.items())
        ),
        asked_sms=observation.asked_sms,
    )


def _with_cause(finding: Finding, before: list[Finding], observation: Observation) -> Finding:
    """The finding, marked as a consequence of an earlier one of the same observation.

    Only a stray store moves what is stored where. A stray load explains a wrong value only through
    lanes that reach a store, and then the simulator says so.
    """
    follows = table.BY_NAME[finding.property].follows
    roots = {f.property for f in before}
    if finding.cause is not None:
        return finding
    if finding.property == memory.ONCE and not any(
        fault.kind == "out_of_bounds" and fault.access != "load" for fault in observation.faults
    ):
        return finding
    for cause in follows:
        if cause in roots:
            return finding.caused_by(cause)
    return finding

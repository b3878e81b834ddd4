"""What all properties say of one observation, and which finding causes which other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from gemmproof.properties import table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import memory_use
from gemmproof.properties.kernel import Misstated
from gemmproof.properties.observation import Observation, Raised
from gemmproof.reference.simulation import Launch


@dataclass(frozen=True, slots=True)
class Judged:
    """One case judged by every property that applies; the observation's memory is not kept.

    `tiles` are those of the dots of all `launches`. `bits` is a hash of what the first call
    returned, "" where it gave no result. `asked_sms`: whether the wrapper asked how many
    multiprocessors there are. `followed`: whether every call was followed to its end; one of a
    sampled case may not be.
    """

    case: Case
    backend: str
    findings: tuple[Finding, ...]
    applied: frozenset[str]
    ratios: dict[str, float]
    raised: Raised | None
    tiles: tuple[Tile, ...]
    launches: tuple[Launch, ...]
    asked_sms: bool
    followed: bool
    bits: str = ""

    @property
    def is_unseen(self) -> bool:
        """Whether it is in a language of which the simulator sees nothing."""
        return self.raised is not None and self.raised.kind == "unseen"

    @property
    def constants(self) -> list[tuple[str, Any]]:
        """The names and values of the constexprs of all launches."""
        return [pair for launch in self.launches for pair in launch.constexprs.items()]

    def require_config(self) -> None:
        """Raise Misstated for a configuration that none of the kernels launched has."""
        most = max((launch.written for launch in self.launches), default=1)
        if 1 < most <= self.case.config:
            got = f"got {self.case.config}, expected one of the {most}: 0..{most - 1}"
            raise Misstated(f"case config: {got}")

    def to_event(self, index: int, seconds: float) -> dict[str, Any]:
        """The event for a listener."""
        facts = {"examples": sorted(self.applied), "ratios": self.ratios, "backend": self.backend}
        return {"event": "judged", "index": index, "seconds": seconds, **facts}


def judge(observation: Observation) -> Judged:
    """Every finding of one observation, root causes first, consequences marked as such."""
    findings: list[Finding] = []
    applied, ratios = set[str](), dict[str, float]()
    for each in table.list_required(observation.kernel, not observation.is_simulated):
        spoiled = any(f.property not in table.HARMLESS for f in findings)
        shown = observation.split() if each.by_result else [observation]
        shown = [one for one in shown if each.applies(one)]
        if not shown or (each.sound and spoiled):
            continue
        if observation.case.is_sampled and not each.sampled:
            continue
        applied.add(each.name)
        for one in shown:
            assert each.judge is not None  # those without one are judged on no backend
            findings += (_with_cause(f, findings, observation) for f in each.judge(one))
            ratio = each.ratio(one) if each.ratio is not None else None
            if ratio is not None:
                ratios[each.name] = max(ratio, ratios.get(each.name, 0.0))
    return Judged(
        case=observation.case,
        backend=observation.backend,
        findings=tuple(findings),
        applied=frozenset(applied),
        ratios=ratios,
        raised=observation.raised,
        tiles=observation.tiles,
        launches=tuple(observation.launches),
        asked_sms=observation.asked_sms,
        followed=all(c.run.result is not None for c in observation.calls),
        bits=_hash_bits(observation),
    )


def _hash_bits(observation: Observation) -> str:
    """A hash of the first call's results: their types, shapes and bits."""
    results = observation.calls[0].results if observation.calls else ()
    if not results or observation.raised is not None:
        return ""
    made = hashlib.sha256()
    for result in results:
        if result is None:
            return ""
        made.update(f"{result.dtype} {result.shape} ".encode())
        made.update(result.tobytes())
    return made.hexdigest()[:16]


def _with_cause(finding: Finding, before: list[Finding], observation: Observation) -> Finding:
    """The finding, marked as a consequence of an earlier one of the same observation.

    Only a stray store moves what is stored where. A stray load explains a wrong value only through
    lanes that reach a store, and then the simulator says so.
    """
    stray_store = any(
        fault.kind == "out_of_bounds" and fault.access != "load" for fault in observation.faults
    )
    if finding.cause is not None or (finding.property == memory_use.ONCE and not stray_store):
        return finding
    if finding.fault == "never_stored" and any(f.fault == "stored_twice" for f in before):
        return finding.caused_by(memory_use.ONCE)  # it was stored in another's place
    known = {f.property for f in before}
    for cause in table.BY_NAME[finding.property].follows:
        if cause in known:
            return finding.caused_by(cause)
    return finding

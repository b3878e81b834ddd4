"""Rules of a sign-off: what may not change from a baseline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gemmproof.properties.codec import encode
from gemmproof.properties.contract import AXES, WITHOUT, Contract, Sizes
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import Identity, Limit, PropertyResult
from gemmproof.signoff.record import (
    ACCUMULATOR,
    INCOMPLETE,
    NOT_RUN,
    REFUSED,
    SIGNED,
    DriftClass,
    KernelRecord,
    Reason,
    Signoff,
)

# -- guarantees ----------------------------------------------------------------------------------
MOST = 4096  # sizes up to here are compared one by one
FLAGS = ("huge", "deterministic", "batch_invariant", "tensor_cores")
# older contracts lack these fields
_ADDED: dict[str, Any] = {**WITHOUT, "fits": []}


def list_changed(before: Identity, now: Identity) -> Iterator[str]:
    """Yield the declarations that changed, each in one line."""
    for kind, old, new in (
        ("contract", before.contract, now.contract),
        ("operand", before.operands, now.operands),
    ):
        usual = _ADDED if kind == "contract" else {}
        for name in dict.fromkeys((*old, *new)):
            was, is_now = (_say(fields.get(name, usual.get(name))) for fields in (old, new))
            if was != is_now:
                yield f"{kind} {name}: {was} -> {is_now}"
    if before.formula != now.formula:
        yield "the formula of the result changed"


def list_lost(before: Identity, now: Identity, failed: Collection[str] = ()) -> Iterator[str]:
    """Yield the guarantees that a contract no longer makes, as far as texts can be compared.

    A property that `failed` before is no loss if it is expected to fail now.
    """
    old, new = before.contract, now.contract
    if not old or not new:
        return
    for name in old["formats"]:
        if name not in new["formats"]:
            yield f"{name} is promised no more"
    for axis in AXES:
        size = _find_lost(old[axis], new[axis])
        if size is not None:
            yield f"{axis}={size} is promised no more ({old[axis]} -> {new[axis]})"
    if old["where"] is None and new["where"] is not None:
        yield f"sizes are promised only where {new['where']}"
    if lost := [name for name in _list_layouts(old) if name not in _list_layouts(new)]:
        yield f"layouts are promised no more: {' '.join(lost)}"
    old, new = ({**_ADDED, **contract} for contract in (old, new))
    for flag in FLAGS:
        if old[flag] and not new[flag]:
            yield f"{flag} is promised no more"
    if old["spills"] is not None and (new["spills"] is None or new["spills"] > old["spills"]):
        yield f"spills of at most {old['spills']} bytes are promised no more"
    if lost := [gpu for gpu in old["fits"] if gpu not in new["fits"]]:
        yield f"that it fits on {' '.join(lost)} is promised no more"
    known, excused = (contract.get("expected") or {} for contract in (old, new))
    for name in excused:
        if name not in known and name not in failed:
            yield f"{name} is promised no more, it is expected to fail: {excused[name]}"
    if FORMATS[old["accumulator"]].p > FORMATS[new["accumulator"]].p:
        yield f"sums are kept in {new['accumulator']} in place of {old['accumulator']}"


def _find_lost(old: str, new: str) -> int | None:
    """Return the smallest size that is no longer guaranteed, None if there is none."""
    was, is_now = Sizes.of(old), Sizes.of(new)
    return next((n for n in (*range(MOST + 1), was.high) if n in was and n not in is_now), None)


def _list_layouts(contract: dict[str, Any]) -> tuple[str, ...]:
    declared = contract["layouts"]
    layouts = declared if isinstance(declared, str) else tuple(declared)
    # huge views are a separate guarantee
    return Contract(layouts=layouts, batched=contract["batched"]).layout_names


def _say(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {x}" for key, x in value.items()) or "none"
    return " ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


# -- changed source ------------------------------------------------------------------------------
NAMES_SHOWN = 6  # names of each sort


def describe_source(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Describe the parts that changed, were added and were removed, by module and name."""
    changed = [label for label in new if label in old and old[label] != new[label]]
    sorts = {
        "": changed,
        "new ": [label for label in new if label not in old],
        "gone ": [label for label in old if label not in new],
    }
    parts = (f"{sort}{_list(labels)}" for sort, labels in sorts.items() if labels)
    return f"source changed: {'; '.join(parts)}"


def _list(labels: Iterable[str]) -> str:
    names = list(labels)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(names[:NAMES_SHOWN])}{more}"


def group_by_module(source: Mapping[str, str]) -> dict[str, list[str]]:
    """Group the names of the parts by module."""
    groups: dict[str, list[str]] = {}
    for label in source:
        module, _, name = label.partition(":")
        groups.setdefault(module, []).append(name)
    return groups


# -- compare -------------------------------------------------------------------------------------
# the values of --accept: the kinds of changes that count against signing
ACCEPTED = ("bits", "drift", "kernel", "limit", "mutation", "promise", "proof", "property")
CASES_SHOWN = 3  # cases with other bits that are listed


def compare(before: Signoff, now: Signoff) -> Iterator[Reason]:
    """Yield every difference of a sign-off from its baseline."""
    yield from _compare_inputs(before, now)
    old, new = ({k.report.target: k for k in signoff.kernels} for signoff in (before, now))
    for name in old:
        if name not in new:
            yield from _explain_missing(name, now)
    added = [name for name in new if name not in old]
    for name in added:
        yield Reason(name, "new", SIGNED, "new: the baseline does not have it")
    for name in new:
        if name in old:
            yield from _Pair(before, now, old[name], new[name]).list_changes()


def _compare_inputs(before: Signoff, now: Signoff) -> Iterator[Reason]:
    make_reason = partial(Reason, "", "inputs", SIGNED)
    old, new = encode(before.inputs), encode(now.inputs)
    for name in old:
        if old[name] != new[name] and name != "kernels":
            yield make_reason(f"{name}: {old[name]} -> {new[name]}")
    for name in dict.fromkeys((*before.versions, *now.versions)):
        was, is_now = (signoff.versions.get(name, "none") for signoff in (before, now))
        if was != is_now:
            yield replace(make_reason(f"{name} {was} -> {is_now}"), kind="versions")


def _explain_missing(name: str, now: Signoff) -> Iterator[Reason]:
    if now.inputs.kernels:
        yield Reason(name, "inputs", SIGNED, "not compared: --kernel left it out")
    elif name in now.left_out:
        reason = "the baseline has it judged on a GPU, and this run had none"
        yield Reason(name, "kernel", INCOMPLETE, reason)
    else:
        yield Reason(name, "kernel", REFUSED, "gone: the baseline has it, and it is not registered")


class _Pair:
    """One kernel in a baseline and now."""

    def __init__(self, before: Signoff, now: Signoff, old: KernelRecord, new: KernelRecord) -> None:
        self.name, self.old, self.new = new.report.target, old, new
        self.before, self.now = before, now
        self.is_same_search = before.inputs == replace(now.inputs, kernels=before.inputs.kernels)
        facts = (old.report.identity, new.report.identity)
        self.is_known = all(f is not None and f.source for f in facts)
        self.is_same_kernel = self.is_known and facts[0] == facts[1]
        # nothing that a person can change has changed
        self.is_unchanged = (
            self.is_same_kernel and self.is_same_search and before.versions == now.versions
        )

    def say(self, kind: str, weight: str, text: str) -> Reason:
        return Reason(self.name, kind, weight, text)

    def list_changes(self) -> Iterator[Reason]:
        """Yield the changes, the causes first."""
        yield from self._compare_facts()
        yield from self._compare_mutation()
        if self.new.is_held:  # otherwise graver reasons apply
            yield from self._compare_drift()
            yield from self._compare_properties()
            yield from self._compare_limits()
            yield from self._compare_bits()

    def _compare_facts(self) -> Iterator[Reason]:
        old, new = self.old.report.identity, self.new.report.identity
        if old is None or new is None or not self.is_known:
            yield self.say("source", SIGNED, "source not compared: it is not known of both")
            return
        if old.digest != new.digest:
            yield self.say("source", SIGNED, describe_source(old.source, new.source))
        for text in list_changed(old, new):
            yield self.say("contract", SIGNED, text)
        failed = {p.name for p in self.old.report.properties if p.status == "fail"}
        for text in list_lost(old, new, failed):
            yield self.say("promise", REFUSED, text)

    def _compare_mutation(self) -> Iterator[Reason]:
        old, new = self.old.mutation, self.new.mutation
        if old is not None and new is None and self.new.is_held:  # otherwise graver reasons apply
            reason = self.new.why_not_mutated or "--mutation was left out"
            yield self.say("mutation", INCOMPLETE, f"its mutants had a score; now none: {reason}")
        if old is not None and new is not None and new.survivors > old.survivors:
            text = f"{format_count(new.survivors, 'mutant')} survive, {old.survivors} did"
            yield self.say("mutation", REFUSED, text)

    def _compare_drift(self) -> Iterator[Reason]:
        measured = [drift for drift in self.old.drift if drift.name]
        if measured and not self.new.drift:
            text = "its drift was measured; now that was not tried (--drift)"
            yield self.say("drift", INCOMPLETE, text)
            return
        current = {drift.format: drift for drift in self.new.drift}
        for old in measured:
            new = current.get(old.format)
            if new is None or new.missed:  # which is a lost guarantee, or reported as such
                continue
            if not new.name:
                text = f"its drift in {old.format} was measured; now it is not: {new.why}"
                yield self.say("drift", INCOMPLETE, text)
            elif old.gpu != new.gpu:
                text = f"drift in {old.format} not compared: {old.gpu} -> {new.gpu}"
                yield self.say("drift", SIGNED, text)
            elif lost := list(_list_narrowed(old, new)):
                text = f"{', '.join(lost)} ({old.name} -> {new.name})"
                yield self.say("drift", REFUSED, f"sums of {old.format} got narrower: {text}")
            elif old.name != new.name:
                text = f"the accumulator of {old.format} changed: {old.name} -> {new.name}"
                yield self.say("drift", SIGNED, text)

    def _compare_properties(self) -> Iterator[Reason]:
        results = {p.label: p for p in self.new.report.properties}
        on_gpu = [p for p in self.old.report.properties if p.backend == "cuda" and _ran(p)]
        if on_gpu and self.now.inputs.device == "cpu":
            text = f"{format_count(len(on_gpu), 'property')} ran on a GPU, none does now"
            yield self.say("property", INCOMPLETE, text)
        for old in self.old.report.properties:
            new = results.get(old.label)
            if old in on_gpu and self.now.inputs.device == "cpu":
                continue
            is_gone = new is None or not _ran(new)
            if _ran(old) and is_gone and old.name != ACCUMULATOR:  # which the drift covers
                # with other draws a property may apply to no case
                is_kept = self.is_unchanged or not self.is_same_search
                weight = INCOMPLETE if is_kept and new is not None else REFUSED
                yield self.say("property", weight, f"{old.label} is no longer run")
            if new is not None:
                yield from self._compare_proof(old, new)
                yield from self._compare_error(old, new)

    def _compare_proof(self, old: PropertyResult, new: PropertyResult) -> Iterator[Reason]:
        if new.is_proved and not old.is_proved:
            yield self.say("proof", SIGNED, f"{new.label} is proved now")
        if not old.is_proved or new.is_proved or new.status == "fail":
            return
        if new.proof is None:
            yield self.say("proof", INCOMPLETE, f"{new.label} was proved; now that was not tried")
            return
        text = f"{new.label} was proved; now {new.proof.status}: {new.proof.why}"
        yield self.say("proof", INCOMPLETE if new.proof.cut else REFUSED, text)

    def _compare_error(self, old: PropertyResult, new: PropertyResult) -> Iterator[Reason]:
        if old.ratio is None or new.ratio is None or new.ratio <= old.ratio:
            return
        if self.before.inputs.target == self.now.inputs.target:
            text = f"{old.ratio:.3g} -> {new.ratio:.3g} of its bound"
            yield self.say("error", SIGNED, f"the worst error of {new.label} grew: {text}")

    def _compare_limits(self) -> Iterator[Reason]:
        known = {limit.name: limit for limit in self.new.report.limits}
        for old in self.old.report.limits:
            new = known.get(old.name)
            if old.status == "holds" and (new is None or new.status != "holds"):
                yield from self._lose_limit(old, new)
            elif old.status == "limit" and new is not None and new.status == "holds":
                yield self.say("limit", SIGNED, f"{old.name} is no limit any more")
            elif old.proof and new is not None and new.proof and old.proof != new.proof:
                text = f"{old.name}: its exact limit was {old.proof}; now {new.proof}"
                yield self.say("limit", SIGNED, text)

    def _lose_limit(self, old: Limit, new: Limit | None) -> Iterator[Reason]:
        if new is None:
            if self.is_same_kernel:  # otherwise it may be guaranteed now, or not apply
                yield self.say("limit", INCOMPLETE, f"{old.name} held; now it is not tried")
        elif new.status == "not tried":
            text = f"{old.name} held; now it is not tried: {new.message}"
            yield self.say("limit", INCOMPLETE, text)
        else:
            yield self.say("limit", REFUSED, f"{old.name} held; now {new.message}")

    def _compare_bits(self) -> Iterator[Reason]:
        old, new = self.old.report.coverage, self.new.report.coverage
        if old is None or new is None or self.before.inputs.target != self.now.inputs.target:
            yield self.say("bits", SIGNED, "bits not compared: of another target, or not known")
            return
        known = {entry.case: entry.digest for entries in old.bits.values() for entry in entries}
        common = [
            entry for entries in new.bits.values() for entry in entries if entry.case in known
        ]
        if not common:
            yield self.say("bits", SIGNED, "bits not compared: no case is in both")
        changed = [entry.case for entry in common if entry.digest != known[entry.case]]
        if changed:
            shown = " ".join(changed[:CASES_SHOWN]) + " ..." * (len(changed) > CASES_SHOWN)
            text = f"bits changed at {len(changed)} of {format_count(len(common), 'case')}: {shown}"
            weight = SIGNED
            if self.is_same_kernel and self.before.versions == self.now.versions:
                weight, text = INCOMPLETE, f"{text}, though source, contract and versions did not"
            yield self.say("bits", weight, text)


def _list_narrowed(old: DriftClass, new: DriftClass) -> Iterator[str]:
    """Yield the ways in which sums keep less than before."""
    if new.keeps < old.keeps:
        yield f"{old.keeps} bits were kept, now {new.keeps}"
    if new.reads < old.reads:
        yield f"{old.reads} bits of operands counted, now {new.reads}"
    if new.truncated and not old.truncated:
        yield "c is truncated now"


def _ran(result: PropertyResult) -> bool:
    return result.status != NOT_RUN

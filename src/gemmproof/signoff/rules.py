"""Rules of a sign-off: what may not change from a baseline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

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
# older contracts do not have these words
_ADDED: dict[str, Any] = {**WITHOUT, "fits": []}


def list_changed(before: Identity, now: Identity) -> Iterator[str]:
    """What is stated in other words, each in one line."""
    for what, old, new in (
        ("contract", before.contract, now.contract),
        ("operand", before.operands, now.operands),
    ):
        usual = _ADDED if what == "contract" else {}
        for name in dict.fromkeys((*old, *new)):
            was, is_now = (_say(words.get(name, usual.get(name))) for words in (old, new))
            if was != is_now:
                yield f"{what} {name}: {was} -> {is_now}"
    if before.formula != now.formula:
        yield "the formula of the result changed"


def list_lost(before: Identity, now: Identity, failed: Collection[str] = ()) -> Iterator[str]:
    """The promises that a contract made, and makes no more, as far as words can be compared.

    What `failed` before is no loss where it is expected to fail now.
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
    old, new = ({**_ADDED, **words} for words in (old, new))
    for flag in FLAGS:
        if old[flag] and not new[flag]:
            yield f"{flag} is promised no more"
    if old["spills"] is not None and (new["spills"] is None or new["spills"] > old["spills"]):
        yield f"spills of at most {old['spills']} bytes are promised no more"
    if lost := [gpu for gpu in old["fits"] if gpu not in new["fits"]]:
        yield f"that it fits on {' '.join(lost)} is promised no more"
    known, excused = (words.get("expected") or {} for words in (old, new))
    for name in excused:
        if name not in known and name not in failed:
            yield f"{name} is promised no more, it is expected to fail: {excused[name]}"
    if FORMATS[old["accumulator"]].p > FORMATS[new["accumulator"]].p:
        yield f"sums are kept in {new['accumulator']} in place of {old['accumulator']}"


def _find_lost(old: str, new: str) -> int | None:
    """The least size that was promised and is no more, None for none."""
    was, is_now = Sizes.of(old), Sizes.of(new)
    return next((n for n in (*range(MOST + 1), was.high) if n in was and n not in is_now), None)


def _list_layouts(words: dict[str, Any]) -> tuple[str, ...]:
    stated = words["layouts"]
    layouts = stated if isinstance(stated, str) else tuple(stated)
    # huge views are a promise of their own
    return Contract(layouts=layouts, batched=words["batched"]).layout_names


def _say(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {x}" for key, x in value.items()) or "none"
    return " ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


# -- changed source ------------------------------------------------------------------------------
NAMES_SHOWN = 6  # names of each sort


def describe_source(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """What changed, was added and was removed, by module and name."""
    changed = [label for label in new if label in old and old[label] != new[label]]
    sorts = {
        "": changed,
        "new ": [label for label in new if label not in old],
        "gone ": [label for label in old if label not in new],
    }
    said = (f"{sort}{_list(labels)}" for sort, labels in sorts.items() if labels)
    return f"source changed: {'; '.join(said)}"


def _list(labels: Iterable[str]) -> str:
    known = list(labels)
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    return f"{', '.join(known[:NAMES_SHOWN])}{more}"


def group_by_module(source: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the parts by their modules."""
    found: dict[str, list[str]] = {}
    for label in source:
        module, _, name = label.partition(":")
        found.setdefault(module, []).append(name)
    return found


# -- compare -------------------------------------------------------------------------------------
# what --accept takes: the kinds of changes that speak against signing
ACCEPTED = ("bits", "drift", "kernel", "limit", "mutation", "promise", "proof", "property")
CASES_SHOWN = 3  # cases with other bits that are named


def compare(before: Signoff, now: Signoff) -> Iterator[Reason]:
    """Everything in which a sign-off differs from its baseline."""
    yield from _compare_inputs(before, now)
    old, new = ({k.report.target: k for k in one.kernels} for one in (before, now))
    for name in old:
        if name not in new:
            yield from _miss(name, now)
    added = [name for name in new if name not in old]
    for name in added:
        yield Reason(name, "new", SIGNED, "new: the baseline does not have it")
    for name in new:
        if name in old:
            yield from _Pair(before, now, old[name], new[name]).list_changes()


def _compare_inputs(before: Signoff, now: Signoff) -> Iterator[Reason]:
    say = partial(Reason, "", "inputs", SIGNED)
    old, new = asdict(before.inputs), asdict(now.inputs)
    for name in old:
        if old[name] != new[name] and name != "kernels":
            yield say(f"{name}: {old[name]} -> {new[name]}")
    for name in dict.fromkeys((*before.versions, *now.versions)):
        was, is_now = (one.versions.get(name, "none") for one in (before, now))
        if was != is_now:
            yield replace(say(f"{name} {was} -> {is_now}"), kind="versions")


def _miss(name: str, now: Signoff) -> Iterator[Reason]:
    if now.inputs.kernels:
        yield Reason(name, "inputs", SIGNED, "not compared: --kernel left it out")
    elif name in now.left_out:
        why = "the baseline has it judged on a GPU, and this run had none"
        yield Reason(name, "kernel", INCOMPLETE, why)
    else:
        yield Reason(name, "kernel", REFUSED, "gone: the baseline has it, and it is not registered")


class _Pair:
    """One kernel in a baseline and now."""

    def __init__(self, before: Signoff, now: Signoff, old: KernelRecord, new: KernelRecord) -> None:
        self.name, self.old, self.new = new.report.target, old, new
        self.before, self.now = before, now
        self.is_same_search = before.inputs == replace(now.inputs, kernels=before.inputs.kernels)
        facts = (old.report.facts, new.report.facts)
        self.is_known = all(f is not None and f.source for f in facts)
        self.is_same_kernel = self.is_known and facts[0] == facts[1]
        # nothing that a person can change did
        self.is_unchanged = (
            self.is_same_kernel and self.is_same_search and before.versions == now.versions
        )

    def say(self, kind: str, weight: str, text: str) -> Reason:
        return Reason(self.name, kind, weight, text)

    def list_changes(self) -> Iterator[Reason]:
        """What changed, the causes first."""
        yield from self._compare_facts()
        yield from self._compare_mutation()
        if self.new.is_held:  # else there is graver to say
            yield from self._compare_drift()
            yield from self._compare_properties()
            yield from self._compare_limits()
            yield from self._compare_bits()

    def _compare_facts(self) -> Iterator[Reason]:
        old, new = self.old.report.facts, self.new.report.facts
        if old is None or new is None or not self.is_known:
            yield self.say("source", SIGNED, "source not compared: it is not known of both")
            return
        if old.digest != new.digest:
            yield self.say("source", SIGNED, describe_source(old.source, new.source))
        for words in list_changed(old, new):
            yield self.say("contract", SIGNED, words)
        failed = {p.name for p in self.old.report.properties if p.status == "fail"}
        for words in list_lost(old, new, failed):
            yield self.say("promise", REFUSED, words)

    def _compare_mutation(self) -> Iterator[Reason]:
        old, new = self.old.mutation, self.new.mutation
        if old is not None and new is None and self.new.is_held:  # else there is graver to say
            why = self.new.why_not_mutated or "--mutation was left out"
            yield self.say("mutation", INCOMPLETE, f"its mutants had a score; now none: {why}")
        if old is not None and new is not None and new.survivors > old.survivors:
            words = f"{format_count(new.survivors, 'mutant')} survive, {old.survivors} did"
            yield self.say("mutation", REFUSED, words)

    def _compare_drift(self) -> Iterator[Reason]:
        was = [one for one in self.old.drift if one.name]
        if was and not self.new.drift:
            words = "its drift was measured; now that was not tried (--drift)"
            yield self.say("drift", INCOMPLETE, words)
            return
        found = {one.format: one for one in self.new.drift}
        for old in was:
            new = found.get(old.format)
            if new is None or new.missed:  # which is a promise less, or told as it is
                continue
            if not new.name:
                words = f"its drift in {old.format} was measured; now it is not: {new.why}"
                yield self.say("drift", INCOMPLETE, words)
            elif old.gpu != new.gpu:
                words = f"drift in {old.format} not compared: {old.gpu} -> {new.gpu}"
                yield self.say("drift", SIGNED, words)
            elif lost := list(_list_narrowed(old, new)):
                words = f"{', '.join(lost)} ({old.name} -> {new.name})"
                yield self.say("drift", REFUSED, f"sums of {old.format} got narrower: {words}")
            elif old.name != new.name:
                words = f"the accumulator of {old.format} changed: {old.name} -> {new.name}"
                yield self.say("drift", SIGNED, words)

    def _compare_properties(self) -> Iterator[Reason]:
        results = {p.label: p for p in self.new.report.properties}
        on_gpu = [p for p in self.old.report.properties if p.backend == "cuda" and _ran(p)]
        if on_gpu and self.now.inputs.device == "cpu":
            words = f"{format_count(len(on_gpu), 'property')} ran on a GPU, none does now"
            yield self.say("property", INCOMPLETE, words)
        for old in self.old.report.properties:
            new = results.get(old.label)
            if old in on_gpu and self.now.inputs.device == "cpu":
                continue
            is_gone = new is None or not _ran(new)
            if _ran(old) and is_gone and old.name != ACCUMULATOR:  # of which there is more to say
                # of other draws one may bear on no case
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
        said = f"{new.label} was proved; now {new.proof.status}: {new.proof.why}"
        yield self.say("proof", INCOMPLETE if new.proof.cut else REFUSED, said)

    def _compare_error(self, old: PropertyResult, new: PropertyResult) -> Iterator[Reason]:
        if old.ratio is None or new.ratio is None or new.ratio <= old.ratio:
            return
        if self.before.inputs.target == self.now.inputs.target:
            words = f"{old.ratio:.3g} -> {new.ratio:.3g} of its bound"
            yield self.say("error", SIGNED, f"the worst error of {new.label} grew: {words}")

    def _compare_limits(self) -> Iterator[Reason]:
        known = {limit.name: limit for limit in self.new.report.limits}
        for old in self.old.report.limits:
            new = known.get(old.name)
            if old.status == "holds" and (new is None or new.status != "holds"):
                yield from self._lose_limit(old, new)
            elif old.status == "limit" and new is not None and new.status == "holds":
                yield self.say("limit", SIGNED, f"{old.name} is no limit any more")
            elif old.proof and new is not None and new.proof and old.proof != new.proof:
                words = f"{old.name}: its exact limit was {old.proof}; now {new.proof}"
                yield self.say("limit", SIGNED, words)

    def _lose_limit(self, old: Limit, new: Limit | None) -> Iterator[Reason]:
        if new is None:
            if self.is_same_kernel:  # else it may be promised now, or not be asked of the new one
                yield self.say("limit", INCOMPLETE, f"{old.name} held; now it is not tried")
        elif new.status == "not tried":
            words = f"{old.name} held; now it is not tried: {new.message}"
            yield self.say("limit", INCOMPLETE, words)
        else:
            yield self.say("limit", REFUSED, f"{old.name} held; now {new.message}")

    def _compare_bits(self) -> Iterator[Reason]:
        old, new = self.old.report.coverage, self.new.report.coverage
        if old is None or new is None or self.before.inputs.target != self.now.inputs.target:
            yield self.say("bits", SIGNED, "bits not compared: of another target, or not known")
            return
        kept = {one.case: one.digest for found in old.bits.values() for one in found}
        made = [one for found in new.bits.values() for one in found if one.case in kept]
        if not made:
            yield self.say("bits", SIGNED, "bits not compared: no case is in both")
        changed = [one.case for one in made if one.digest != kept[one.case]]
        if changed:
            shown = " ".join(changed[:CASES_SHOWN]) + " ..." * (len(changed) > CASES_SHOWN)
            words = f"bits changed at {len(changed)} of {format_count(len(made), 'case')}: {shown}"
            weight = SIGNED
            if self.is_same_kernel and self.before.versions == self.now.versions:
                weight, words = INCOMPLETE, f"{words}, though source, contract and versions did not"
            yield self.say("bits", weight, words)


def _list_narrowed(old: DriftClass, new: DriftClass) -> Iterator[str]:
    """In which ways sums keep less than they did."""
    if new.keeps < old.keeps:
        yield f"{old.keeps} bits were kept, now {new.keeps}"
    if new.reads < old.reads:
        yield f"{old.reads} bits of operands counted, now {new.reads}"
    if new.truncated and not old.truncated:
        yield "c is truncated now"


def _ran(result: PropertyResult) -> bool:
    return result.status != NOT_RUN

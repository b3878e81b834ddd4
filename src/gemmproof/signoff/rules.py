"""Rules of a sign-off: what may not change from a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.properties.codec import decode, encode
from gemmproof.properties.contract import AXES, WITHOUT, Contract, Sizes
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import NOT_RUN, READS, UNJUDGED, Identity, PropertyResult
from gemmproof.report.text import format_ratio
from gemmproof.signoff.record import (
    ACCUMULATOR,
    INCOMPLETE,
    REFUSED,
    SIGNED,
    DriftClass,
    Inputs,
    KernelRecord,
    Reason,
    Signoff,
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel in a sign-off, with the inputs and the versions of that sign-off."""

    kernel: KernelRecord
    inputs: Inputs
    versions: Mapping[str, str]

    @property
    def facts(self) -> Identity | None:
        """The identity of the kernel, None if its source is not known."""
        facts = self.kernel.report.identity
        return facts if facts is not None and facts.source else None


Change = tuple[str, str]  # its weight and its text
Rule = Callable[[Judged, Judged], Iterator[Change]]

# -- source ---------------------------------------------------------------------------------------
NAMES_SHOWN = 6  # names of each sort


def compare_source(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield that the source changed."""
    if old.facts is None or new.facts is None:
        yield SIGNED, "source not compared: not known for both"
    elif old.facts.digest != new.facts.digest:
        yield SIGNED, describe_source(old.facts.source, new.facts.source)


def describe_source(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Describe the parts that changed, were added and were removed, by module and name."""
    changed = [label for label in new if label in old and old[label] != new[label]]
    sorts = {
        "": changed,
        "new ": [label for label in new if label not in old],
        "removed ": [label for label in old if label not in new],
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


# -- contract ------------------------------------------------------------------------------------
MOST = 4096  # sizes up to here are compared one by one
FLAGS = ("huge", "deterministic", "batch_invariant", "tensor_cores")
# older contracts lack these fields
_ADDED: Mapping[str, object] = {**WITHOUT, "fits": [], "host_epilogue": []}


def compare_contract(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the declarations that changed, each in one line."""
    if old.facts is None or new.facts is None:
        return
    for kind, before, now, usual in (
        ("contract", old.facts.contract, new.facts.contract, _ADDED),
        ("operand", old.facts.operands, new.facts.operands, {}),
    ):
        for name in dict.fromkeys((*before, *now)):
            was, is_now = (
                format_value(fields.get(name, usual.get(name))) for fields in (before, now)
            )
            if was != is_now:
                yield SIGNED, f"{kind} {name}: {was} -> {is_now}"
    if old.facts.formula != new.facts.formula:
        yield SIGNED, "the formula of the result changed"


def compare_guarantees(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the guarantees that a contract no longer makes, as far as texts can be compared.

    A property that failed before is no loss if it is expected to fail now.
    """
    if old.facts is None or new.facts is None:
        return
    before, now = old.facts.contract, new.facts.contract
    if before and now:
        failed = {p.name for p in old.kernel.report.properties if p.status == "fail"}
        for text in _list_lost({**_ADDED, **before}, {**_ADDED, **now}):
            yield REFUSED, text
        known, excused = (
            decode(dict[str, str], contract.get("expected") or {}, "contract.expected")
            for contract in (before, now)
        )
        for name in excused:
            if name not in known and name not in failed:
                text = f"{name} is no longer guaranteed but expected to fail: {excused[name]}"
                yield REFUSED, text


def _list_lost(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in old["formats"]:
        if name not in new["formats"]:
            yield f"{name} is no longer guaranteed"
    for axis in AXES:
        size = _find_lost(old[axis], new[axis])
        if size is not None:
            yield f"{axis}={size} is no longer guaranteed ({old[axis]} -> {new[axis]})"
    if old["where"] is None and new["where"] is not None:
        yield f"sizes are guaranteed only where {new['where']}"
    if lost := [name for name in _list_layouts(old) if name not in _list_layouts(new)]:
        yield f"layouts are no longer guaranteed: {' '.join(lost)}"
    for flag in FLAGS:
        if old[flag] and not new[flag]:
            yield f"{flag} is no longer guaranteed"
    if old["spills"] is not None and (new["spills"] is None or new["spills"] > old["spills"]):
        yield f"spills of at most {old['spills']} bytes are no longer guaranteed"
    if lost := [gpu for gpu in old["fits"] if gpu not in new["fits"]]:
        yield f"fitting on {' '.join(lost)} is no longer guaranteed"
    if more := [name for name in new["host_epilogue"] if name not in old["host_epilogue"]]:
        yield f"results may be written on the host, by {' '.join(more)}"
    if FORMATS[old["accumulator"]].p > FORMATS[new["accumulator"]].p:
        yield f"the accumulator is {new['accumulator']} instead of {old['accumulator']}"


def _find_lost(old: str, new: str) -> int | None:
    """Return the smallest size that is no longer guaranteed, None if there is none."""
    was, is_now = Sizes.of(old), Sizes.of(new)
    return next((n for n in (*range(MOST + 1), was.high) if n in was and n not in is_now), None)


def _list_layouts(contract: Mapping[str, Any]) -> tuple[str, ...]:
    declared = contract["layouts"]
    layouts = declared if isinstance(declared, str) else tuple(declared)
    # huge views are a separate guarantee
    return Contract(layouts=layouts, batched=contract["batched"]).layout_names


def format_value(value: Any) -> str:
    """Format a value of a contract."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {x}" for key, x in value.items()) or "none"
    return " ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


# -- measurements ---------------------------------------------------------------------------------
def compare_mutation(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield that more mutants survive, or that their score is gone."""
    was, now = old.kernel.mutation, new.kernel.mutation
    if was is not None and now is None and new.kernel.is_held:  # else graver reasons apply
        reason = new.kernel.why_not_mutated or "--mutation was left out"
        yield INCOMPLETE, f"the mutation score is missing now: {reason}"
    if was is not None and now is not None and now.survivors > was.survivors:
        yield REFUSED, f"{format_count(now.survivors, 'mutant')} survive, {was.survivors} before"


def compare_drift(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield that sums keep less than before, in any format, or that this is no longer measured."""
    measured = [drift for drift in old.kernel.drift if drift.name]
    if measured and not new.kernel.drift:
        yield INCOMPLETE, "its drift was measured, but not this time (--drift)"
        return
    current = {drift.format: drift for drift in new.kernel.drift}
    for was in measured:
        now = current.get(was.format)
        if now is None or now.missed:  # which is a lost guarantee, or reported as such
            continue
        if not now.name:
            yield (
                INCOMPLETE,
                f"its drift in {was.format} was measured, but not this time: {now.why}",
            )
        elif was.gpu != now.gpu:
            yield SIGNED, f"drift in {was.format} not compared: {was.gpu} -> {now.gpu}"
        elif lost := list(_list_narrowed(was, now)):
            text = f"{', '.join(lost)} ({was.name} -> {now.name})"
            yield REFUSED, f"sums in {was.format} keep fewer bits: {text}"
        elif was.name != now.name:
            yield SIGNED, f"the accumulator for {was.format} changed: {was.name} -> {now.name}"


def _list_narrowed(old: DriftClass, new: DriftClass) -> Iterator[str]:
    """Yield the ways in which sums keep less than before."""
    if new.keeps < old.keeps:
        yield f"{new.keeps} bits kept, {old.keeps} before"
    if new.reads < old.reads:
        yield f"{new.reads} bits of operands used, {old.reads} before"
    if new.truncated and not old.truncated:
        yield "c is truncated now"


# -- results -------------------------------------------------------------------------------------
CASES_SHOWN = 3  # cases with other bits that are listed


def compare_properties(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the properties that are no longer run."""
    ran = [p for p in old.kernel.report.properties if p.status not in UNJUDGED]
    on_gpu = [p for p in ran if p.backend == "cuda"] if new.inputs.device == "cpu" else []
    if on_gpu:
        yield INCOMPLETE, f"{format_count(len(on_gpu), 'property')} ran on a GPU before, none now"
    is_same_search = old.inputs == replace(new.inputs, kernels=old.inputs.kernels)
    # with other draws a property may apply to no case
    is_excused = not is_same_search or (_is_same_kernel(old, new) and old.versions == new.versions)
    status = {p.label: p.status for p in new.kernel.report.properties}
    for p in ran:
        # the drift covers the accumulator
        # one that is not exercised is a gap without a baseline, too
        if p not in on_gpu and p.name != ACCUMULATOR and status.get(p.label, NOT_RUN) == NOT_RUN:
            weight = INCOMPLETE if is_excused and p.label in status else REFUSED
            yield weight, f"{p.label} is no longer run"


def compare_proofs(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the properties that were proved and are not, and those that are proved now."""
    for was, now in _list_both(old, new):
        if now.is_proved and not was.is_proved:
            yield SIGNED, f"{now.label} is now proved"
        if not was.is_proved or now.is_proved or now.status == "fail":
            continue
        if now.proof is None:
            yield INCOMPLETE, f"{now.label} was proved before; no proof was tried now"
        else:
            weight = INCOMPLETE if now.proof.cut else REFUSED
            yield (
                weight,
                f"{now.label} was proved before, is {now.proof.status} now: {now.proof.why}",
            )


def compare_errors(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the properties whose worst error grew, as a share of its bound."""
    if old.inputs.target == new.inputs.target:
        for was, now in _list_both(old, new):
            if was.ratio is not None and now.ratio is not None and now.ratio > was.ratio:
                text = f"{format_ratio(was.ratio)} -> {format_ratio(now.ratio)} of its bound"
                yield SIGNED, f"the worst error of {now.label} grew: {text}"


def compare_limits(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the limits that are new, gone or elsewhere."""
    known = {limit.name: limit for limit in new.kernel.report.limits}
    for was in old.kernel.report.limits:
        now = known.get(was.name)
        if now is None:
            # another kernel may guarantee it now, or it does not apply
            if was.status == "holds" and _is_same_kernel(old, new):
                yield INCOMPLETE, f"{was.name} held before; not tried now"
        elif was.status == "holds" and now.status == "not tried":
            yield INCOMPLETE, f"{was.name} held before; not tried now: {now.message}"
        elif was.status == "holds" and now.status != "holds":
            yield REFUSED, f"{was.name} held before; now {now.message}"
        elif was.status == "limit" and now.status == "holds":
            yield SIGNED, f"{was.name} is no longer a limit"
        elif was.proof and now.proof and was.proof != now.proof:
            yield SIGNED, f"{was.name}: the exact limit was {was.proof}; now {now.proof}"


def compare_bits(old: Judged, new: Judged) -> Iterator[Change]:
    """Yield the cases whose results have other bits."""
    was, now = old.kernel.report.coverage, new.kernel.report.coverage
    if was is None or now is None or old.inputs.target != new.inputs.target:
        yield SIGNED, "bits not compared: different targets, or not known"
        return
    known = {entry.case: entry.digest for entries in was.bits.values() for entry in entries}
    common = [e for entries in now.bits.values() for e in entries if e.case in known]
    if not common:
        yield SIGNED, "bits not compared: no case in common"
    if changed := [entry.case for entry in common if entry.digest != known[entry.case]]:
        shown = " ".join(changed[:CASES_SHOWN]) + " ..." * (len(changed) > CASES_SHOWN)
        text = f"bits changed at {len(changed)} of {format_count(len(common), 'case')}: {shown}"
        if _is_same_kernel(old, new) and old.versions == new.versions:
            yield INCOMPLETE, f"{text}, though source, contract and versions are the same"
        else:
            yield SIGNED, text


def _is_same_kernel(old: Judged, new: Judged) -> bool:
    return old.facts is not None and old.facts == new.facts


def _list_both(old: Judged, new: Judged) -> list[tuple[PropertyResult, PropertyResult]]:
    """List the results of each property in both sign-offs."""
    results = {p.label: p for p in new.kernel.report.properties}
    known = old.kernel.report.properties
    return [(p, results[p.label]) for p in known if p.label in results]


# -- rules ---------------------------------------------------------------------------------------
# the kind of its changes -> a rule, the causes first
RULES: Mapping[str, Rule] = {
    "source": compare_source,
    "contract": compare_contract,
    "guarantee": compare_guarantees,
    "mutation": compare_mutation,
}
# rules of a kernel that held: otherwise graver reasons apply
RULES_OF_RESULTS: Mapping[str, Rule] = {
    "drift": compare_drift,
    "property": compare_properties,
    "proof": compare_proofs,
    "error": compare_errors,
    "limit": compare_limits,
    "bits": compare_bits,
}
# the values of --accept: the kinds of gaps and of changes that count against signing
EXERCISE, BRANCH = ("exercise", "branch")
GAPS = (EXERCISE, BRANCH, READS)
ACCEPTED = (
    "bits", BRANCH, "drift", EXERCISE, "guarantee", "kernel", "limit", "mutation", "proof",
    "property", READS,
)  # fmt: skip


def compare(before: Signoff, now: Signoff) -> Iterator[Reason]:
    """Yield every difference of a sign-off from its baseline."""
    yield from _compare_inputs(before, now)
    old, new = ({k.report.target: k for k in signoff.kernels} for signoff in (before, now))
    for name in old:
        if name not in new:
            yield Reason(name, *_explain_missing(name, now))
    for name in new:
        if name not in old:
            yield Reason(name, "new", SIGNED, "new: not in the baseline")
    for name in new:
        if name in old:
            judged = (
                Judged(old[name], before.inputs, before.versions),
                Judged(new[name], now.inputs, now.versions),
            )
            rules = {**RULES, **RULES_OF_RESULTS} if new[name].is_held else RULES
            for kind, rule in rules.items():
                yield from (Reason(name, kind, *change) for change in rule(*judged))


def _compare_inputs(before: Signoff, now: Signoff) -> Iterator[Reason]:
    old, new = encode(before.inputs), encode(now.inputs)
    for name in old:
        if old[name] != new[name] and name != "kernels":
            yield Reason("", "inputs", SIGNED, f"{name}: {old[name]} -> {new[name]}")
    for name in dict.fromkeys((*before.versions, *now.versions)):
        was, is_now = (signoff.versions.get(name, "none") for signoff in (before, now))
        if was != is_now:
            yield Reason("", "versions", SIGNED, f"{name} {was} -> {is_now}")


def _explain_missing(name: str, now: Signoff) -> tuple[str, str, str]:
    if now.inputs.kernels:
        return "inputs", SIGNED, "not compared: not named by --kernel"
    if name in now.left_out:
        reason = "checked on a GPU in the baseline, but this run had none"
        return "kernel", INCOMPLETE, reason
    return "kernel", REFUSED, "gone: in the baseline, but no longer registered"

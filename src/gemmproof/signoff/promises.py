"""What two contracts promise, beside each other: which words changed, and which promise is gone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from gemmproof.properties.contract import AXES, WITHOUT, Contract, Sizes
from gemmproof.reference.formats import FORMATS
from gemmproof.report.facts import Identity

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

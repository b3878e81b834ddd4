"""A sweep on one screen: what each change costs, by line; and which change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemmproof.lowering.record import SCHEMA, LoweredLaunch
from gemmproof.lowering.run import LoweredTarget
from gemmproof.lowering.sweep.compare import compare
from gemmproof.lowering.sweep.variants import say_known
from gemmproof.reference.provenance import say_count
from gemmproof.report.text import STYLES, Line, clean

SHOWN_CHANGES = 4  # lines on one change
WIDTH = 22  # of the first column
_SHORT = {"": "neither", "16": "16", "1": "1"}


def collect(made: Sequence[LoweredTarget]) -> list[dict[str, Any]]:
    """Each launch as it is, with its variants and how they differ from it."""
    found: list[dict[str, Any]] = []
    for one in made:
        bases: dict[tuple[str, int], dict[str, Any]] = {}
        for lowering, variant in zip(one.lowerings, one.variants, strict=True):
            key = (lowering.dtype, variant["base"])
            if not variant["change"]:
                bases[key] = {"launch": lowering, "variants": []}
                found.append(bases[key])
            elif key in bases:
                bases[key]["variants"].append(_compare(bases[key]["launch"], lowering, variant))
    return found


def _compare(base: LoweredLaunch, other: LoweredLaunch, variant: dict[str, Any]) -> dict[str, Any]:
    told = {**variant, "launch": other, "same_binary": False}
    told |= {"changes": [], "needs": [], "losses": []}
    if base.error or other.error:
        return told
    found = compare(base, other)
    told |= {name: list(getattr(found, name)) for name in ("changes", "needs", "losses")}
    return {**told, "same_binary": base.binary == other.binary}


def document(name: str, made: Sequence[LoweredTarget], failures: list[str]) -> dict[str, Any]:
    """What `--json` writes of a sweep."""
    sweep = [
        {
            "launch": one["launch"].to_dict(),
            "variants": [{**x, "launch": x["launch"].to_dict()} for x in one["variants"]],
        }
        for one in collect(made)
    ]
    notes = {one.gpu: one.notes for one in made}
    return {"schema": SCHEMA, "name": name, "sweep": sweep, "notes": notes, "failures": failures}


def lines(name: str, made: Sequence[LoweredTarget], seconds: float) -> list[Line]:
    """What `lowering --sweep` prints."""
    out: list[Line] = []
    compared = losing = same = refused = 0
    for target in made:
        for one in collect([target]):
            out += [*_describe(one["launch"], one["variants"]), ("", "")]
            compared += len(one["variants"])
            losing += sum(bool(x["losses"]) for x in one["variants"])
            same += sum(x["same_binary"] for x in one["variants"])
            refused += sum(bool(x["launch"].error) for x in (*one["variants"], one))
        out += [(clean(f"{target.gpu}: {line}"), "dim") for line in _join_notes(target.notes)]
        out += [(clean(line), STYLES["fail"]) for line in target.failures]
        if target.mistake:
            out.append((clean(f"{target.gpu}: {target.mistake}"), STYLES["fail"]))
        refused += len(target.failures) + bool(target.mistake)
    told = f"{say_count(compared, 'change')} compared for {' '.join(x.gpu for x in made)}: "
    told += f"{losing} cost something, {same} give the same binary"
    told += f", {refused} not compiled" if refused else ""
    style = STYLES["incomplete" if refused else "pass"]
    return [*out, (clean(f"{name}: {told} ({seconds:.1f} s)"), style)]


def _join_notes(notes: Sequence[str]) -> Iterator[str]:
    """Each note once, of the same words all changes together."""
    changes: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        change, colon, words = note.partition(": ")
        if not colon:
            change, words = "", note
        changes.setdefault(words, []).append(change)
    for words, found in changes.items():
        named = "; ".join(x for x in found if x)
        yield f"{named}: {words}" if named else words


def _describe(base: LoweredLaunch, variants: Sequence[dict[str, Any]]) -> Iterator[Line]:
    told = " ".join(f"{name}={x}" for name, x in base.configuration.items())
    of = f", one of {base.configurations}" if base.configurations > 1 else ""
    yield (clean(f"{base.kernel} {base.dtype} for {base.target}: {told}{of}"), "bold")
    if base.error or base.resources is None:
        yield (clean(f"  not compiled: {base.error}"), STYLES["fail"])
        return
    needs = f"{base.resources.registers} registers"
    spills = f", {base.resources.spills} bytes spilled" if base.resources.spills else ""
    yield _row("as it is", f"{needs}{spills}")
    for known in ("16", "1", ""):
        names = [name for name, x in base.specialised.items() if x == known]
        if names:
            yield _row(say_known(known), " ".join(names))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in variants:
        if one["losses"]:
            groups.setdefault(tuple(one["changes"] or one["losses"]), []).append(one)
    for changes, group in groups.items():
        yield from _describe_loss(changes, group)
    others = {
        "another binary": [x for x in variants if not x["losses"] and not x["same_binary"]],
        "the same binary": [x for x in variants if x["same_binary"]],
    }
    for words, group in others.items():
        group = [x for x in group if not x["launch"].error]
        if group:
            yield _row(words, "; ".join(_say(x) for x in group))
    for one in variants:
        if one["launch"].error:
            text, _ = _row(one["change"], f"not compiled: {one['launch'].error}")
            yield text, STYLES["fail"]


def _describe_loss(changes: Sequence[str], group: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """What is lost, by line of the source, and each change that loses it."""
    for i, line in enumerate(changes[:SHOWN_CHANGES]):
        text, _ = _row("" if i else "costs", line)
        yield text, STYLES["incomplete"]
    if (more := len(changes) - SHOWN_CHANGES) > 0:
        yield _row("", f"and {more} more lines: --json has all")
    for one in group:
        needs = one["launch"].resources
        told = f"{needs.registers} registers" if needs is not None else ""
        spilled = [x for x in one["losses"] if "spilled" in x or "fit" in x]
        yield _row(f"  {one['change']}", ", ".join([told, *spilled]) + _say_why(one))


def _say(one: dict[str, Any]) -> str:
    return f"{one['change']}{_say_why(one)}"


def _say_why(one: dict[str, Any]) -> str:
    """Of which arguments something else is known, and what else gives the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, (before, after) in one["arguments"].items():
        groups.setdefault((_SHORT[before], _SHORT[after]), []).append(name)
    said = [f"{' '.join(names)} {a} -> {b}" for (a, b), names in groups.items()]
    constants = one["constants"].items()
    said += [f"{name} {a} -> {b}" for name, (a, b) in constants if name != "kernel"]
    if one["altered"]:
        said = ["no case changes it alone"]
    if one["also"]:
        said.append(f"as {', '.join(one['also'])}")
    return f" ({'; '.join(said)})" if said else ""


def _row(first: str, rest: str) -> Line:
    return clean(f"  {first:<{WIDTH}} {rest}"), ""

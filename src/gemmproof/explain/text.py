"""An address map as text: each access with its index, its mask, its needs and what it lacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from gemmproof.properties.address_map import (
    INSIDE,
    MASKED,
    MISSING,
    AccessMap,
    AddressMap,
    KernelMap,
)
from gemmproof.report.text import STYLES, Line, clean

WIDTH = 96
_STATUS = {MISSING: "MISSING", INSIDE: "not needed: the address is in it", MASKED: MASKED}


def lines(explanation: AddressMap, line: int | None = None) -> list[Line]:
    """What `explain` prints; of one source line only, where it is given."""
    out: list[Line] = []
    for one in explanation.kernels:
        shown = [x for x in one.accesses if line in (None, x.line)]
        if shown or (one.failed and line is None):
            out += [*([("", "")] if out else []), *_kernel(one, shown, explanation.scope)]
    if explanation.open:
        out += [("", "")] if out else []
        out += [(clean(f"not followed: {why}"), STYLES["incomplete"]) for why in explanation.open]
    return out


def list_lines(explanation: AddressMap) -> list[int]:
    """The source lines that have an access."""
    return sorted({x.line for one in explanation.kernels for x in one.accesses})


def _kernel(one: KernelMap, shown: list[AccessMap], scope: str) -> Iterable[Line]:
    grid = ", ".join(one.grid)
    yield clean(f"kernel {one.kernel}, grid ({grid}), {scope}"), "bold"
    if one.path:
        yield from _wrap("  where ", one.path)
    if one.failed:
        yield clean(f"  not followed: {one.failed}"), STYLES["incomplete"]
    if one.constants:
        yield from _wrap("  with ", " ".join(f"{name}={value}" for name, value in one.constants))
    legend = _legend(shown)
    if legend:
        yield f"  {legend}", ""
    for access in shown:
        yield "", ""
        yield from _access(access, scope)


def _wrap(head: str, text: str) -> Iterable[Line]:
    """A long list over several lines."""
    row = head
    for word in clean(text).split(" "):
        if len(row) + len(word) > WIDTH and row.strip():
            yield row.rstrip(), ""
            row = " " * len(head)
        row += f"{word} "
    yield row.rstrip(), ""


def _legend(shown: list[AccessMap]) -> str:
    used = {
        word
        for access in shown
        for index in access.indices
        for word in re.findall(r"[A-Za-z_]\w*", index.formula)
    }
    lanes = [x for x in "ijlmn" if x in used]
    said = []
    if lanes:
        axes = {1: "the axis", 2: "the axes", 3: "the axes"}.get(len(lanes), "the axes")
        said.append(f"{', '.join(lanes)}: lanes along {axes} of a block")
    if "t" in used:
        said.append("t: the trip of the loop")
    return "; ".join(said)


def _access(access: AccessMap, scope: str) -> Iterable[Line]:
    place = f"{os.path.basename(access.file)}:{access.line}"
    place += f":{access.column}" if access.column else ""
    block = " x ".join(map(str, access.shape))
    what = f", a block of {block}" if block else ""
    yield clean(f"  {place}  {access.kind} {access.operand}{what}"), "bold"
    labels = max([4, *(len(index.axis) for index in access.indices)])
    left = [f"      {x.axis:{labels}} = {x.formula}" for x in access.indices]
    column = min(max(map(len, left)), 52) + 4
    for text, index in zip(left, access.indices, strict=True):
        first = True
        for need in index.needs:
            head = text if first else ""
            if len(head) + 2 > column:
                yield clean(head), ""
                head = ""
            said = _STATUS.get(need.status, need.status)
            if need.status == MISSING:
                said += f", fails at {access.case}" if access.case else ""
            style = STYLES["fail"] if need.status == MISSING else ""
            yield clean(f"{head:{column}}needs {need.words}: {said}"), style
            first = False
        if first:
            yield clean(text), ""
    if access.mask != "always":
        yield from _wrap(f"      {'mask':{labels}} : ", access.mask)
    else:
        yield f"      {'mask':{labels}} : none", ""
    if access.why:
        yield clean(f"      not decided: {access.why}"), STYLES["incomplete"]
    if access.fix is not None:
        yield from _fix(access, scope)


def _fix(access: AccessMap, scope: str) -> Iterable[Line]:
    fix = access.fix
    assert fix is not None
    verb = "missing" if access.status == MISSING else "it would take"
    if not fix.condition:
        said = "; with it every lane is within it" if fix.proved else ""
        yield clean(f"      {verb}: {fix.words}{said}"), ""
        return
    head = "give it the mask:" if access.mask == "always" else "add to the mask: &"
    yield clean(f"      {head} {fix.condition}"), STYLES["pass"]
    for text in fix.call.splitlines():
        yield clean(f"          {text}"), ""
    yield clean(f"      proved: then every lane is within {access.operand}, for {scope}"), ""
    if fix.besides:
        said = "which no lane needs: it may test the wrong index or size"
        yield from _wrap("      the mask also tests ", f"{fix.besides}, {said}")

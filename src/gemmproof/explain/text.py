"""An address map as text, each access with its index, mask and needs; and pages of help."""

from __future__ import annotations

import os
import posixpath
import re
import textwrap
from collections.abc import Iterable

from gemmproof.properties.address_map import (
    INSIDE,
    MASKED,
    MISSING,
    AccessMap,
    AddressMap,
    KernelMap,
)
from gemmproof.properties.help import EXAMPLE, Page, read_properties
from gemmproof.report.text import STYLES, Line, clean

WIDTH = 96
_STATUS = {MISSING: "MISSING", INSIDE: "not needed: the address is in bounds", MASKED: MASKED}


def lines(explanation: AddressMap, line: int | None = None) -> list[Line]:
    """Return the output of `explain`; of one source line only, if `line` is given."""
    out: list[Line] = []
    for kernel in explanation.kernels:
        shown = [x for x in kernel.accesses if line in (None, x.line)]
        if shown or (kernel.failed and line is None):
            out += [*([("", "")] if out else []), *_kernel(kernel, shown, explanation.scope)]
    if explanation.open:
        out += [("", "")] if out else []
        out += [
            (clean(f"not analysed: {reason}"), STYLES["incomplete"]) for reason in explanation.open
        ]
    return out


def list_lines(explanation: AddressMap) -> list[int]:
    """Return the source lines that have an access."""
    return sorted({x.line for kernel in explanation.kernels for x in kernel.accesses})


def _kernel(kernel: KernelMap, shown: list[AccessMap], scope: str) -> Iterable[Line]:
    grid = ", ".join(kernel.grid)
    yield clean(f"kernel {kernel.kernel}, grid ({grid}), {scope}"), "bold"
    if kernel.path:
        yield from _wrap("  where ", kernel.path)
    if kernel.failed:
        yield clean(f"  not analysed: {kernel.failed}"), STYLES["incomplete"]
    if kernel.constants:
        yield from _wrap("  with ", " ".join(f"{name}={value}" for name, value in kernel.constants))
    legend = _legend(shown)
    if legend:
        yield f"  {legend}", ""
    for access in shown:
        yield "", ""
        yield from _access(access, scope)


def _legend(shown: list[AccessMap]) -> str:
    used = {
        word
        for access in shown
        for index in access.indices
        for word in re.findall(r"[A-Za-z_]\w*", index.formula)
    }
    lanes = [x for x in "ijlmn" if x in used]
    parts = []
    if lanes:
        axes = {1: "the axis", 2: "the axes", 3: "the axes"}.get(len(lanes), "the axes")
        parts.append(f"{', '.join(lanes)}: lanes along {axes} of a block")
    if "t" in used:
        parts.append("t: the iteration of the loop")
    return "; ".join(parts)


def _access(access: AccessMap, scope: str) -> Iterable[Line]:
    location = f"{os.path.basename(access.file)}:{access.line}"
    location += f":{access.column}" if access.column else ""
    block = " x ".join(map(str, access.shape))
    what = f", a block of {block}" if block else ""
    yield clean(f"  {location}  {access.kind} {access.operand}{what}"), "bold"
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
            status = _STATUS.get(need.status, need.status)
            if need.status == MISSING:
                status += f", fails at {access.case}" if access.case else ""
            style = STYLES["fail"] if need.status == MISSING else ""
            yield clean(f"{head:{column}}needs {need.text}: {status}"), style
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
    verb = "missing" if access.status == MISSING else "would suffice"
    if not fix.condition:
        note = "; then every lane is in bounds" if fix.proved else ""
        yield clean(f"      {verb}: {fix.text}{note}"), ""
        return
    head = "give it the mask:" if access.mask == "always" else "add to the mask: &"
    yield clean(f"      {head} {fix.condition}"), STYLES["pass"]
    for text in fix.call.splitlines():
        yield clean(f"          {text}"), ""
    yield clean(f"      proved: then every lane is within {access.operand}, for {scope}"), ""
    if fix.besides:
        note = "which no lane needs: it may test the wrong index or size"
        yield from _wrap("      the mask also tests ", f"{fix.besides}, {note}")


# -- pages of help -------------------------------------------------------------------------------
def page_lines(page: Page) -> list[Line]:
    """Return the output of `explain` of a property, or of a fault and of what it breaks."""
    head, sections = f"{page.name}: {page.claim}", page.sections
    if broken := [read_properties()[name] for name in page.breaks]:
        head = f"{page.name}, a fault: {page.claim}"
        shown = next(p for p in (page, broken[0]) if any(map(is_example, p.sections)))
        sections = {
            "Violated properties": tuple(f"{p.name}: {p.claim}" for p in broken),
            **page.sections,
            **{title: items for title, items in shown.sections.items() if is_example(title)},
            "See also": tuple(f"gemmproof explain {p.name}" for p in broken),
        }
    out = _wrap("", head, "  ", "bold")
    for title, items in sections.items():
        out += [("", ""), *_wrap("", title, "  ", "bold")]
        for item in items:
            style = {"-": "red", "+": "green"}.get(item[0], "") if is_example(title) else ""
            text = re.sub(r"\[[^]]*\]\((\.\./[^)]*)\)", _locate, item)
            out += _wrap("  ", text, "    ", style)
    return out


def _locate(link: re.Match[str]) -> str:
    """Return the path of a page in the repository, from a link of docs/reference/properties."""
    return posixpath.normpath(f"docs/reference/properties/{link[1]}")


def is_example(title: str) -> bool:
    """Return whether a section of a page has a wrong line of a kernel, and its fix."""
    return title.startswith(EXAMPLE)


def _wrap(head: str, text: str, hang: str = "", style: str = "") -> list[Line]:
    """Wrap a text after its head; further lines begin with `hang`, or below the text."""
    wrapped = textwrap.wrap(
        head + clean(text),
        WIDTH,
        subsequent_indent=hang or " " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [(line, style) for line in wrapped]

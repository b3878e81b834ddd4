"""Changes of a case by which a launch is specialised otherwise: a size, a layout, an operand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import BATCHED, LAYOUTS, ROW, view
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import KernelUnderTest

DIVISIBLE = 16  # what Triton asks of sizes, strides and addresses
_SWEPT = ("column", "padded", "transposed", "sliced", "misaligned", "batch_inner", "shared")


def list_changes(
    case: Case, kernel: KernelUnderTest, layouts: Collection[str]
) -> Iterator[tuple[str, Case]]:
    """One thing changed at a time, in words, and the case; sizes are those that are admitted.

    Two things where a row is padded by what its length loses, so that its stride stays divisible.
    """
    found = (_change_sizes(case), _change_layouts(case, layouts), _change_operands(case, kernel))
    for words, changes in (pair for part in found for pair in part):
        try:
            changed = replace(case, **changes)
        except ValueError:  # more elements than a case may have
            continue
        if kernel.contract.admits(changed.sides):
            yield words, changed


Changes = Iterator[tuple[str, dict[str, Any]]]


def _change_sizes(case: Case) -> Changes:
    for axis, size in case.sides.items():
        odd = size - 1 if size > 1 else 3
        other = odd if size % DIVISIBLE == 0 or size == 1 else size + -size % DIVISIBLE
        for n in dict.fromkeys((other, 1)):
            if n != size:
                yield f"{axis}={n}", {axis: n}


def _change_layouts(case: Case, layouts: Collection[str]) -> Changes:
    for name, role in ROLES.items():
        for layout in (ROW, *_SWEPT):
            fits = case.batch is not None or layout not in BATCHED
            if fits and layout in layouts and layout != case.layout(name):
                yield f"{name} {layout}", _lay_out(case, name, layout)
        rows = role.axes[1]
        _, height, width = case.shape_of(name)
        lead = view("padded", (1, height, width), role.number, 2).strides[1]
        if "padded" in layouts and case.layout(name) == ROW and width > lead - width:
            size = width - (lead - width)
            padded = _lay_out(case, name, "padded")
            yield f"{rows}={size}, {name} padded", {rows: size, **padded}


def _lay_out(case: Case, name: str, layout: str) -> dict[str, Any]:
    return {"layouts": tuple({**dict(case.layouts), name: layout}.items())}


def _change_operands(case: Case, kernel: KernelUnderTest) -> Changes:
    said = dict(case.arguments)
    for name, words in kernel.list_options().items():
        for word in words:
            if word != said.get(name, words[0]) and (word in _SWEPT or word not in LAYOUTS):
                yield f"{name} {word}", {"arguments": tuple({**said, name: word}.items())}

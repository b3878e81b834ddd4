"""What lies beyond a contract: for each word that could be wider, the cases that would show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile, is_admitted
from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, HUGE, LAYOUTS, ROW
from gemmproof.properties.contract import AXES, ROLES, Contract
from gemmproof.reference.formats import OPERANDS


@dataclass(frozen=True, slots=True)
class Beyond:
    """One step beyond a contract, in words, and the option that promises it.

    `words` are the words of the wider contract, `cases` what is tried, the simplest first.
    """

    name: str
    option: str
    words: dict[str, Any]
    cases: tuple[Case, ...]


def list_beyond(contract: Contract, tile: Tile) -> Iterator[Beyond]:
    """Every step beyond a contract that has cases; tile is the kernel's (BLOCK_M, N, K)."""
    for name, option, words, cases in _list_steps(contract, _middle_case(contract, tile), tile):
        wider = replace(contract, **words)
        tried = tuple(case for case in dict.fromkeys(cases) if is_admitted(case, wider))
        if tried:
            yield Beyond(name, option, words, tried)


def _middle_case(contract: Contract, tile: Tile) -> Case:
    """A case with some of everything: a ragged tile along each axis."""
    sides = {axis: block + 1 for axis, block in zip("MNK", tile, strict=True)}
    if contract.batched:
        sides["batch"] = 2
    fitted: dict[str, Any] = contract.fit(sides) or {"M": 1, "N": 1, "K": 1}
    return Case(dtype=contract.formats[0], **fitted)


_Step = tuple[str, str, dict[str, Any], list[Case]]


def _list_steps(contract: Contract, case: Case, tile: Tile) -> Iterator[_Step]:
    blocks, words = dict(zip("MNK", tile, strict=True)), dict[str, Any]()
    for axis in AXES if contract.batched else AXES[:3]:
        sizes = contract.sizes(axis)
        if sizes.low == sizes.high:
            continue  # a kernel for one size, as a GEMV is, says nothing about others
        if sizes.step > 1 or sizes.low > 1:
            words = {axis: f"1..{sizes.high}"}
            block = blocks.get(axis, 1)
            others = (1, sizes.low - 1, sizes.low + 1, block + 1, 2 * block - 1, sizes.step // 2)
            tried = [_with(case, axis, n) for n in others if n > 0 and n not in sizes]
            yield f"{axis} not in {sizes}", f"--sizes {axis}=1..", words, tried
        elif 0 not in sizes:
            words = {axis: f"0..{sizes.high}"}
            yield f"{axis} = 0", f"--sizes {axis}=0..", words, [_with(case, axis, 0)]
    if contract.layouts == CONTIGUOUS:
        strided = [n for n in LAYOUTS if n not in (*HUGE, ROW, "misaligned")]
        yield "any strides", "--layouts any", {"layouts": ANY}, _lay_out(case, strided)
        yield "misaligned", "--layouts any", {"layouts": ANY}, _lay_out(case, ["misaligned"])
    if contract.layouts in (CONTIGUOUS, ANY) and not contract.huge:
        words = {"layouts": ANY, "huge": True}
        yield "2**31 elements", "--huge", words, _lay_out(case, [*HUGE])
    for dtype in OPERANDS:
        if dtype not in contract.formats:
            words = {"formats": (*contract.formats, dtype)}
            other = replace(case, dtype=dtype)
            # integers of a few bits do not show that fp32 operands are read as tf32
            tried = [other, replace(other, fill="normal", seed=1)]
            yield dtype, f"--dtype {dtype}", words, tried


def _with(case: Case, axis: str, n: int) -> Case:
    sides: dict[str, Any] = {axis: n}
    return replace(case, **sides)


def _lay_out(case: Case, names: list[str]) -> list[Case]:
    return [
        (case if name != "narrow_batch" else replace(case, batch=3)).with_layout(operand, name)
        for name in names
        if case.batch is not None or name not in BATCHED
        for operand in ROLES
    ]

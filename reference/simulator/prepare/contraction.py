"""Whether a compiler may make one fma of a product and of the sum that it goes into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gemmproof.reference.ptx.operation import name_freedom
from gemmproof.reference.simulator.prepare.draft import Draft, Instr

_PRODUCTS = ("arith.mulf",)
_SUMS = ("arith.addf", "arith.subf")
#: What computes a new number, or reads one: its result is no product, whatever it is made of.
_NEW = (*_SUMS, "arith.divf", "tt.precise_divf", "tt.approx_divf", "tt.dot", "tt.dot_scaled")
_NEW_TOO = ("math.", "arith.cmp", "arith.m", "tt.load", "tt.descriptor_load", "tt.extern_")
_ASM = "tt.elementwise_inline_asm"
_MNEMONIC = re.compile(r"\b[a-z]\w*(?:\.\w+)+")


def may_contract(drafts: Iterable[Draft]) -> bool:
    """Whether a product of floats reaches a sum, moved or chosen between, but not computed with.

    Backends allow LLVM and the assembler that where Triton does not forbid it (its option
    enable_fp_fusion); an fma that is written as one leaves them nothing to choose. Every operation
    that is not known to make a new number counts as one that moves its operands, as do loops.
    """
    blocks = list(drafts)
    moved: dict[int, list[int]] = {}
    products: list[int] = []
    sums: set[int] = set()
    for to, source in _list_moves(blocks):
        moved.setdefault(source, []).append(to)
    for instr in (i for draft in blocks for i in draft.instrs):
        free = _find_freedom(instr)
        if "*" in free and {"+", "-"} & free:
            return True  # in assembly that has both
        if {"+", "-"} & free:
            sums.update(instr.sources)
        if "*" in free:
            products += instr.results
        elif not instr.op.name.startswith((*_NEW, *_NEW_TOO)):
            for source in instr.sources:
                moved.setdefault(source, []).extend(instr.results)
    seen: set[int] = set()
    while products:
        slot = products.pop()
        if slot in sums:
            return True
        if slot not in seen:
            seen.add(slot)
            products += moved.get(slot, ())
    return False


def _list_moves(drafts: Iterable[Draft]) -> Iterator[tuple[int, int]]:
    """(to, from) of every edge between blocks."""
    for draft in drafts:
        for _, moves in draft.end.edges:
            yield from moves


def _find_freedom(instr: Instr) -> set[str]:
    """The sums and products of floats that an operation leaves to the compiler."""
    name = instr.op.name
    if name == _ASM:
        return {name_freedom(word) for word in _MNEMONIC.findall(instr.op.strings[0])}
    return {"*"} if name in _PRODUCTS else {"+"} if name in _SUMS else set()

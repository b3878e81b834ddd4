"""Whether a compiler may make one fma of a product and of the sum that it goes into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from gemmproof.reference.dot.split import SPLITS
from gemmproof.reference.ptx.operation import name_freedom
from gemmproof.reference.simulator.ops.dots.dot import folds_sum
from gemmproof.reference.simulator.prepare.draft import Draft, Instr
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.module import Function, Op

Constants = Mapping[int, Value]
Functions = Mapping[str, Function]

_FREEDOM = {"arith.mulf": "*", "arith.addf": "+", "arith.subf": "+"}
#: What computes or reads a new number: its result is no product, whatever it is made of.
_NEW = (
    *("arith.addf", "arith.subf", "arith.divf", "arith.remf", "arith.cmpf", "arith.cmpi"),
    *("tt.precise_divf", "tt.approx_divf", "tt.dot", "tt.dot_scaled", "tt.extern_elementwise"),
    *("tt.load", "tt.descriptor_load", "tt.descriptor_gather"),
)
_EXTREMES = ("arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")
_ASM = "tt.elementwise_inline_asm"
_MNEMONIC = re.compile(r"\b[a-z]\w*(?:\.\w+)+")


def may_contract(
    drafts: Iterable[Draft], constants: Constants, functions: Functions, target: str | None
) -> bool:
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
        free = _find_freedom(instr, constants, functions)
        if {"*", "+"} <= free and instr.op.name != "math.fma":
            return True  # an operation that has both within it
        sums.update(instr.sources if "+" in free else _find_addends(instr, target))
        if "*" in free:
            products += instr.results
        for source in _list_moved(instr, constants):
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


def _find_freedom(instr: Instr, constants: Constants, functions: Functions) -> set[str]:
    """ "*" and "+": the products and sums of floats that an operation leaves to the compiler."""
    op = instr.op
    if op.name == "math.fma":  # by 1 it is a sum, onto 0 a product
        neutral = any(s in constants and _is_neutral(constants[s]) for s in instr.sources)
        return {"*", "+"} if neutral else set()
    if op.name == _ASM:
        free = {name_freedom(word) for word in _MNEMONIC.findall(op.strings[0])}
        return {"+" if word == "-" else word for word in free}
    inner = set() if op.name.startswith("scf.") else set(_list_within(op, functions))
    if inner & {"math.fma", _ASM}:  # of anything
        return {"*", "+"}
    return {_FREEDOM.get(name, "") for name in (op.name, *inner)} - {""}


def _list_within(op: Op, functions: Functions) -> Iterator[str]:
    """The names of the operations in its regions, and in the functions that those call.

    Not for loops and branches, whose operations are in the program's blocks.
    """
    regions = [functions[op.words[0]].body] if op.name == "tt.call" else op.regions
    for inner in (x for region in regions for block in region for x in block.ops):
        yield inner.name
        yield from _list_within(inner, functions)


def _find_addends(instr: Instr, target: str | None) -> tuple[int, ...]:
    """What of a dot's operands the compiler adds to something itself."""
    if instr.op.name != "tt.dot":
        return ()
    # the parts of split operands are differences; a promoted sum is added to by the compiler
    split = instr.sources[:2] if instr.op.attrs.get("inputPrecision") in SPLITS else ()
    promoted = target is not None and not folds_sum(instr.op, target)
    return (*split, *(instr.sources[2:3] if promoted else ()))


def _list_moved(instr: Instr, constants: Constants) -> tuple[int, ...]:
    """The operands that may be the result, as they are."""
    name = instr.op.name
    if name == "tt.load":
        return instr.sources[2:]  # what masked lanes hold
    if name in _EXTREMES:  # of a number that is known they may be that one; others may be dropped
        known = [constants[s] for s in instr.sources if s in constants]
        return () if any(np.isfinite(x.data).all() for x in known) else instr.sources
    is_new = name in _NEW or (name.startswith("math.") and name != "math.absf")
    return () if is_new else instr.sources


def _is_neutral(x: Value) -> bool:
    return bool(np.isin(np.abs(np.asarray(x.data, np.float64)), (0.0, 1.0)).all())

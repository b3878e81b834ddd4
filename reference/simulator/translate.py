"""TTIR translated to a flat program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import triton

from gemmproof.reference.dot import SPLITS
from gemmproof.reference.ptx.instruction_operands import label_freedom
from gemmproof.reference.simulation import Unsupported, Where
from gemmproof.reference.simulator.access_checks import check_counter, check_defined
from gemmproof.reference.simulator.axis_analysis import has_hints
from gemmproof.reference.simulator.ops import OPERATIONS
from gemmproof.reference.simulator.ops.dots import folds_sum, is_zero
from gemmproof.reference.simulator.ops.follow import follow
from gemmproof.reference.simulator.ops.hints import HINTS, judge_hints
from gemmproof.reference.simulator.ops.registry import refusal
from gemmproof.reference.simulator.program import (
    BasicBlock,
    Draft,
    Env,
    Exit,
    Frame,
    Instr,
    Program,
    Scope,
    Step,
    carry_over,
    count_turn,
    leap,
    start_count,
)
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir import I1, I64, Block, Function, Loc, Op, Type

# -- contractions --------------------------------------------------------------------------------
Constants = Mapping[int, Value]
Functions = Mapping[str, Function]

_FREEDOM = {"arith.mulf": "*", "arith.addf": "+", "arith.subf": "+"}
#: Operations that compute or read a new number: their result is no product, whatever the operands.
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
    """Return whether a product of floats reaches a sum unchanged, through moves and selections.

    Backends let LLVM and the assembler fuse the two unless Triton forbids it (its option
    enable_fp_fusion); an explicit fma leaves them no choice. Every operation that is not known to
    compute a new number counts as one that moves its operands, as do loops.
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
    """Yield (to, from) of every edge between blocks."""
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
        free = {label_freedom(word) for word in _MNEMONIC.findall(op.strings[0])}
        return {"+" if word == "-" else word for word in free}
    inner = set() if op.name.startswith("scf.") else set(_list_within(op, functions))
    if inner & {"math.fma", _ASM}:  # of anything
        return {"*", "+"}
    return {_FREEDOM.get(name, "") for name in (op.name, *inner)} - {""}


def _list_within(op: Op, functions: Functions) -> Iterator[str]:
    """Yield the names of the operations in its regions, and in the functions that those call.

    Not for loops and branches, whose operations are in the program's blocks.
    """
    regions = [functions[op.keywords[0]].body] if op.name == "tt.call" else op.regions
    for inner in (x for region in regions for block in region for x in block.ops):
        yield inner.name
        yield from _list_within(inner, functions)


def _find_addends(instr: Instr, target: str | None) -> tuple[int, ...]:
    """Return the operands of a dot that the compiler itself adds to something."""
    if instr.op.name != "tt.dot":
        return ()
    # the parts of split operands are differences; the compiler adds to a promoted sum
    split = instr.sources[:2] if instr.op.attrs.get("inputPrecision") in SPLITS else ()
    promoted = target is not None and not folds_sum(instr.op, target)
    return (*split, *(instr.sources[2:3] if promoted else ()))


def _list_moved(instr: Instr, constants: Constants) -> tuple[int, ...]:
    """Return the operands that may be the result, unchanged."""
    name = instr.op.name
    if name == "tt.load":
        return instr.sources[2:]  # the values of masked lanes
    if name in _EXTREMES:  # a finite constant makes it a new number; another may be dropped
        known = [constants[s] for s in instr.sources if s in constants]
        return () if any(np.isfinite(x.data).all() for x in known) else instr.sources
    is_new = name in _NEW or (name.startswith("math.") and name != "math.absf")
    return () if is_new else instr.sources


def _is_neutral(x: Value) -> bool:
    return bool(np.isin(np.abs(np.asarray(x.data, np.float64)), (0.0, 1.0)).all())


# -- flat program --------------------------------------------------------------------------------
def finish(
    drafts: list[Draft],
    constants: dict[int, Value],
    args: tuple[int, ...],
    types: list[Type],
    text: str,
    functions: Mapping[str, Function],
    target: str | None,
) -> Program:
    """Return the program of these blocks, in this order."""
    free = may_contract(drafts, constants, functions, target)
    needed = _find_needed(drafts)
    for draft in drafts:
        draft.instrs = [
            i for i in draft.instrs if not i.pure or any(r in needed for r in i.results)
        ]
        moved = [tuple(m for m in moves if m[0] in needed) for _, moves in draft.end.edges]
        targets = (target for target, _ in draft.end.edges)
        draft.end = replace(draft.end, edges=tuple(zip(targets, moved, strict=True)))
    live = _find_alive(drafts, constants)
    indices = {id(draft): i for i, draft in enumerate(drafts)}
    blocks = []
    for draft in drafts:
        steps = _make_steps(draft.instrs, _find_alive_after(draft, live), constants)
        edges = tuple((indices[id(target)], moves) for target, moves in draft.end.edges)
        end = replace(draft.end, edges=edges)
        blocks.append(BasicBlock(steps, end, tuple(sorted(live[id(draft)]))))
    template: Env = [None] * len(types)
    for slot, value in constants.items():
        template[slot] = value
    kinds = tuple(types[a] for a in args)
    return Program(blocks, template, args, kinds, text, may_contract=free)


def _find_needed(drafts: list[Draft]) -> set[int]:
    """Return the slots that something with an effect, or a decision, depends on."""
    makers: dict[int, list[tuple[int, ...]]] = {}
    needed: set[int] = set()
    todo: list[int] = []
    for draft in drafts:
        todo += draft.end.uses
        for instr in draft.instrs:
            for result in instr.results:
                makers.setdefault(result, []).append(instr.sources)
            if not instr.pure:
                todo += instr.sources
        for _, moves in draft.end.edges:
            for to, source in moves:
                makers.setdefault(to, []).append((source,))
    while todo:
        slot = todo.pop()
        if slot not in needed:
            needed.add(slot)
            for sources in makers.get(slot, ()):
                todo += sources
    return needed


def _find_alive_after(draft: Draft, live: dict[int, set[int]]) -> set[int]:
    """Return the slots that are alive at the end of a block, whichever edge is taken."""
    alive = set(draft.end.uses)
    for target, moves in draft.end.edges:
        alive |= live[id(target)] - {to for to, _ in moves}
        alive.update(source for _, source in moves)
    return alive


def _find_alive(drafts: list[Draft], constants: dict[int, Value]) -> dict[int, set[int]]:
    """Return the slots alive at the start of each block, without constants, which always are."""
    live: dict[int, set[int]] = {id(draft): set() for draft in drafts}
    changed = True
    while changed:
        changed = False
        for draft in reversed(drafts):
            alive = _find_alive_after(draft, live)
            for instr in reversed(draft.instrs):
                alive.difference_update(instr.results)
                alive.update(instr.sources)
            alive.difference_update(constants)
            if alive != live[id(draft)]:
                live[id(draft)] = alive
                changed = True
    return live


def _make_steps(instrs: list[Instr], after: set[int], constants: dict[int, Value]) -> list[Step]:
    """Return the steps of a block, each with the slots that are dead after it."""
    alive = after | set(constants)
    steps: list[Step] = []
    for instr in reversed(instrs):
        dead = {s for s in (*instr.sources, *instr.results) if s not in alive}
        alive.update(instr.sources)
        step = _make_step(instr.compute, instr.sources, instr.results)
        steps.append((step, instr.where, tuple(dead)))
    return steps[::-1]


def _make_step(
    compute: Callable[..., Any], sources: tuple[int, ...], results: tuple[int, ...]
) -> Callable[[Env], None]:
    """Return one step; the arities of nearly all operations are special-cased to avoid a loop."""
    if len(results) == 1:
        to = results[0]
        if len(sources) == 1:
            (a,) = sources

            def unary(env: Env) -> None:
                env[to] = compute(env[a])

            return unary
        if len(sources) == 2:
            a, b = sources

            def binary(env: Env) -> None:
                env[to] = compute(env[a], env[b])

            return binary

        def nary(env: Env) -> None:
            env[to] = compute(*[env[s] for s in sources])

        return nary

    def multiple(env: Env) -> None:
        values = compute(*[env[s] for s in sources])
        for slot, value in zip(results, values or (), strict=True):
            env[slot] = value

    return multiple


# -- control flow --------------------------------------------------------------------------------
def write_blocks(
    low: Lowering, blocks: list[Block], frame: Frame, types: list[Type] | None
) -> tuple[int, ...]:
    """Write a function's body; return the slots of its results.

    `types` are those of the results, None for the kernel itself, which ends instead.
    """
    reached = _reachable(blocks)
    if len(reached) == 1:
        last = low.straight(reached[0], frame)
        results = frame.find(last.operands)
        if types is None:
            low.draft.end = Exit("end", uses=results)
        return results
    results = tuple(low.slot(kind) for kind in types or [])
    out = Draft()
    entries = {reached[0].label: (Draft(), frame.find(name for name, _ in reached[0].args))}
    for block in reached[1:]:
        entries[block.label] = Draft(), low.enter(frame, block.args)
    for i, block in enumerate(reached):
        outer = low.scope
        if i:
            low.scope = Scope(outer=outer)
            low.begin_block(entries[block.label][0])
        last = low.straight(block, frame)
        back = {b.label for b in reached[: i + 1]}
        if last.name == "tt.return":
            moves = frame.moves(last.operands, results)
            low.draft.end = Exit("end") if types is None else Exit("jump", ((out, moves),))
        else:
            low.draft.end = _branch_end(last, frame, entries, back, low.where(last.loc, frame))
        if i:
            low.scope = outer
    if types is not None:
        low.begin_block(out)
    return results


def write_for(low: Lowering, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
    """scf.for: a loop that counts its iterations, so that its index may wrap."""
    index_name, index_type = op.regions[0][0].args[0]
    state = tuple(low.slot(Type((), I64)) for _ in range(4))  # as start_count returns them

    def start(first: Value, last: Value, step: Value) -> Any:
        for bound in (first, last, step):
            check_defined(bound, "a loop bound")
        unsigned = "unsigned" in op.keywords
        counts = start_count(first, last, step, unsigned)
        check_counter(index_type.dtype, unsigned, *counts[:3])
        return counts

    bounds = frame.find(op.operands[:3])
    low.draft.instrs.append(Instr(op, start, bounds, state, where, pure=True))
    before, head, body, out, outer = low.draft, Draft(), Draft(), Draft(), low.scope
    low.loops.append((before, outer))
    carried = low.enter(frame, op.regions[0][0].args[1:])
    frame.slots[index_name] = index = low.slot(index_type)
    more = low.slot(Type((), I1))
    before.end = Exit("jump", ((head, frame.moves(op.operands[3:], carried)),))
    turn, outputs = partial(count_turn, index_type.dtype), (more, index, state[3])
    low.begin_block(head).instrs.append(Instr(op, turn, state, outputs, where, pure=True))
    if low.sampled and all(kind.kind == "value" for _, kind in op.regions[0][0].args):
        _leap(low, op, frame, (*state[2:], *carried), where)
    edges = (body, ()), (out, ())
    head.end = Exit("branch", edges, (more,), where=where, repeats=True)
    low.begin_block(body)
    low.scope = Scope(outer=outer)
    _hint_carried(low, op, frame, where)
    _close_loop(low, op.regions[0][0], frame, (head, carried), out)
    for slot in carried:
        low.levels[slot] = len(low.loops)
    return carried


def _leap(
    low: Lowering,
    op: Op,
    frame: Frame,
    slots: tuple[int, ...],
    where: Where | None,
) -> None:
    """Let a long loop of a sampled call skip turns; carried values are extrapolated or unknown."""
    turns, done, *carried = slots
    block = op.regions[0][0]
    definitions = {result: inner for inner in block.ops for result in inner.results}
    steps: list[bool | None] = []
    added: list[int] = []
    for (name, _), last in zip(block.args[1:], block.ops[-1].operands, strict=True):
        follows = definitions.get(last)
        steps.append(None if last == name else False)
        if follows is not None and follows.name == "arith.addi" and name in follows.operands:
            (step,) = [x for x in follows.operands if x != name] or [name]
            if step in definitions and definitions[step].name == "arith.constant":
                low.op(definitions[step], frame)
            if step in frame.slots and (
                step not in definitions or definitions[step].name == "arith.constant"
            ):
                steps[-1] = True
                added.append(frame.slots[step])
    skipped = low.slot(Type((), I64))
    jump = Instr(op, leap, (turns, done), (done, skipped), where, pure=True)
    follow = partial(carry_over, tuple(steps))
    sources = (skipped, *carried, *added)
    low.draft.instrs.insert(0, jump)
    if carried:
        low.draft.instrs.append(Instr(op, follow, sources, tuple(carried), where, pure=True))


def _close_loop(
    low: Lowering, body: Block, frame: Frame, start: tuple[Draft, tuple[int, ...]], out: Draft
) -> None:
    """Write a loop's body, which jumps back to its head, and continue after the loop."""
    head, carried = start
    last = low.straight(body, frame)
    low.draft.end = Exit("jump", ((head, frame.moves(last.operands, carried)),))
    _, low.scope = low.loops.pop()
    low.begin_block(out)


def _hint_carried(low: Lowering, op: Op, frame: Frame, where: Where | None) -> None:
    """Hints on loop-carried values are attributes of the loop, with the argument's number."""
    for i, (name, kind) in enumerate(op.regions[0][0].args):
        attrs = {h: op.attrs[f"{h}_arg{i}"] for h in HINTS if f"{h}_arg{i}" in op.attrs}
        if attrs:
            hint = Op("gemmproof.same", [name], attrs=attrs, types=[kind], text=op.text)
            frame.slots[name] = low.instr(hint, (frame.slots[name],), where)[0]


def write_while(low: Lowering, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
    """scf.while: a region that computes the condition and what is carried, then the body."""
    first, second = (region[0] for region in op.regions)
    before, head, body, out, outer = low.draft, Draft(), Draft(), Draft(), low.scope
    low.loops.append((before, outer))
    carried = low.enter(frame, first.args)
    before.end = Exit("jump", ((head, frame.moves(op.operands, carried)),))
    low.scope = Scope(outer=outer)
    low.begin_block(head)
    condition, *handed = frame.find(low.straight(first, frame).operands)
    inner = low.enter(frame, second.args)
    results = tuple(low.slot(kind, len(low.loops) - 1) for kind in op.types)
    edges = (
        (body, tuple(zip(inner, handed, strict=True))),
        (out, tuple(zip(results, handed, strict=True))),
    )
    low.draft.end = Exit("branch", edges, (condition,), where=where, spins=True, repeats=True)
    low.begin_block(body)
    low.scope = Scope(outer=low.scope)
    _close_loop(low, second, frame, (head, carried), out)
    return results


def write_poll(low: Lowering, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
    """tt.atomic_poll: a loop that reads until every lane holds the expected value."""
    sources = frame.find(op.operands)
    op = replace(op, operand_types=[low.types[s] for s in sources])
    done, seen = low.slot(Type((), I1)), low.slot(op.types[0])
    head, out = Draft(), Draft()
    low.draft.end = Exit("jump", ((head, ()),))
    look = Instr(op, low.build(op, where), sources, (done, seen), where, pure=False)
    low.begin_block(head).instrs.append(look)
    edges = (out, ()), (head, ())
    head.end = Exit("branch", edges, (done,), where=where, spins=True, polls=True)
    low.begin_block(out)
    return (seen,)


def write_if(low: Lowering, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
    """scf.if."""
    condition = frame.slots[op.operands[0]]
    results = tuple(low.slot(kind) for kind in op.types)
    before, out = low.draft, Draft()
    outer = low.scope
    entries = []
    for region in [*op.regions, []][:2]:
        if not region or not region[0].ops:
            entries.append(out)
            continue
        entries.append(low.begin_block(Draft()))
        low.scope = Scope(outer=outer)
        last = low.straight(region[0], frame)
        low.draft.end = Exit("jump", ((out, frame.moves(last.operands, results)),))
    low.scope = outer
    before.end = Exit("branch", tuple((e, ()) for e in entries), (condition,), where=where)
    low.begin_block(out)
    return results


def _reachable(blocks: list[Block]) -> list[Block]:
    """Return the reachable blocks, in order."""
    by_label = {b.label: b for b in blocks}
    seen, todo = {blocks[0].label}, [blocks[0]]
    while todo:
        for label, _ in todo.pop().ops[-1].targets:
            if label not in seen:
                seen.add(label)
                todo.append(by_label[label])
    return [b for b in blocks if b.label in seen]


def _branch_end(
    last: Op,
    frame: Frame,
    entries: dict[str, tuple[Draft, tuple[int, ...]]],
    back: set[str],
    where: Where | None,
) -> Exit:
    """Return the exit of a block of a function with branches; `back` are the labels up to it.

    Raises Unsupported for an unknown end.
    """
    edges = tuple(
        (entries[label][0], frame.moves(given, entries[label][1])) for label, given in last.targets
    )
    kinds = {"cf.br": "jump", "cf.cond_br": "branch"}
    if last.name not in kinds:
        raise Unsupported(refusal(last.name), where)
    spins = any(label in back for label, _ in last.targets)
    return Exit(kinds[last.name], edges, frame.find(last.operands), where=where, spins=spins)


# Control-flow operations, and the function that writes each.
CONTROL = {
    "scf.for": write_for,
    "scf.while": write_while,
    "scf.if": write_if,
    "tt.atomic_poll": write_poll,
}


# -- operations ----------------------------------------------------------------------------------
_TRITON = str(Path(triton.__file__).parent)


def lower(
    functions: dict[str, Function],
    target: str | None = None,
    text: str = "",
    sampled: bool = False,
    reads_terms: bool = False,
) -> Program:
    """Lower a module's public function; long loops of a `sampled` call skip turns.

    With `reads_terms` its operations also compute the terms of their lanes (element_terms.py).

    Raises Unsupported, with the source line, for an operation that the simulator does not know.
    """
    kernel = next((f for f in functions.values() if f.public), None)
    if kernel is None:
        raise Unsupported("the module has no public function")
    lowering = Lowering(functions, target, sampled, reads_terms)
    try:
        program = lowering.write(kernel.body, Frame(kernel.name, None), text)
        if has_hints(functions):
            program.hinted = functions
        return program
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        what, where = lowering.at
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise Unsupported(
            f"the tile simulator cannot read this {what}, please report it: {reason}", where
        ) from error


class Lowering:
    def __init__(
        self,
        functions: dict[str, Function],
        target: str | None,
        sampled: bool = False,
        reads_terms: bool = False,
    ) -> None:
        self.functions = functions
        self.target = target
        self.sampled = sampled
        self.reads_terms = reads_terms
        self.types: list[Type] = []
        self.levels: list[int] = []
        self.made_by: dict[int, Instr] = {}
        self.constants: dict[int, Value] = {}
        self.drafts: list[Draft] = []
        self.draft = Draft()
        self.scope = Scope()
        self.loops: list[tuple[Draft, Scope]] = []
        self.depth = 0
        self.at: tuple[str, Where | None] = ("kernel", None)

    def write(self, blocks: list[Block], frame: Frame, text: str = "") -> Program:
        """Write the program of a kernel's or a region's blocks; the first has the arguments."""
        args = self.enter(frame, blocks[0].args)
        self.begin_block(Draft())
        write_blocks(self, blocks, frame, None)
        return finish(
            self.drafts, self.constants, args, self.types, text, self.functions, self.target
        )

    # -- slots and blocks ------------------------------------------------------------------------
    def slot(self, kind: Type, level: int | None = None) -> int:
        self.types.append(kind)
        self.levels.append(len(self.loops) if level is None else level)
        return len(self.types) - 1

    def enter(self, frame: Frame, args: list[tuple[str, Type]]) -> tuple[int, ...]:
        """Make slots for a function's or block's arguments."""
        slots = tuple(self.slot(kind) for _, kind in args)
        frame.slots.update(zip((name for name, _ in args), slots, strict=True))
        return slots

    def begin_block(self, draft: Draft) -> Draft:
        """Append `draft` to the blocks and make it the current one."""
        self.drafts.append(draft)
        self.draft = draft
        return draft

    def where(self, loc: Loc | None, frame: Frame) -> Where | None:
        """Return the user's line of an operation; in Triton's own library, the call's line."""
        if loc is None or loc.file.startswith(_TRITON):
            return frame.caller
        name = frame.function.rpartition(".")[2].partition("__")[0] or frame.function
        return Where(loc.file, loc.line, name)

    def straight(self, block: Block, frame: Frame) -> Op:
        """Write a block's operations but the last, its terminator; return that."""
        for op in block.ops[:-1]:
            self.op(op, frame)
        return block.ops[-1]

    # -- operations ------------------------------------------------------------------------------
    def op(self, op: Op, frame: Frame) -> None:
        """Write one operation."""
        where = self.where(op.loc, frame)
        self.at = (op.name, where)
        if op.name == "tt.call":
            results = self.call(op, frame, where)
        elif op.name in CONTROL:
            results = CONTROL[op.name](self, op, frame, where)
        elif op.name not in OPERATIONS:
            raise Unsupported(refusal(op.name), where)
        else:
            results = self.instr(op, frame.find(op.operands), where)
        frame.slots.update(zip(op.results, results, strict=True))

    def instr(self, op: Op, sources: tuple[int, ...], where: Where | None) -> tuple[int, ...]:
        """Write an operation that computes: fold, share, hoist or append it."""
        operation = OPERATIONS[op.name]
        pure = operation.pure and op.attrs.get("pure") != "false"  # as inline assembly declares
        op = replace(op, operand_types=[self.types[s] for s in sources])
        key = None
        if pure and not op.regions:
            attrs = tuple(sorted(op.attrs.items()))
            key = (op.name, sources, tuple(op.keywords), attrs, tuple(op.types), tuple(op.strings))
            shared = self.scope.find(key)
            if shared is not None:
                return shared
        if op.name == "arith.addf" and (fused := self._fused_dot(op, sources)) is not None:
            op, sources, where = fused
            operation = OPERATIONS[op.name]  # a dot is checked at each launch, even of constants
        hinted = any(name in op.attrs for name in HINTS)
        if operation.constant and not hinted and all(s in self.constants for s in sources):
            results = self._constants(op, sources, where)
            if key is not None:
                self.scope.known[key] = results
            return results
        level, draft, scope = len(self.loops), self.draft, self.scope
        if key is not None and not hinted and op.name != "tt.dot":
            needs = max((self.levels[s] for s in sources), default=0)
            if needs < level:
                level, (draft, scope) = needs, self.loops[needs]
        results = tuple(self.slot(kind, level) for kind in op.types)
        instr = Instr(op, self.build(op, where), sources, results, where, pure)
        draft.instrs.append(instr)
        self.made_by.update(dict.fromkeys(results, instr))
        if key is not None:
            scope.known[key] = results
        return results

    def build(self, op: Op, where: Where | None) -> Any:
        """Return the function that computes an operation; a region is lowered first."""
        if op.regions:
            op = replace(op, regions=[self._region(op, where)])  # type: ignore[list-item]
        try:
            function = OPERATIONS[op.name].build(op)
        except Unsupported as error:
            error.where = error.where or where
            raise
        if any(name in op.attrs for name in HINTS):
            function = judge_hints(function, op)
        return follow(function, op) if self.reads_terms else function

    def _region(self, op: Op, where: Where | None) -> Program:
        """Lower an operation's region to a program over scalars."""
        lowering = Lowering(self.functions, self.target, reads_terms=self.reads_terms)
        try:
            program = lowering.write(op.regions[0], Frame("", where))
        except KeyError as error:
            raise Unsupported(f"{op.name} whose region uses {error} from outside", where) from None
        names = (instr.op.name for instr in lowering.made_by.values())
        program.asks_place = "tt.get_program_id" in names
        return program

    def _constants(self, op: Op, sources: tuple[int, ...], where: Where | None) -> tuple[int, ...]:
        """Compute an operation on constants now; return the slots of its results."""
        with np.errstate(all="ignore"):
            values = self.build(op, where)(*(self.constants[s] for s in sources))
        values = values if isinstance(values, tuple) else (values,)
        results = tuple(self.slot(kind, 0) for kind in op.types)
        self.constants.update(zip(results, values, strict=True))
        return results

    def _fused_dot(
        self, op: Op, sources: tuple[int, ...]
    ) -> tuple[Op, tuple[int, ...], Where | None] | None:
        """Return `x + tl.dot(a, b)` as a dot onto x, or None if the compiler does not fuse it."""
        for sum_at in (1, 0):
            dot = self.made_by.get(sources[sum_at])
            if dot is not None and dot.op.name == "tt.dot" and folds_sum(dot.op, self.target):
                a, b, c = dot.sources
                if c in self.constants and is_zero(self.constants[c]):
                    onto = sources[1 - sum_at]
                    return replace(dot.op, results=op.results), (a, b, onto), dot.where
        return None

    def call(self, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
        """Write a called function's body in place of the call."""
        callee = self.functions.get(op.keywords[0])
        if callee is None:
            raise Unsupported(f"a call of {op.keywords[0]}, which the module lacks,", where)
        self.depth += 1
        if self.depth > 200:
            raise Unsupported(f"{callee.name} calls itself without end, which", where)
        inner = Frame(callee.name, where)
        names = (name for name, _ in callee.args)
        inner.slots.update(zip(names, frame.find(op.operands), strict=True))
        results = write_blocks(self, callee.body, inner, op.types)
        self.depth -= 1
        return results

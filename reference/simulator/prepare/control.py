"""Structured control flow, flattened: branches, loops, conditionals and polls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gemmproof.reference.observation import Unsupported, Where
from gemmproof.reference.simulator.checks.judge import check_defined
from gemmproof.reference.simulator.ops.hints import HINTS
from gemmproof.reference.simulator.ops.registry import refusal
from gemmproof.reference.simulator.prepare.draft import Draft, Frame, Instr, Scope
from gemmproof.reference.simulator.program import Exit, carry_over, count_turn, leap, start_count
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import I1, I64, Type
from gemmproof.reference.ttir.module import Block, Op

if TYPE_CHECKING:
    from gemmproof.reference.simulator.prepare.lower import Lowering


def write_blocks(
    low: Lowering, blocks: list[Block], frame: Frame, types: list[Type] | None
) -> tuple[int, ...]:
    """Write a function's body; returns the slots of what it returns.

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
            low.place(entries[block.label][0])
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
        low.place(out)
    return results


def write_for(low: Lowering, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
    """scf.for: a loop that counts its turns, whether or not its index wraps."""
    index_name, index_type = op.regions[0][0].args[0]
    state = tuple(low.slot(Type((), I64)) for _ in range(4))  # as start_count gives them

    def start(first: Value, last: Value, step: Value) -> Any:
        for bound in (first, last, step):
            check_defined(bound, "a loop bound")
        return start_count(first, last, step, "unsigned" in op.words)

    bounds = frame.find(op.operands[:3])
    low.draft.instrs.append(Instr(op, start, bounds, state, where, pure=True))
    before, head, body, out, outer = low.draft, Draft(), Draft(), Draft(), low.scope
    low.loops.append((before, outer))
    carried = low.enter(frame, op.regions[0][0].args[1:])
    frame.slots[index_name] = index = low.slot(index_type)
    more = low.slot(Type((), I1))
    before.end = Exit("jump", ((head, frame.moves(op.operands[3:], carried)),))
    turn, made = partial(count_turn, index_type.dtype), (more, index, state[3])
    low.place(head).instrs.append(Instr(op, turn, state, made, where, pure=True))
    if low.sampled and all(kind.kind == "value" for _, kind in op.regions[0][0].args):
        _leap(low, op, frame, (*state[2:], *carried), where)
    head.end = Exit("branch", ((body, ()), (out, ())), (more,), where=where)
    low.place(body)
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
    """Let a long loop of a sampled call leave turns out; what it carries follows or is unknown."""
    turns, done, *carried = slots
    block = op.regions[0][0]
    made = {result: inner for inner in block.ops for result in inner.results}
    steps: list[bool | None] = []
    added: list[int] = []
    for (name, _), last in zip(block.args[1:], block.ops[-1].operands, strict=True):
        follows = made.get(last)
        steps.append(None if last == name else False)
        if follows is not None and follows.name == "arith.addi" and name in follows.operands:
            (step,) = [x for x in follows.operands if x != name] or [name]
            if step in made and made[step].name == "arith.constant":
                low.op(made[step], frame)
            if step in frame.slots and (step not in made or made[step].name == "arith.constant"):
                steps[-1] = True
                added.append(frame.slots[step])
    left_out = low.slot(Type((), I64))
    jump = Instr(op, leap, (turns, done), (done, left_out), where, pure=True)
    follow = partial(carry_over, tuple(steps))
    sources = (left_out, *carried, *added)
    low.draft.instrs.insert(0, jump)
    if carried:
        low.draft.instrs.append(Instr(op, follow, sources, tuple(carried), where, pure=True))


def _close_loop(
    low: Lowering, body: Block, frame: Frame, start: tuple[Draft, tuple[int, ...]], out: Draft
) -> None:
    """Write a loop's body, which jumps back to its head, and go on after the loop."""
    head, carried = start
    last = low.straight(body, frame)
    low.draft.end = Exit("jump", ((head, frame.moves(last.operands, carried)),))
    _, low.scope = low.loops.pop()
    low.place(out)


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
    low.place(head)
    condition, *handed = frame.find(low.straight(first, frame).operands)
    inner = low.enter(frame, second.args)
    results = tuple(low.slot(kind, len(low.loops) - 1) for kind in op.types)
    edges = (
        (body, tuple(zip(inner, handed, strict=True))),
        (out, tuple(zip(results, handed, strict=True))),
    )
    low.draft.end = Exit("branch", edges, (condition,), where=where, spins=True)
    low.place(body)
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
    low.place(head).instrs.append(look)
    edges = (out, ()), (head, ())
    head.end = Exit("branch", edges, (done,), where=where, spins=True, polls=True)
    low.place(out)
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
        entries.append(low.place(Draft()))
        low.scope = Scope(outer=outer)
        last = low.straight(region[0], frame)
        low.draft.end = Exit("jump", ((out, frame.moves(last.operands, results)),))
    low.scope = outer
    before.end = Exit("branch", tuple((e, ()) for e in entries), (condition,), where=where)
    low.place(out)
    return results


def _reachable(blocks: list[Block]) -> list[Block]:
    """The blocks that can be entered, in order. Raises Unsupported for an unknown end."""
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
    """How a block of a function with branches ends; `back` are the labels of those before it."""
    edges = tuple(
        (entries[label][0], frame.moves(given, entries[label][1])) for label, given in last.targets
    )
    kinds = {"cf.br": "jump", "cf.cond_br": "branch"}
    if last.name not in kinds:
        raise Unsupported(refusal(last.name), where)
    spins = any(label in back for label, _ in last.targets)
    return Exit(kinds[last.name], edges, frame.find(last.operands), where=where, spins=spins)


# Control-flow operations, and what writes each.
CONTROL = {
    "scf.for": write_for,
    "scf.while": write_while,
    "scf.if": write_if,
    "tt.atomic_poll": write_poll,
}

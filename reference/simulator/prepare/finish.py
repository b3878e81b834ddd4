"""The last step of lowering a kernel: dead code, liveness, and the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gemmproof.reference.simulator.prepare.contraction import may_contract
from gemmproof.reference.simulator.prepare.draft import Draft, Instr
from gemmproof.reference.simulator.program import BasicBlock, Env, Program, Step
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import Type
from gemmproof.reference.ttir.module import Function


def finish(
    drafts: list[Draft],
    constants: dict[int, Value],
    args: tuple[int, ...],
    types: list[Type],
    text: str,
    functions: Mapping[str, Function],
    target: str | None,
) -> Program:
    """The program of these blocks, in this order."""
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
    places = {id(draft): i for i, draft in enumerate(drafts)}
    blocks = []
    for draft in drafts:
        steps = _make_steps(draft.instrs, _find_alive_after(draft, live), constants)
        edges = tuple((places[id(target)], moves) for target, moves in draft.end.edges)
        end = replace(draft.end, edges=edges)
        blocks.append(BasicBlock(steps, end, tuple(sorted(live[id(draft)]))))
    template: Env = [None] * len(types)
    for slot, value in constants.items():
        template[slot] = value
    kinds = tuple(types[a] for a in args)
    return Program(blocks, template, args, kinds, text, may_contract=free)


def _find_needed(drafts: list[Draft]) -> set[int]:
    """The slots that something with an effect, or a decision, depends on."""
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
    """The slots that are alive at the end of a block, whichever way it is left."""
    alive = set(draft.end.uses)
    for target, moves in draft.end.edges:
        alive |= live[id(target)] - {to for to, _ in moves}
        alive.update(source for _, source in moves)
    return alive


def _find_alive(drafts: list[Draft], constants: dict[int, Value]) -> dict[int, set[int]]:
    """The slots that are alive where each block begins; constants always are and do not count."""
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
    """Steps of a block, each with the slots that are dead after it."""
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
    """One step; the arities of nearly all operations are special-cased to avoid a loop."""
    if len(results) == 1:
        to = results[0]
        if len(sources) == 1:
            (a,) = sources

            def one(env: Env) -> None:
                env[to] = compute(env[a])

            return one
        if len(sources) == 2:
            a, b = sources

            def two(env: Env) -> None:
                env[to] = compute(env[a], env[b])

            return two

        def many(env: Env) -> None:
            env[to] = compute(*[env[s] for s in sources])

        return many

    def several(env: Env) -> None:
        made = compute(*[env[s] for s in sources])
        for slot, value in zip(results, made or (), strict=True):
            env[slot] = value

    return several

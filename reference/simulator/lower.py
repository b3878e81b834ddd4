"""From operations as they are written to a program that runs: flat, inlined, nothing done twice.

Calls are inlined. What is constant is computed here, what does not change in a loop before it,
what is computed twice once, and what nothing uses (Triton's overflow checks) not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import triton

from gemmproof.reference.observation import Unsupported, Where
from gemmproof.reference.simulator.checks.judge import check_defined
from gemmproof.reference.simulator.dtypes import I1, Type
from gemmproof.reference.simulator.finish import Draft, Ends, Instr, finish
from gemmproof.reference.simulator.ops import OPERATIONS, refusal
from gemmproof.reference.simulator.ops.dot import folds_sum, is_zero
from gemmproof.reference.simulator.ops.hints import HINTS, judge_hints
from gemmproof.reference.simulator.program import Program, start_count
from gemmproof.reference.simulator.reader import Block, Function, Loc, Op
from gemmproof.reference.simulator.value import Value

_TRITON = str(Path(triton.__file__).parent)
_REGION_RETURNS = ("tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")


@dataclass(slots=True)
class _Scope:
    """What was computed where it can be seen from here: (operation, operands) -> results."""

    known: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    outer: _Scope | None = None

    def find(self, key: Any) -> tuple[int, ...] | None:
        scope: _Scope | None = self
        while scope is not None:
            if key in scope.known:
                return scope.known[key]
            scope = scope.outer
        return None


@dataclass(slots=True)
class _Frame:
    """A function that is being inlined: its slots by SSA name, and the line that calls it."""

    function: str
    caller: Where | None
    slots: dict[str, int] = field(default_factory=dict)


def lower(functions: dict[str, Function], target: str | None = None, text: str = "") -> Program:
    """The program of a module's public function.

    Raises Unsupported, with the source line, for an operation that the simulator does not know.
    """
    kernel = next((f for f in functions.values() if f.public), None)
    if kernel is None:
        raise Unsupported("the module has no public function")
    lowering = _Lowering(functions, target)
    frame = _Frame(kernel.name, None)
    try:
        args = lowering.enter(frame, kernel.args)
        lowering.place(Draft())
        lowering.blocks(kernel.body, frame, None)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        what, where = lowering.at
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise Unsupported(
            f"the tile simulator cannot read this {what}, please report it: {words}", where
        ) from error
    return lowering.finish(kernel.name, args, text)


class _Lowering:
    def __init__(self, functions: dict[str, Function], target: str | None) -> None:
        self.functions = functions
        self.target = target
        self.types: list[Type] = []
        self.levels: list[int] = []
        self.made_by: dict[int, Instr] = {}
        self.constants: dict[int, Value] = {}
        self.drafts: list[Draft] = []
        self.draft = Draft()
        self.scope = _Scope()
        self.loops: list[tuple[Draft, _Scope]] = []
        self.depth = 0
        self.at: tuple[str, Where | None] = ("kernel", None)

    def finish(self, name: str, args: tuple[int, ...], text: str = "") -> Program:
        return finish(name, self.drafts, self.constants, args, self.types, text)

    # -- slots and blocks ------------------------------------------------------------------------
    def slot(self, kind: Type, level: int | None = None) -> int:
        self.types.append(kind)
        self.levels.append(len(self.loops) if level is None else level)
        return len(self.types) - 1

    def enter(self, frame: _Frame, args: list[tuple[str, Type]]) -> tuple[int, ...]:
        """New slots for a function's or block's arguments."""
        made = tuple(self.slot(kind) for _, kind in args)
        frame.slots.update(zip((name for name, _ in args), made, strict=True))
        return made

    def place(self, draft: Draft) -> Draft:
        """Let `draft` be the block that is written now, the last in order so far."""
        self.drafts.append(draft)
        self.draft = draft
        return draft

    def where(self, loc: Loc | None, frame: _Frame) -> Where | None:
        """The user's line of an operation: the call's, where it stands in Triton's own library."""
        if loc is None or loc.file.startswith(_TRITON):
            return frame.caller
        name = frame.function.rpartition(".")[2].partition("__")[0] or frame.function
        return Where(loc.file, loc.line, name)

    def blocks(
        self, blocks: list[Block], frame: _Frame, types: list[Type] | None
    ) -> tuple[int, ...]:
        """Write a function's body; returns the slots of what it returns.

        `types` are those of the results, None for the kernel itself, which ends instead.
        """
        reached = _reachable(blocks)
        if len(reached) == 1:
            last = self.straight(reached[0], frame)
            results = tuple(frame.slots[name] for name in last.operands)
            if types is None:
                self.draft.end = Ends.end(results)
            return results
        results = tuple(self.slot(kind) for kind in types or [])
        drafts = {b.label: Draft() for b in reached}
        out = Draft()
        for block in reached[1:]:
            self.enter(frame, block.args)
        args = {b.label: [frame.slots[name] for name, _ in b.args] for b in reached}
        for i, block in enumerate(reached):
            outer = self.scope
            if i:
                self.scope = _Scope(outer=outer)
                self.place(drafts[block.label])
            last = self.straight(block, frame)
            back = {b.label for b in reached[: i + 1]}
            if last.name == "tt.return":
                given = [frame.slots[name] for name in last.operands]
                moves = tuple(zip(results, given, strict=True))
                self.draft.end = Ends.end(()) if types is None else Ends.jump(out, moves)
            else:
                self.draft.end = _branch_end(last, frame, drafts, args, back, self.where)
            if i:
                self.scope = outer
        if types is not None:
            self.place(out)
        return results

    def straight(self, block: Block, frame: _Frame) -> Op:
        """Write a block's operations; returns the last one, which says how it ends."""
        for op in block.ops[:-1]:
            self.op(op, frame)
        return block.ops[-1]

    # -- operations ------------------------------------------------------------------------------
    def op(self, op: Op, frame: _Frame) -> None:
        """Write one operation."""
        where = self.where(op.loc, frame)
        self.at = (op.name, where)
        if op.name == "tt.call":
            results = self.call(op, frame, where)
        elif op.name == "scf.for":
            results = self.counted(op, frame, where)
        elif op.name == "scf.while":
            results = self.conditional(op, frame, where)
        elif op.name == "scf.if":
            results = self.choice(op, frame, where)
        elif op.name == "tt.atomic_poll":
            results = self.poll(op, frame, where)
        else:
            if op.name not in OPERATIONS:
                raise Unsupported(refusal(op.name), where)
            sources = tuple(frame.slots[name] for name in op.operands)
            results = self.instr(op, sources, where)
        frame.slots.update(zip(op.results, results, strict=True))

    def instr(self, op: Op, sources: tuple[int, ...], where: Where | None) -> tuple[int, ...]:
        """Write an operation that computes: fold, share, hoist or append it."""
        known = OPERATIONS[op.name]
        pure = known.pure and op.attrs.get("pure") != "false"  # as inline assembly says
        op = replace(op, operand_types=[self.types[s] for s in sources])
        key = None
        if pure and not op.regions:
            attrs = tuple(sorted(op.attrs.items()))
            key = (op.name, sources, tuple(op.words), attrs, tuple(op.types), tuple(op.strings))
            found = self.scope.find(key)
            if found is not None:
                return found
        if op.name == "arith.addf" and (fused := self._fused_dot(op, sources)) is not None:
            op, sources, where = fused
        hinted = any(name in op.attrs for name in HINTS)
        if known.constant and not hinted and all(s in self.constants for s in sources):
            results = self._constants(op, sources, where)
            if results is not None:
                if key is not None:
                    self.scope.known[key] = results
                return results
        level, draft, scope = len(self.loops), self.draft, self.scope
        if key is not None and not hinted and op.name != "tt.dot":
            needs = max((self.levels[s] for s in sources), default=0)
            if needs < level:
                level, (draft, scope) = needs, self.loops[needs]
        results = tuple(self.slot(kind, level) for kind in op.types)
        made = Instr(op, self._build(op, where), sources, results, where, pure)
        draft.instrs.append(made)
        self.made_by.update(dict.fromkeys(results, made))
        if key is not None:
            scope.known[key] = results
        return results

    def _build(self, op: Op, where: Where | None) -> Any:
        """What computes an operation; a region is prepared first."""
        if op.regions:
            op = replace(op, regions=[self._region(op, where)])  # type: ignore[list-item]
        try:
            function = OPERATIONS[op.name].build(op)
        except Unsupported as error:
            text = str(error)
            raise error if error.where is not None else Unsupported(text, where) from None
        return judge_hints(function, op) if any(name in op.attrs for name in HINTS) else function

    def _region(self, op: Op, where: Where | None) -> Program:
        """The program of an operation's region, over scalars."""
        lowering = _Lowering(self.functions, self.target)
        frame = _Frame("", where)
        args = lowering.enter(frame, op.regions[0][0].args)
        lowering.place(Draft())
        try:
            lowering.blocks(op.regions[0], frame, None)
        except KeyError as error:
            raise Unsupported(f"{op.name} whose region uses {error} from outside", where) from None
        return lowering.finish(op.name, args)

    def _constants(
        self, op: Op, sources: tuple[int, ...], where: Where | None
    ) -> tuple[int, ...] | None:
        """The results of an operation on constants, None where it must wait for a launch."""
        with np.errstate(all="ignore"):
            made = self._build(op, where)(*(self.constants[s] for s in sources))
        made = made if isinstance(made, tuple) else (made,)
        results = tuple(self.slot(kind, 0) for kind in op.types)
        self.constants.update(zip(results, made, strict=True))
        return results

    def _fused_dot(
        self, op: Op, sources: tuple[int, ...]
    ) -> tuple[Op, tuple[int, ...], Where | None] | None:
        """`x + tl.dot(a, b)` as the dot onto x that the compiler makes of it, where it does."""
        for sum_at in (1, 0):
            made = self.made_by.get(sources[sum_at])
            if made is not None and made.op.name == "tt.dot" and folds_sum(made.op, self.target):
                a, b, c = made.sources
                if c in self.constants and is_zero(self.constants[c]):
                    onto = sources[1 - sum_at]
                    return replace(made.op, results=op.results), (a, b, onto), made.where
        return None

    def call(self, op: Op, frame: _Frame, where: Where | None) -> tuple[int, ...]:
        """Write a called function's body in place of the call."""
        callee = self.functions.get(op.words[0])
        if callee is None:
            raise Unsupported(f"a call of {op.words[0]}, which the module lacks,", where)
        self.depth += 1
        if self.depth > 200:
            raise Unsupported(f"{callee.name} calls itself without end, which", where)
        inner = _Frame(callee.name, where)
        names = (name for name, _ in callee.args)
        inner.slots.update(zip(names, (frame.slots[n] for n in op.operands), strict=True))
        results = self.blocks(callee.body, inner, op.types)
        self.depth -= 1
        return results

    # -- control flow ----------------------------------------------------------------------------
    def counted(self, op: Op, frame: _Frame, where: Where | None) -> tuple[int, ...]:
        """scf.for."""
        index_name, index_type = op.regions[0][0].args[0]
        bounds = tuple(frame.slots[name] for name in op.operands[:3])
        state = self.slot(index_type)

        def start(low: Value, high: Value, step: Value) -> Any:
            for bound in (low, high, step):
                check_defined(bound, "a loop bound")
            return start_count(low, high, step, index_type.dtype, "unsigned" in op.words)

        self.draft.instrs.append(Instr(op, start, bounds, (state,), where, pure=True))
        before = self.draft
        initial = [frame.slots[name] for name in op.operands[3:]]
        self.loops.append((before, self.scope))
        carried = self.enter(frame, op.regions[0][0].args[1:])
        frame.slots[index_name] = index = self.slot(index_type)
        head, body, out = Draft(), Draft(), Draft()
        before.end = Ends.jump(head, tuple(zip(carried, initial, strict=True)))
        self.place(head).end = Ends.turn(state, index, body, out, where)
        self.place(body)
        outer, self.scope = self.scope, _Scope(outer=self.scope)
        self._hint_carried(op, frame, where)
        last = self.straight(op.regions[0][0], frame)
        yielded = [frame.slots[name] for name in last.operands]
        self.draft.end = Ends.jump(head, tuple(zip(carried, yielded, strict=True)))
        self.scope = outer
        self.loops.pop()
        self.place(out)
        for slot in carried:
            self.levels[slot] = len(self.loops)
        return carried

    def _hint_carried(self, op: Op, frame: _Frame, where: Where | None) -> None:
        """Hints on what a loop carries stand on the loop, with the argument's number."""
        for i, (name, kind) in enumerate(op.regions[0][0].args):
            attrs = {h: op.attrs[f"{h}_arg{i}"] for h in HINTS if f"{h}_arg{i}" in op.attrs}
            if attrs:
                hint = Op("gemmproof.same", [name], attrs=attrs, types=[kind], text=op.text)
                frame.slots[name] = self.instr(hint, (frame.slots[name],), where)[0]

    def conditional(self, op: Op, frame: _Frame, where: Where | None) -> tuple[int, ...]:
        """scf.while: a region that decides and hands on, a region that is done while it holds."""
        initial = [frame.slots[name] for name in op.operands]
        before = self.draft
        self.loops.append((before, self.scope))
        carried = self.enter(frame, op.regions[0][0].args)
        head, body, out = Draft(), Draft(), Draft()
        before.end = Ends.jump(head, tuple(zip(carried, initial, strict=True)))
        outer, self.scope = self.scope, _Scope(outer=self.scope)
        self.place(head)
        condition, *handed = (
            frame.slots[name] for name in self.straight(op.regions[0][0], frame).operands
        )
        inner = self.enter(frame, op.regions[1][0].args)
        results = tuple(self.slot(kind, len(self.loops) - 1) for kind in op.types)
        self.draft.end = Ends.branch(
            condition,
            (body, tuple(zip(inner, handed, strict=True))),
            (out, tuple(zip(results, handed, strict=True))),
            where,
            spins=True,
        )
        self.place(body)
        self.scope = _Scope(outer=self.scope)
        last = self.straight(op.regions[1][0], frame)
        yielded = [frame.slots[name] for name in last.operands]
        self.draft.end = Ends.jump(head, tuple(zip(carried, yielded, strict=True)))
        self.scope = outer
        self.loops.pop()
        self.place(out)
        return results

    def poll(self, op: Op, frame: _Frame, where: Where | None) -> tuple[int, ...]:
        """tt.atomic_poll: a loop that looks until every lane holds what is waited for."""
        sources = tuple(frame.slots[name] for name in op.operands)
        op = replace(op, operand_types=[self.types[s] for s in sources])
        done, seen = self.slot(Type((), I1)), self.slot(op.types[0])
        head, out = Draft(), Draft()
        self.draft.end = Ends.jump(head)
        look = Instr(op, self._build(op, where), sources, (done, seen), where, pure=False)
        self.place(head).instrs.append(look)
        head.end = Ends.branch(done, (out, ()), (head, ()), where, spins=True, polls=True)
        self.place(out)
        return (seen,)

    def choice(self, op: Op, frame: _Frame, where: Where | None) -> tuple[int, ...]:
        """scf.if."""
        condition = frame.slots[op.operands[0]]
        results = tuple(self.slot(kind) for kind in op.types)
        before, out = self.draft, Draft()
        outer = self.scope
        entries = []
        for region in [*op.regions, []][:2]:
            if not region or not region[0].ops:
                entries.append(out)
                continue
            entries.append(self.place(Draft()))
            self.scope = _Scope(outer=outer)
            last = self.straight(region[0], frame)
            given = [frame.slots[name] for name in last.operands]
            self.draft.end = Ends.jump(out, tuple(zip(results, given, strict=True)))
        self.scope = outer
        before.end = Ends.branch(condition, (entries[0], ()), (entries[1], ()), where)
        self.place(out)
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
    frame: _Frame,
    drafts: dict[str, Draft],
    args: dict[str, list[int]],
    back: set[str],
    where: Any,
) -> Any:
    """How a block of a function with branches ends."""
    ways = []
    for label, given in last.targets:
        moves = tuple(zip(args[label], (frame.slots[n] for n in given), strict=True))
        ways.append((drafts[label], moves))
    spins = any(label in back for label, _ in last.targets)
    if last.name == "cf.br":
        return Ends.jump(*ways[0], spins=spins)
    if last.name == "cf.cond_br":
        condition = frame.slots[last.operands[0]]
        return Ends.branch(condition, ways[0], ways[1], where(last.loc, frame), spins=spins)
    raise Unsupported(refusal(last.name), where(last.loc, frame))

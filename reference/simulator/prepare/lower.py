"""Lowers TTIR to a flat program.

Calls are inlined, constants folded, loop invariants hoisted, common subexpressions shared and
unused operations (Triton's overflow checks) dropped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import triton

from gemmproof.reference.observation import Unsupported, Where
from gemmproof.reference.simulator.ops import OPERATIONS
from gemmproof.reference.simulator.ops.dots.dot import folds_sum, is_zero
from gemmproof.reference.simulator.ops.hints import HINTS, judge_hints
from gemmproof.reference.simulator.ops.registry import refusal
from gemmproof.reference.simulator.prepare.control import CONTROL, write_blocks
from gemmproof.reference.simulator.prepare.draft import Draft, Frame, Instr, Scope
from gemmproof.reference.simulator.prepare.finish import finish
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import Type
from gemmproof.reference.ttir.module import Block, Function, Loc, Op

_TRITON = str(Path(triton.__file__).parent)


def lower(
    functions: dict[str, Function], target: str | None = None, text: str = "", sampled: bool = False
) -> Program:
    """The program of a module's public function; of a `sampled` call its long loops leap.

    Raises Unsupported, with the source line, for an operation that the simulator does not know.
    """
    kernel = next((f for f in functions.values() if f.public), None)
    if kernel is None:
        raise Unsupported("the module has no public function")
    lowering = Lowering(functions, target, sampled)
    try:
        return lowering.write(kernel.body, Frame(kernel.name, None), text)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        what, where = lowering.at
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise Unsupported(
            f"the tile simulator cannot read this {what}, please report it: {words}", where
        ) from error


class Lowering:
    def __init__(
        self, functions: dict[str, Function], target: str | None, sampled: bool = False
    ) -> None:
        self.functions = functions
        self.target = target
        self.sampled = sampled
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
        """The program of a kernel's or a region's blocks; the first block has its arguments."""
        args = self.enter(frame, blocks[0].args)
        self.place(Draft())
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
        """New slots for a function's or block's arguments."""
        made = tuple(self.slot(kind) for _, kind in args)
        frame.slots.update(zip((name for name, _ in args), made, strict=True))
        return made

    def place(self, draft: Draft) -> Draft:
        """Append `draft` to the blocks and make it the current one."""
        self.drafts.append(draft)
        self.draft = draft
        return draft

    def where(self, loc: Loc | None, frame: Frame) -> Where | None:
        """The user's line of an operation: the call's, where it stands in Triton's own library."""
        if loc is None or loc.file.startswith(_TRITON):
            return frame.caller
        name = frame.function.rpartition(".")[2].partition("__")[0] or frame.function
        return Where(loc.file, loc.line, name)

    def straight(self, block: Block, frame: Frame) -> Op:
        """Write a block's operations but the last; returns that one, its terminator."""
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
            known = OPERATIONS[op.name]  # a dot is judged at each launch, even of constants
        hinted = any(name in op.attrs for name in HINTS)
        if known.constant and not hinted and all(s in self.constants for s in sources):
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
        made = Instr(op, self.build(op, where), sources, results, where, pure)
        draft.instrs.append(made)
        self.made_by.update(dict.fromkeys(results, made))
        if key is not None:
            scope.known[key] = results
        return results

    def build(self, op: Op, where: Where | None) -> Any:
        """What computes an operation; a region is prepared first."""
        if op.regions:
            op = replace(op, regions=[self._region(op, where)])  # type: ignore[list-item]
        try:
            function = OPERATIONS[op.name].build(op)
        except Unsupported as error:
            error.where = error.where or where
            raise
        return judge_hints(function, op) if any(name in op.attrs for name in HINTS) else function

    def _region(self, op: Op, where: Where | None) -> Program:
        """The program of an operation's region, over scalars."""
        lowering = Lowering(self.functions, self.target)
        try:
            program = lowering.write(op.regions[0], Frame("", where))
        except KeyError as error:
            raise Unsupported(f"{op.name} whose region uses {error} from outside", where) from None
        names = (made.op.name for made in lowering.made_by.values())
        program.asks_place = "tt.get_program_id" in names
        return program

    def _constants(self, op: Op, sources: tuple[int, ...], where: Where | None) -> tuple[int, ...]:
        """The results of an operation on constants, computed now."""
        with np.errstate(all="ignore"):
            made = self.build(op, where)(*(self.constants[s] for s in sources))
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

    def call(self, op: Op, frame: Frame, where: Where | None) -> tuple[int, ...]:
        """Write a called function's body in place of the call."""
        callee = self.functions.get(op.words[0])
        if callee is None:
            raise Unsupported(f"a call of {op.words[0]}, which the module lacks,", where)
        self.depth += 1
        if self.depth > 200:
            raise Unsupported(f"{callee.name} calls itself without end, which", where)
        inner = Frame(callee.name, where)
        names = (name for name, _ in callee.args)
        inner.slots.update(zip(names, frame.find(op.operands), strict=True))
        results = write_blocks(self, callee.body, inner, op.types)
        self.depth -= 1
        return results

"""Runs a kernel's TTIR over symbols and keeps every access that it makes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton

from gemmproof.reference.observation import Where
from gemmproof.reference.simulator.arguments import GRID_LIMITS
from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.hints import claim_hints, hints_of, keep_hints
from gemmproof.reference.symbolic.machine.joining import merge
from gemmproof.reference.symbolic.machine.registry import CONTROL, RULES, Invocation
from gemmproof.reference.symbolic.machine.seen import Branch, Claim, NotFollowed
from gemmproof.reference.symbolic.machine.values import (
    Access,
    BlockWindow,
    Bools,
    Data,
    Hinted,
    Ints,
    Pointers,
)
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    some,
    term,
)
from gemmproof.reference.ttir.module import Block, Function, Loc, Op

_TRITON = str(Path(triton.__file__).parent)


@dataclass(slots=True)
class Machine:
    """One launch over symbols: what it knows of programs and trips, and what was seen.

    `known` is what holds of each program's number and each trip; `launched` of the launch, if it
    is not refused; `accesses`, `claims` and `branches` are in the order of the source; `uses` are
    loaded integers on which these depend; `forgone` are hints of which it is not known whom they
    concern. While `muted` nothing is kept: a loop's body is first run to learn what it does to the
    values that it carries.
    """

    functions: dict[str, Function]
    grid: tuple[Poly, Poly, Poly]
    launch: int = 0
    known: dict[Atom, Cond] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    uses: list[tuple[Data, Cond, Where | None]] = field(default_factory=list)
    forgone: set[Any] = field(default_factory=set)
    path: Cond = TRUE
    launched: Cond = TRUE
    trips: tuple[Atom, ...] = ()
    muted: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)
    pids: tuple[Poly, ...] = ()
    where: Where | None = None
    returned: list[tuple[Cond, list[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # what is seen is of a program that runs
        self.path = every(le(1, size) for size in self.grid)
        pids = []
        for axis, size, limit in zip("xyz", self.grid, GRID_LIMITS, strict=True):
            if size.constant == 1:
                pids.append(term(0))
                continue
            atom = Atom("symbol", f"pid_{axis}", self.launch, is_natural=True)
            self.known[atom] = lt(term(atom), size)
            # a larger grid is refused before any program runs
            self.launched &= le(size, limit)
            pids.append(term(atom))
        self.pids = tuple(pids)

    def run(self, arguments: Sequence[Any]) -> None:
        """Run the kernel on its arguments, if it has any program. Raises NotFollowed."""
        if self.path == FALSE:
            return
        kernel = next((f for f in self.functions.values() if f.public), None)
        if kernel is None:
            raise NotFollowed("the module has no public function")
        self.call(kernel, arguments, None)

    # -- functions, blocks, operations -----------------------------------------------------------
    def call(self, function: Function, arguments: Sequence[Any], caller: Where | None) -> list[Any]:
        """What a function returns: its body in place of the call."""
        frame = Invocation(function.name, caller)
        names = (name for name, _ in function.args)
        frame.values.update(zip(names, arguments, strict=True))
        outer, self.returned = self.returned, []
        outer_path = self.path
        self.blocks(function.body, frame)
        returned, self.returned, self.path = self.returned, outer, outer_path
        return merge([(cond, values) for cond, values in returned], self)

    def blocks(self, blocks: list[Block], frame: Invocation) -> None:
        """A function's blocks in order, each under the condition that it is reached."""
        begin = self.path
        entries: dict[str, list[tuple[Cond, list[Any]]]] = {}
        position = {block.label: i for i, block in enumerate(blocks)}
        for i, block in enumerate(blocks):
            if i:
                edges = entries.get(block.label, [])
                if not edges:
                    continue
                self.path = some(cond for cond, _ in edges)
                values = merge(edges, self)
                names = (name for name, _ in block.args)
                frame.values.update(zip(names, values, strict=True))
            *body, last = block.ops
            for op in body:
                self.op(op, frame)
            if last.name == "tt.return":
                self.returned.append((self.path, [frame.values[x] for x in last.operands]))
                continue
            if last.name not in ("cf.br", "cf.cond_br"):
                self.op(last, frame)
                continue
            chosen = [TRUE]
            if last.name == "cf.cond_br":
                condition = self.bools(frame.values[last.operands[0]]).cond
                chosen = [condition, ~condition]
                self.part(condition)
            for (label, names_), cond in zip(last.targets, chosen, strict=True):
                if position[label] <= i:
                    raise NotFollowed("a loop of branches", self.where)
                reached = self.path & cond
                if reached != FALSE:
                    edge = (reached, [frame.values[x] for x in names_])
                    entries.setdefault(label, []).append(edge)
        self.path = begin

    def op(self, op: Op, frame: Invocation) -> None:
        """One operation."""
        self.where = self.place(op.loc, frame)
        if op.name in CONTROL:
            values, results = [], CONTROL[op.name](self, op, frame)
        else:
            known = RULES.get(op.name)
            values = [frame.values[x] for x in op.operands]
            if known is not None:
                results = known(self, op, values)
            elif op.types and all(kind.kind == "value" for kind in op.types):
                results = [self.opaque(op, values, kind) for kind in op.types]
            else:
                raise NotFollowed(f"{op.name} is not known over symbols", self.where)
        if not isinstance(results, list):
            results = [] if results is None else [results]
        if op.name not in CONTROL:
            results = keep_hints(self, op, values, results)
        if results:
            results = [claim_hints(self, op, results[0]), *results[1:]]
        frame.values.update(zip(op.results, results, strict=True))

    def place(self, loc: Loc | None, frame: Invocation) -> Where | None:
        """The user's line of an operation: the call's, where it stands in Triton's own library."""
        if loc is None or loc.file.startswith(_TRITON):
            return frame.caller
        name = frame.function.rpartition(".")[2].partition("__")[0] or frame.function
        return Where(loc.file, loc.line, name)

    def region(self, blocks: list[Block], frame: Invocation) -> list[Any]:
        """What a region of one block hands on."""
        *body, last = blocks[0].ops
        for op in body:
            self.op(op, frame)
        return [frame.values[x] for x in last.operands]

    def part(self, condition: Cond) -> None:
        """Programs take one side of a branch where a condition holds, and the other elsewhere."""
        sides = ((condition, True), (~condition, False))
        if not self.muted and condition not in (TRUE, FALSE):
            self.branches += [Branch(self.path & x, self.where, taken) for x, taken in sides]

    @contextmanager
    def under(self, cond: Cond) -> Iterator[None]:
        """Operations that only run where a condition holds."""
        outer, self.path = self.path, self.path & cond
        yield
        self.path = outer

    # -- values ----------------------------------------------------------------------------------
    def unknown(self, why: str, shape: tuple[int, ...]) -> Poly:
        """An integer of which nothing is known, of each program, trip and lane its own."""
        at = f" at {self.where}" if self.where else ""
        trips = (term(x) for x in self.trips)
        lanes = (lane(i, n) for i, n in enumerate(shape))
        number = (self.launch, next(self.numbers))
        return term(Atom("unknown", f"{why}{at}", number, *self.pids, *trips, *lanes))

    def opaque(self, op: Op, values: Sequence[Any], kind: Any) -> Any:
        """The result of an operation of which only its operands are known."""
        moved = (
            any(isinstance(x, BlockWindow | Pointers) for x in values)
            and op.name != "tt.ptr_to_int"
        )
        if kind.dtype.is_pointer or moved:
            raise NotFollowed(f"{op.name} is not known over symbols", self.where)
        parts = tuple(self.data(x) for x in values if not isinstance(x, BlockWindow))
        if any(isinstance(x, Data) for x in values) or kind.dtype.is_float:
            return Data(op.name, kind.shape, parts)
        number = self.unknown(op.name, kind.shape)
        if kind.dtype.bits == 1:
            return Bools(~_is_zero(number), kind.shape)
        return Ints(number, kind.shape, kind.dtype.bits)

    def ints(self, value: Any) -> Ints:
        """A value as integers: what was loaded is unknown."""
        if isinstance(value, Ints):
            return value
        if isinstance(value, Bools):
            return Ints(value.number, value.shape, 1)
        if isinstance(value, Data):
            if not self.muted:
                self.uses.append((value, self.path, self.where))
            return Ints(
                self.unknown(f"an integer from {describe(value)}", value.shape), value.shape
            )
        raise NotFollowed("a pointer where an integer is expected", self.where)

    def bools(self, value: Any) -> Bools:
        """A value as conditions."""
        if isinstance(value, Bools):
            return value
        whole = self.ints(value)
        self.forgo(whole.hints)
        return Bools(~_is_zero(whole.term), whole.shape)

    def data(self, value: Any) -> Data:
        """A value as numbers to compute with."""
        if isinstance(value, Data):
            return value
        if isinstance(value, Ints | Bools):
            number = value.term if isinstance(value, Ints) else value.number
            word = "" if number.constant is None else str(number.constant)
            self.forgo(hints_of(value))
            return Data("number" if word else "index", value.shape, word=word)
        self.forgo(hints_of(value))
        return Data("address", getattr(value, "shape", ()))

    def symbol(self, name: str) -> Poly:
        """A new symbol of this launch; another run of it names the same ones."""
        return term(Atom("symbol", name, self.launch, next(self.numbers), is_natural=True))

    def claim(self, kind: str, words: str, cond: Cond, number: Any = None) -> None:
        """Keep what must hold here."""
        if not self.muted and cond != TRUE:
            self.claims.append(Claim(kind, words, cond, self.path, self.where, number))

    def forgo(self, hints: Iterable[Hinted]) -> None:
        """Require that hints hold in every lane: who uses them is no longer followed."""
        self.forgone |= {number for number, _ in hints}

    def keep(self, access: Access) -> None:
        """Keep an access."""
        if not self.muted:
            self.accesses.append(access)


def _is_zero(number: Poly) -> Cond:
    return eq(number, 0)


def describe(value: Data) -> str:
    """What a number comes from, in a word or two."""
    if value.kind == "load":
        return f"what is loaded at {value.access.where}"
    return next((describe(part) for part in value.parts), value.kind)

"""TTIR interpreted over symbols."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import triton

from gemmproof.reference.simulation import Where
from gemmproof.reference.simulator.launch import GRID_LIMITS
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    ARITHMETIC,
    BlockWindow,
    Bools,
    Data,
    Hinted,
    Ints,
    Pointers,
    SymbolicAccess,
    fresh_lane,
    swap_lanes,
)
from gemmproof.reference.symbolic.lemmas import lane
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
    make,
    some,
    substitute,
    term,
)
from gemmproof.reference.ttir import Block, Function, Loc, Op


# -- accesses ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Claim:
    """A condition on a kernel's integers: a hint, an assumption, or that a number fits its type.

    `cond` must hold wherever `path` does, for every lane; for a hint that has a `number` it is
    enough that the conditions that accesses keep under this number hold of the lanes that matter.
    """

    kind: str
    text: str
    cond: Cond
    path: Cond
    where: Where | None
    number: Any = None


@dataclass(frozen=True, slots=True)
class Branch:
    """One side of a branch, or the turns of a loop: programs take it where `cond` holds."""

    cond: Cond
    where: Where | None
    is_taken: bool
    is_loop: bool = False


class NotInterpretable(Exception):
    """An operation that is not supported over symbols; `where` is its line."""

    def __init__(self, message: str, where: Where | None = None) -> None:
        super().__init__(message)
        self.where = where


# -- registry ------------------------------------------------------------------------------------
@dataclass(slots=True)
class Invocation:
    """The values of one function by their SSA names, and the line of its call."""

    function: str
    caller: Where | None
    values: dict[str, object] = field(default_factory=dict)


# the attributes that tl.multiple_of, tl.max_contiguous and tl.max_constancy set on an operation
HINTS = {
    "tt.divisibility": "multiple_of",
    "tt.contiguity": "max_contiguous",
    "tt.constancy": "max_constancy",
}

Rule = Callable[["Machine", Op, Sequence[Any]], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the meaning of operations over symbols."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


Control = Callable[["Machine", Op, Invocation], Any]
CONTROL: dict[str, Control] = {}


def control(*names: str) -> Callable[[Control], Control]:
    """Register the meaning over symbols of an operation with regions, or of a call."""

    def register(function: Control) -> Control:
        CONTROL.update(dict.fromkeys(names, function))
        return function

    return register


# -- joins of branches ---------------------------------------------------------------------------
def merge(edges: Sequence[tuple[Cond, list[Any]]], machine: Machine) -> list[Any]:
    """Return the values where paths meet: those of the first path whose condition holds."""
    if not edges:
        return []
    (_, values), *others = reversed(edges)
    for cond, earlier in others:
        values = [choose(machine, cond, x, y) for x, y in zip(earlier, values, strict=True)]
    return list(values)


def choose(machine: Machine, cond: Cond, x: Any, y: Any) -> Any:
    """Return x where a condition holds, else y."""
    if cond == TRUE or x is y or x == y:
        return x
    if cond == FALSE:
        return y
    shape = x.block if isinstance(x, BlockWindow) else x.shape
    if isinstance(x, BlockWindow) and isinstance(y, BlockWindow):
        return _choose_window(machine, cond, x, y)
    if isinstance(x, Pointers) and isinstance(y, Pointers):
        if x.tensor != y.tensor:
            raise NotInterpretable("a pointer that is one of two tensors'", machine.where)
        steps = tuple(dict.fromkeys((*x.steps, *y.steps)))
        number = make("choice", cond, x.term, y.term)
        return Pointers(x.tensor, number, shape, steps, _choose_hints(cond, x, y))
    if isinstance(x, Ints) and isinstance(y, Ints):
        number = make("choice", cond, x.term, y.term)
        return Ints(number, shape, x.bits, hints=_choose_hints(cond, x, y))
    if isinstance(x, Bools) and isinstance(y, Bools):
        return Bools(some((every((cond, x.cond)), every((~cond, y.cond)))), shape)
    return Data("choice", shape, (machine.data(x), machine.data(y)), cond=cond)


def _choose_hints(cond: Cond, x: Any, y: Any) -> tuple[Hinted, ...]:
    """Return the hints on each of two values, where it is the chosen one."""
    first = ((number, hint | ~cond) for number, hint in x.hints)
    return (*first, *((number, hint | cond) for number, hint in y.hints))


def _choose_window(machine: Machine, cond: Cond, x: BlockWindow, y: BlockWindow) -> BlockWindow:
    def each(first: Sequence[Poly], second: Sequence[Poly]) -> tuple[Poly, ...]:
        return tuple(make("choice", cond, p, q) for p, q in zip(first, second, strict=True))

    base = choose(machine, cond, x.base, y.base)
    sizes, strides = each(x.sizes, y.sizes), each(x.strides, y.strides)
    return BlockWindow(base, sizes, strides, each(x.starts, y.starts), x.block, x.fill)


# -- hints ---------------------------------------------------------------------------------------
# the result's lanes are computed from the same lanes of the operands
ELEMENTWISE = {*ARITHMETIC, "arith.extsi", "arith.extui", "arith.trunci", "tt.addptr"}
# these move values, and the hints with them
MOVED = {
    "arith.select", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape",
}  # fmt: skip
ACCESSES = {"tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"}


def claim_hints(machine: Machine, op: Op, value: Any, argument: str = "") -> Any:
    """Claim the hints of an operation on a value: its result, or a loop's `argument`.

    The value then keeps these hints.
    """
    attributes = {word: f"{hint}{argument}" for hint, word in HINTS.items()}
    attributes = {word: name for word, name in attributes.items() if name in op.attrs}
    if attributes and not isinstance(value, Ints):
        what = "pointers" if isinstance(value, Pointers) else "loaded numbers"
        cond = ~eq(machine.unknown(f"a hint on {what}", value.shape), 0)
        machine.claim("hint", f"a hint on {what}", cond)
        return value
    hints = []
    for word, name in attributes.items():
        rank = len(value.shape) or 1
        for axis, n in enumerate((op.integers(name) * rank)[:rank]):
            cond = _hint(word, value, axis, n) if n > 1 else TRUE
            number = (machine.launch, next(machine.numbers))
            machine.claim("hint", f"tl.{word}({n})", cond, number)
            hints.append((number, _format_lane(machine, word, value, axis, cond)))
    return replace(value, hints=(*value.hints, *hints)) if hints else value


def hints_of(value: Any) -> tuple[Hinted, ...]:
    """Return the hints on the values that a value is computed from."""
    value = value.base if isinstance(value, BlockWindow) else value
    return value.hints if isinstance(value, Ints | Pointers) else ()


def keep_hints(machine: Machine, op: Op, values: Sequence[Any], results: list[Any]) -> list[Any]:
    """Return the results of an operation with the hints on its operands.

    If results cannot keep a hint, as those of a comparison, it must hold in every lane.
    """
    hints = tuple(dict.fromkeys(x for value in values for x in hints_of(value)))
    if not hints or op.name in MOVED:
        return results
    if op.name in ELEMENTWISE and all(isinstance(x, Ints | Pointers) for x in results):
        return [replace(x, hints=hints) for x in results]
    others = values[1:] if op.name in ACCESSES else values
    machine.forgo(x for value in others for x in hints_of(value))
    return results


def _format_lane(machine: Machine, word: str, value: Ints, axis: int, cond: Cond) -> Cond:
    """Return the condition that a lane is not misdescribed: for a multiple, all of its run.

    That is more than needed: every lane up to it, whichever that is, begins a run at a multiple or
    follows its neighbour.
    """
    atom = lane(axis, value.shape[axis]).atom if value.shape else None
    if word != "multiple_of" or atom is None:
        return cond
    up_to = machine.symbol("lane up to it")
    return lt(term(atom), up_to) | substitute(cond, {atom: up_to})


def _hint(word: str, value: Ints, axis: int, n: int) -> Cond:
    if not value.shape:
        return eq(make("mod", value.term, n), 0) if word == "multiple_of" else TRUE
    index = lane(axis, value.shape[axis])
    atom = index.atom
    if word == "multiple_of":
        starts = eq(make("mod", value.term, n), 0)
        if atom is None:
            return starts
        # a lane that follows its left neighbour is inside a run, whose first value counts
        before = substitute(value.term, {atom: index - 1})
        return some((starts, every((le(1, index), eq(value.term, before + 1)))))
    if atom is None:
        return TRUE
    n = min(n, value.shape[axis])
    rest = make("mod", index, n)
    first = substitute(value.term, {atom: index - rest})
    step = 1 if word == "max_contiguous" else 0
    return eq(value.term, first + rest * step)


# -- interpret -----------------------------------------------------------------------------------
_TRITON = str(Path(triton.__file__).parent)


@dataclass(slots=True)
class Machine:
    """One launch over symbols: the conditions on its programs and trips, and its records.

    `known` is what holds of each program's number and each trip; `launched` holds of the launch, if
    it is not refused; `accesses`, `claims` and `branches` are in the order of the source; `uses`
    are loaded integers on which these depend; `dropped` are hints for which the lanes that matter
    are not known; `arguments` are the kernel's, `largest` numbers that loops' trips never exceed,
    and `caller` is the line of the launch. While `suppressed` nothing is
    recorded: a loop's body is first run to learn its effect on the values that it carries.
    """

    functions: dict[str, Function]
    grid: tuple[Poly, Poly, Poly]
    launch: int = 0
    known: dict[Atom, Cond] = field(default_factory=dict)
    accesses: list[SymbolicAccess] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    uses: list[tuple[Data, Cond, Where | None]] = field(default_factory=list)
    dropped: set[Any] = field(default_factory=set)
    caller: Where | None = None
    largest: dict[Atom, int] = field(default_factory=dict)
    path: Cond = TRUE
    launched: Cond = TRUE
    trips: tuple[Atom, ...] = ()
    suppressed: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)
    pids: tuple[Poly, ...] = ()
    where: Where | None = None
    returned: list[tuple[Cond, list[Any]]] = field(default_factory=list)
    arguments: Sequence[Any] = ()

    def __post_init__(self) -> None:
        # all records are of a program that runs
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

    def list_grids(self) -> Iterator[Claim]:
        """Yield the claims that the launch's grid is within CUDA's limits."""
        for axis, size, limit in zip("xyz", self.grid, GRID_LIMITS, strict=True):
            within = le(size, limit)
            if within != TRUE:
                text = f"a grid of at most {limit} programs along {axis}"
                yield Claim("grid", text, within, TRUE, self.caller)

    def run(self, arguments: Sequence[Any]) -> None:
        """Run the kernel on its arguments, if it has any program. Raises NotInterpretable."""
        if self.path == FALSE:
            return
        kernel = next((f for f in self.functions.values() if f.public), None)
        if kernel is None:
            raise NotInterpretable("the module has no public function")
        self.arguments = arguments
        self.call(kernel, arguments, None)

    # -- functions, blocks, operations -----------------------------------------------------------
    def call(self, function: Function, arguments: Sequence[Any], caller: Where | None) -> list[Any]:
        """Return the results of a function, interpreting its body in place of the call."""
        frame = Invocation(function.name, caller)
        names = (name for name, _ in function.args)
        frame.values.update(zip(names, arguments, strict=True))
        outer, self.returned = self.returned, []
        outer_path = self.path
        self.blocks(function.body, frame)
        returned, self.returned, self.path = self.returned, outer, outer_path
        return merge([(cond, values) for cond, values in returned], self)

    def blocks(self, blocks: list[Block], frame: Invocation) -> None:
        """Interpret a function's blocks in order, each under the condition that it is reached."""
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
                    raise NotInterpretable("a loop of branches", self.where)
                reached = self.path & cond
                if reached != FALSE:
                    edge = (reached, [frame.values[x] for x in names_])
                    entries.setdefault(label, []).append(edge)
        self.path = begin

    def op(self, op: Op, frame: Invocation) -> None:
        """Interpret one operation."""
        self.where = self.locate(op.loc, frame)
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
                raise NotInterpretable(f"{op.name} is not known over symbols", self.where)
        if not isinstance(results, list):
            results = [] if results is None else [results]
        if op.name not in CONTROL:
            results = keep_hints(self, op, values, results)
        if results:
            results = [claim_hints(self, op, results[0]), *results[1:]]
        frame.values.update(zip(op.results, results, strict=True))

    def locate(self, loc: Loc | None, frame: Invocation) -> Where | None:
        """Return the user's line of an operation: the call's, if it is in Triton's own library."""
        if loc is None or loc.file.startswith(_TRITON):
            return frame.caller
        name = frame.function.rpartition(".")[2].partition("__")[0] or frame.function
        return Where(loc.file, loc.line, name)

    def region(self, blocks: list[Block], frame: Invocation) -> list[Any]:
        """Interpret a region of one block and return the values that it yields."""
        *body, last = blocks[0].ops
        for op in body:
            self.op(op, frame)
        return [frame.values[x] for x in last.operands]

    def part(self, condition: Cond) -> None:
        """Record the sides of a branch: one where a condition holds, and the other elsewhere."""
        sides = ((condition, True), (~condition, False))
        if not self.suppressed:
            self.branches += [
                Branch(self.path & x, self.where, is_taken) for x, is_taken in sides if x != TRUE
            ]

    def enter_loop(self, condition: Cond) -> None:
        """Record that a loop has turns where a condition holds."""
        if not self.suppressed:
            self.branches.append(Branch(self.path & condition, self.where, True, True))

    @contextmanager
    def under(self, cond: Cond) -> Iterator[None]:
        """Interpret operations that only run where a condition holds."""
        outer, self.path = self.path, self.path & cond
        yield
        self.path = outer

    # -- values ----------------------------------------------------------------------------------
    def unknown(self, why: str, shape: tuple[int, ...]) -> Poly:
        """Return an unconstrained integer, another one for each program, trip and lane."""
        at = f" at {self.where}" if self.where else ""
        trips = (term(x) for x in self.trips)
        lanes = (lane(i, n) for i, n in enumerate(shape))
        number = (self.launch, next(self.numbers))
        return term(Atom("unknown", f"{why}{at}", number, *self.pids, *trips, *lanes))

    def opaque(self, op: Op, values: Sequence[Any], kind: Any) -> Any:
        """Return the result of an operation of which only its operands are known."""
        moved = (
            any(isinstance(x, BlockWindow | Pointers) for x in values)
            and op.name != "tt.ptr_to_int"
        )
        if kind.dtype.is_pointer or moved:
            raise NotInterpretable(f"{op.name} is not known over symbols", self.where)
        parts = tuple(self.data(x) for x in values if not isinstance(x, BlockWindow))
        if not _is_lanewise(op):
            parts = tuple(self.spread(x) for x in parts)
        if op.name in _MAY_BE_UNDEFINED or not values:  # nothing but the GPU knows a clock
            return Data(op.name, kind.shape, (*parts, Data("undefined", kind.shape)))
        if any(isinstance(x, Data) for x in values) or kind.dtype.is_float:
            return Data(op.name, kind.shape, parts)
        number = self.unknown(op.name, kind.shape)
        if kind.dtype.bits == 1:
            return Bools(~_is_zero(number), kind.shape)
        return Ints(number, kind.shape, kind.dtype.bits)

    def ints(self, value: Any) -> Ints:
        """Return a value as integers: loaded ones are unknown."""
        if isinstance(value, Ints):
            return value
        if isinstance(value, Bools):
            return Ints(value.number, value.shape, 1)
        if isinstance(value, Data):
            if not self.suppressed:
                self.uses.append((value, self.path, self.where))
            return Ints(
                self.unknown(f"an integer from {describe(value)}", value.shape), value.shape
            )
        raise NotInterpretable("a pointer where an integer is expected", self.where)

    def bools(self, value: Any) -> Bools:
        """Return a value as conditions."""
        if isinstance(value, Bools):
            return value
        whole = self.ints(value)
        self.forgo(whole.hints)
        return Bools(~_is_zero(whole.term), whole.shape)

    def data(self, value: Any) -> Data:
        """Return a value as numbers to compute with."""
        if isinstance(value, Data):
            return value
        if isinstance(value, Ints | Bools):
            number = value.term if isinstance(value, Ints) else value.number
            word = "" if number.constant is None else str(number.constant)
            self.forgo(hints_of(value))
            return Data("number" if word else "index", value.shape, word=word)
        self.forgo(hints_of(value))
        return Data("address", getattr(value, "shape", ()))

    def spread(self, value: Data) -> Data:
        """Return a number of any lane: it is not known which."""
        swaps = {}
        for axis, n in enumerate(value.shape):
            atom = lane(axis, n).atom
            if atom is not None:
                swaps[atom] = fresh_lane(next(self.numbers), n)
        return swap_lanes(value, swaps, ())

    def symbol(self, name: str) -> Poly:
        """Return a new symbol of this launch; another run of it names the same ones."""
        return term(Atom("symbol", name, self.launch, next(self.numbers), is_natural=True))

    def claim(self, kind: str, text: str, cond: Cond, number: Any = None) -> None:
        """Record a condition that must hold here."""
        if not self.suppressed and cond != TRUE:
            self.claims.append(Claim(kind, text, cond, self.path, self.where, number))

    def forgo(self, hints: Iterable[Hinted]) -> None:
        """Require that hints hold in every lane: their uses are no longer followed."""
        self.dropped |= {number for number, _ in hints}

    def keep(self, access: SymbolicAccess) -> None:
        """Record an access."""
        if not self.suppressed:
            self.accesses.append(access)


def _is_zero(number: Poly) -> Cond:
    return eq(number, 0)


# operations of which each lane is computed from the same lane of the operands
_LANEWISE = {
    "tt.bitcast", "tt.clampf", "tt.extern_elementwise", "tt.fp_to_fp", "tt.int_to_ptr",
    "tt.mulhiui", "tt.precise_divf", "tt.precise_sqrt", "tt.ptr_to_int",
}  # fmt: skip
# operations whose result may be undefined where each operand is defined: beyond a block or its bins
_MAY_BE_UNDEFINED = {"tt.gather", "tt.histogram"}


def _is_lanewise(op: Op) -> bool:
    if op.name == "tt.elementwise_inline_asm":
        return op.integer("packed_element", 1) == 1
    return op.name in _LANEWISE or op.name.startswith(("arith.", "math."))


def describe(value: Data) -> str:
    """Describe the origin of a number in a word or two."""
    if value.kind == "load":
        return f"what is loaded at {value.access.where}"
    return next((describe(part) for part in value.parts), value.kind)

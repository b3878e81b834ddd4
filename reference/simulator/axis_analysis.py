"""Vectors in which Triton issues loads and stores: its axis analysis, on TTIR.

Per axis of a value the analysis keeps the length of runs of consecutive integers (contiguity), the
length of runs of equal ones (constancy), and a power of two that divides the first integer of each
run of consecutive ones (divisibility; bytes for pointers). tl.max_contiguous, tl.multiple_of and
tl.max_constancy replace these figures. The rules are those of lib/Analysis/AxisInfo.cpp, the width
of a vector is that of its layouts (Coalesce.cpp, LoadStoreOpToLLVM.cpp). Where the two are not
followed exactly the figures are lower: a vector that is reported here is issued.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import gcd, prod

from gemmproof.reference.ttir import Block, Function, Loc, Op, Type

MOST = 2**62  # of an integer of which nothing is known yet, and the divisibility of 0
VECTOR_BITS = 128
MOST_CALLS = 100  # one within the other
MOST_KEYS = 5  # integers of which each kind is tried with each kind of the others
WARP = 32
HINTS = {
    "tt.contiguity": "max_contiguous",
    "tt.divisibility": "multiple_of",
    "tt.constancy": "max_constancy",
}


@dataclass(frozen=True, slots=True)
class Hint:
    """A hint in a kernel's source, as it is written, with the line of the value that it is on."""

    text: str
    loc: Loc | None


@dataclass(frozen=True, slots=True)
class Axes:
    """The figures of one value, per axis; `constant` is its only integer, if it is known.

    `hints` and `arguments`, by position, are those that the figures may depend on.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    hints: frozenset[Hint] = frozenset()
    arguments: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one access: `width` consecutive lanes along `axis` of its block.

    `unmasked` is the width that its pointers alone would give: a mask that changes from lane to
    lane makes vectors narrower.
    """

    axis: int
    width: int
    unmasked: int
    hints: tuple[Hint, ...] = ()
    arguments: frozenset[int] = frozenset()
    kind: str = "load"
    loc: Loc | None = None


def find_widened(
    functions: Mapping[str, Function], arguments: Sequence[int], warps: int
) -> dict[str, Vectors]:
    """Return the vectors that a kernel's accesses get only because of hints, by their TTIR.

    Those are included that only a mask keeps narrow.

    `arguments` are numbers of which only the fact is used that they are 1, a multiple of 16 or
    neither. An access that is inlined several times has one entry, the narrowest of its vectors.
    """
    widened: dict[str, Vectors] = {}
    narrow: set[str] = set()
    for site, vectors in _compare_vectors(functions, arguments, warps).items():
        text = site[-1]
        if vectors is None:
            narrow.add(text)
        elif text not in widened or vectors.unmasked < widened[text].unmasked:
            widened[text] = vectors
    return {text: vectors for text, vectors in widened.items() if text not in narrow}


Site = tuple[str, ...]  # the TTIR of an access, behind that of the calls that lead to it


@dataclass(frozen=True, slots=True)
class Widening:
    """The widest vectors that hints give an access, and what its arguments are then.

    `required` has 1 or 16 for the key of each argument that must be 1 or a multiple of 16.
    """

    loc: Loc | None
    kind: str
    axis: int
    width: int
    required: Mapping[Hashable, int]


def list_widenings(
    functions: Mapping[str, Function], known: Sequence[Hashable]
) -> list[Widening] | None:
    """List the accesses to which hints give vectors, for some values of the arguments.

    `known` has a number for each argument that is one, and a key for each other integer, equal for
    equal ones: each may be 1, which Triton makes a constant, a multiple of 16, or neither. None is
    a pointer; its alignment only widens vectors. Returns None if there are too many arguments.
    """
    if not has_hints(functions):
        return []
    fixed = [MOST if x is None else x if isinstance(x, int) else 0 for x in known]
    tried: dict[tuple[int, ...], dict[Site, Vectors | None]] = {}
    widenings: dict[Site, Widening] = {}
    for site, hinted in list_vectors(functions, fixed, 1, True).items():
        if not hinted.hints:
            continue
        upstream = (known[i] for i in sorted(hinted.arguments))
        keys = [x for x in dict.fromkeys(upstream) if not (x is None or isinstance(x, int))]
        if len(keys) > MOST_KEYS:
            return None
        for numbers in product((1, 16, 3), repeat=len(keys)):
            chosen = dict(zip(keys, numbers, strict=True))
            values = tuple(
                chosen.get(x, 3) if n == 0 else n for x, n in zip(known, fixed, strict=True)
            )
            if values not in tried:
                tried[values] = _compare_vectors(functions, values, 1)
            vectors = tried[values].get(site)
            if vectors is None:
                continue
            required = {x: n for x, n in chosen.items() if n != 3}
            width, before = vectors.unmasked, widenings.get(site)
            if before is not None:
                if before.axis != vectors.axis:
                    return None
                width = max(width, before.width)
                both = before.required.items()
                required = {x: n for x, n in both if required.get(x) == n}
            widenings[site] = Widening(hinted.loc, hinted.kind, vectors.axis, width, required)
    return list(widenings.values())


def _compare_vectors(
    functions: Mapping[str, Function], arguments: Sequence[int], warps: int
) -> dict[Site, Vectors | None]:
    """Return the vectors of each access, None if hints do not make them wider."""
    without = list_vectors(functions, arguments, warps, False)
    compared: dict[Site, Vectors | None] = {}
    for site, vectors in list_vectors(functions, arguments, warps, True).items():
        plain = without[site]
        wider = (
            plain.axis != vectors.axis
            or plain.unmasked < vectors.unmasked
            or plain.width < vectors.width
        )
        compared[site] = vectors if wider and vectors.unmasked > 1 else None
    return compared


def list_vectors(
    functions: Mapping[str, Function], arguments: Sequence[int], warps: int, hinted: bool
) -> dict[Site, Vectors]:
    """Return the vectors of every load and store through pointers."""
    kernel = next(f for f in functions.values() if f.public)
    analysis = _Analysis(functions, warps, hinted)
    values = []
    for i, (x, _) in enumerate(zip(arguments, kernel.args, strict=True)):
        divisor = 16 if x % 16 == 0 else 1
        constant = 1 if x == 1 else None
        values.append(Axes((1,), (divisor,), (1,), constant, arguments=frozenset((i,))))
    analysis.call(kernel, values)
    return analysis.vectors


def has_hints(functions: Mapping[str, Function]) -> bool:
    """Return whether the source of a kernel has hints on the values of its operations."""
    blocks = [block for function in functions.values() for block in function.body]
    return any(name in op.attrs for op in _list_ops(blocks) for name in HINTS)


def _list_ops(blocks: Iterable[Block]) -> Iterable[Op]:
    for block in blocks:
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from _list_ops(region)


def _divisor(x: int) -> int:
    """Return the largest power of two that divides an integer."""
    return MOST if x == 0 else x & -x


def _gcd(*numbers: int) -> int:
    return gcd(*numbers)


def _times(x: int, y: int) -> int:
    return min(x * y, MOST)


def _scalar(divisor: int) -> Axes:
    return Axes((1,), (divisor,), (1,))


def _unknown(kind: Type) -> Axes:
    ones = (1,) * max(len(kind.shape), 1)
    return Axes(ones, ones, ones)


# -- rules ---------------------------------------------------------------------------------------
Rule = Callable[[Op, Sequence[Axes]], "Axes | None"]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


@_rule("arith.extsi", "arith.extui", "arith.trunci", "arith.bitcast", "tt.bitcast")
def _cast(op: Op, values: Sequence[Axes]) -> Axes:
    return values[0]


@_rule("tt.make_range")
def _range(op: Op, values: Sequence[Axes]) -> Axes:
    start, end = op.integer("start"), op.integer("end")
    return Axes((end - start,), (_divisor(start),), (1,))


_DENSE = re.compile(r"dense<(-?\d+|true|false)>")


@_rule("arith.constant")
def _constant(op: Op, values: Sequence[Axes]) -> Axes | None:
    text, kind = op.keywords[0], op.types[0]
    if match := _DENSE.fullmatch(text):
        text = match[1]
    if kind.dtype.is_float or not re.fullmatch(r"-?\d+|true|false", text):
        return None
    x = int(text == "true") if text in ("true", "false") else int(text)
    ones = (1,) * max(len(kind.shape), 1)
    return Axes(ones, (_divisor(x),) * len(ones), kind.shape or (1,), x)


def _binary(
    values: Sequence[Axes],
    contiguity: Callable[[Axes, Axes, int], int],
    divisibility: Callable[[Axes, Axes, int], int],
    constancy: Callable[[Axes, Axes, int], int] | None = None,
    constant: Callable[[int, int], int] | None = None,
) -> Axes:
    x, y = values
    axes = range(len(x.contiguity))
    if constant is not None and x.constant is not None and y.constant is not None:
        number = constant(x.constant, y.constant)
        longest = tuple(map(max, x.constancy, y.constancy))
        return Axes((1,) * len(axes), (_divisor(number),) * len(axes), longest, number)
    if constancy is None:
        constancy = _both_constant
    return Axes(
        tuple(contiguity(x, y, d) for d in axes),
        tuple(divisibility(x, y, d) for d in axes),
        tuple(constancy(x, y, d) for d in axes),
    )


def _both_constant(x: Axes, y: Axes, d: int) -> int:
    return _gcd(x.constancy[d], y.constancy[d])


@_rule("arith.addi", "arith.subi", "tt.addptr")
def _add(op: Op, values: Sequence[Axes]) -> Axes:
    size = 1
    if op.name == "tt.addptr" and (pointee := op.types[0].dtype.pointee) is not None:
        size = pointee.itemsize

    def contiguity(x: Axes, y: Axes, d: int) -> int:
        kept = _gcd(x.contiguity[d], y.constancy[d])
        if op.name == "arith.subi":
            return kept
        return max(_gcd(x.constancy[d], y.contiguity[d]), kept)

    def divisibility(x: Axes, y: Axes, d: int) -> int:
        return _gcd(x.divisibility[d], _times(y.divisibility[d], size))

    sign = -1 if op.name == "arith.subi" else size
    return _binary(values, contiguity, divisibility, constant=lambda x, y: x + sign * y)


@_rule("arith.muli")
def _multiply(op: Op, values: Sequence[Axes]) -> Axes:
    def contiguity(x: Axes, y: Axes, d: int) -> int:
        return max(
            x.contiguity[d] if y.constant == 1 else 1, y.contiguity[d] if x.constant == 1 else 1
        )

    def divisibility(x: Axes, y: Axes, d: int) -> int:
        first = 1 if x.contiguity[d] > 1 and y.constant != 1 else x.divisibility[d]
        second = 1 if y.contiguity[d] > 1 and x.constant != 1 else y.divisibility[d]
        return _times(first, second)

    return _binary(values, contiguity, divisibility, constant=lambda x, y: x * y)


def _is_run(x: Axes, shape: tuple[int, ...], d: int) -> bool:
    return x.contiguity[d] == shape[d]


def _is_constant(x: Axes, shape: tuple[int, ...], d: int) -> bool:
    return x.constancy[d] == shape[d]


@_rule("arith.divsi", "arith.divui")
def _divide(op: Op, values: Sequence[Axes]) -> Axes | None:
    shape = op.types[0].shape
    if values[1].constant == 0:
        return None

    def contiguity(x: Axes, y: Axes, d: int) -> int:
        return x.contiguity[d] if y.constant == 1 else 1

    def constancy(x: Axes, y: Axes, d: int) -> int:
        if not shape:
            return 1
        number = _both_constant(x, y, d)
        if _is_run(x, shape, d) and _is_constant(y, shape, d):
            number = max(number, _gcd(x.contiguity[d], x.divisibility[d], y.divisibility[d]))
        return number

    def divisibility(x: Axes, y: Axes, d: int) -> int:
        if x.constant == 0 or y.constant == 1:
            return x.divisibility[d]
        if y.constant is not None and x.contiguity[d] == 1:
            size = abs(y.constant)
            if size & (size - 1) == 0:
                return max(1, x.divisibility[d] // size)
        return 1

    return _binary(values, contiguity, divisibility, constancy, lambda x, y: int(abs(x) // abs(y)))


@_rule("arith.remsi", "arith.remui")
def _remainder(op: Op, values: Sequence[Axes]) -> Axes | None:
    shape = op.types[0].shape
    if values[1].constant == 0:
        return None

    def contiguity(x: Axes, y: Axes, d: int) -> int:
        if shape and _is_run(x, shape, d) and _is_constant(y, shape, d):
            return _gcd(x.contiguity[d], x.divisibility[d], y.divisibility[d])
        return 1

    def divisibility(x: Axes, y: Axes, d: int) -> int:
        return _gcd(x.divisibility[d], y.divisibility[d]) if y.constancy[d] > 1 else 1

    def constancy(x: Axes, y: Axes, d: int) -> int:
        return _both_constant(x, y, d) if shape else 1

    if values[1].constant == 1:
        ones = (1,) * len(values[0].contiguity)
        return Axes(ones, (MOST,) * len(ones), shape or (1,), 0)
    return _binary(values, contiguity, divisibility, constancy, lambda x, y: abs(x) % abs(y))


@_rule("tt.splat")
def _splat(op: Op, values: Sequence[Axes]) -> Axes:
    (x,), shape = values, op.types[0].shape
    ones = (1,) * len(shape)
    return Axes(ones, (x.divisibility[0],) * len(shape), shape, x.constant)


@_rule("tt.expand_dims")
def _expand(op: Op, values: Sequence[Axes]) -> Axes:
    (x,), axis = values, op.integer("axis")
    pairs = zip(x.contiguity, x.divisibility, strict=True)
    divisor = _gcd(*(1 if run > 1 else n for run, n in pairs))
    if x.constant is not None:
        divisor = _divisor(x.constant)

    def insert(figures: tuple[int, ...], figure: int) -> tuple[int, ...]:
        return (*figures[:axis], figure, *figures[axis:])

    runs, constancy = insert(x.contiguity, 1), insert(x.constancy, 1)
    return Axes(runs, insert(x.divisibility, divisor), constancy, x.constant)


@_rule("tt.broadcast")
def _broadcast(op: Op, values: Sequence[Axes]) -> Axes:
    (x,), shape, source = values, op.types[0].shape, op.operand_types[0].shape
    runs = tuple(1 if n == 1 else run for n, run in zip(source, x.contiguity, strict=True))
    sides = zip(source, shape, x.constancy, strict=True)
    return Axes(
        runs, x.divisibility, tuple(n if old == 1 else run for old, n, run in sides), x.constant
    )


@_rule("arith.cmpi")
def _compare(op: Op, values: Sequence[Axes]) -> Axes | None:
    shape, (x, y) = op.types[0].shape, values
    if not shape or (x.constant is not None and y.constant is not None):
        return None
    predicate = next((word[-2:] for word in op.keywords if word[1:] in _ORDERS), "")

    def constancy(d: int) -> int:
        number = _both_constant(x, y, d)
        if predicate in ("gt", "le") and _is_constant(x, shape, d):
            number = max(number, _gcd(y.contiguity[d], x.divisibility[d], y.divisibility[d]))
        elif predicate in ("lt", "ge") and _is_constant(y, shape, d):
            number = max(number, _gcd(x.contiguity[d], x.divisibility[d], y.divisibility[d]))
        return number

    ones = (1,) * len(shape)
    return Axes(ones, ones, tuple(map(constancy, range(len(shape)))))


_ORDERS = ("gt", "ge", "lt", "le")


def _join_divisibility(x: Axes, y: Axes, d: int) -> int:
    both = _gcd(x.divisibility[d], y.divisibility[d])
    if x.contiguity[d] == y.contiguity[d] or MOST in (x.contiguity[d], y.contiguity[d]):
        return both
    return _gcd(both, x.contiguity[d], y.contiguity[d])


@_rule("arith.select")
def _select(op: Op, values: Sequence[Axes]) -> Axes:
    condition, x, y = values
    if condition.constant is not None:
        return x if condition.constant else y
    joined = join(x, y)
    if len(condition.constancy) < len(x.constancy) or not op.operand_types[0].shape:
        return joined

    def cut(figures: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(_gcd, figures, condition.constancy))

    return replace(joined, contiguity=cut(joined.contiguity), constancy=cut(joined.constancy))


@_rule("arith.andi", "arith.ori", "arith.xori")
def _logical(op: Op, values: Sequence[Axes]) -> Axes:
    operators = {"arith.andi": int.__and__, "arith.ori": int.__or__, "arith.xori": int.__xor__}
    return _binary(values, lambda x, y, d: 1, lambda x, y, d: 1, constant=operators[op.name])


@_rule("arith.shli")
def _shift_left(op: Op, values: Sequence[Axes]) -> Axes:
    shift = values[1].constant or 0

    def divisibility(x: Axes, y: Axes, d: int) -> int:
        first = 1 if x.contiguity[d] > 1 and shift else x.divisibility[d]
        return _times(first, 1 << min(max(shift, 0), 62))

    def contiguity(x: Axes, y: Axes, d: int) -> int:
        return x.contiguity[d] if y.constant == 0 else 1

    return _binary(values, contiguity, divisibility, constant=lambda x, y: x << min(max(y, 0), 62))


@_rule("arith.shrui", "arith.shrsi")
def _shift_right(op: Op, values: Sequence[Axes]) -> Axes:
    shift = values[1].constant

    def divisibility(x: Axes, y: Axes, d: int) -> int:
        if shift is None or shift < 0:
            return 1
        first = 1 if x.contiguity[d] > 1 and shift else x.divisibility[d]
        return max(1, first >> shift)

    def contiguity(x: Axes, y: Axes, d: int) -> int:
        return x.contiguity[d] if shift == 0 else 1

    return _binary(values, contiguity, divisibility, constant=lambda x, y: x >> max(y, 0))


@_rule("arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui")
def _extreme(op: Op, values: Sequence[Axes]) -> Axes:
    x, y = values
    if x.constant is not None and y.constant is not None:
        ones = (1,) * len(x.contiguity)
        chosen = max if "max" in op.name else min
        return Axes(ones, ones, ones, chosen(x.constant, y.constant))
    return replace(join(x, y), constant=None)


@_rule("tt.load")
def _load(op: Op, values: Sequence[Axes]) -> Axes:
    ones = (1,) * len(values[0].contiguity)
    constancy = values[0].constancy
    if len(values) > 1:
        constancy = tuple(map(_gcd, constancy, values[1].constancy))
    return Axes(ones, ones, constancy)


def join(x: Axes, y: Axes) -> Axes:
    """Return the figures that hold of both values."""
    axes = range(len(x.contiguity))
    return Axes(
        tuple(map(_gcd, x.contiguity, y.contiguity)),
        tuple(_join_divisibility(x, y, d) for d in axes),
        tuple(map(_gcd, x.constancy, y.constancy)),
        x.constant if x.constant == y.constant else None,
        x.hints | y.hints,
        x.arguments | y.arguments,
    )


# -- analysis ------------------------------------------------------------------------------------
#: Operations that canonicalisation replaces by an operand, or by a constant, if an operand is 0 or
#: 1; the hint on them is lost.
_FOLDED = (
    *("arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.divui", "arith.remsi"),
    *("arith.remui", "arith.andi", "arith.ori", "arith.xori", "arith.shli", "arith.shrsi"),
    "arith.shrui",
)
_LOST = ("arith.constant", "arith.bitcast", "tt.splat", "tt.broadcast", "tt.expand_dims")


@dataclass(slots=True)
class _Analysis:
    """One run through a kernel: `vectors` are those of its accesses, by their TTIR."""

    functions: Mapping[str, Function]
    warps: int
    hinted: bool
    vectors: dict[Site, Vectors] = field(default_factory=dict)
    calls: Site = ()

    def call(self, function: Function, arguments: Sequence[Axes]) -> list[Axes]:
        """Return the figures of a function's results."""
        values: dict[str, Axes] = {}
        kinds: dict[str, Type] = dict(function.args)
        values.update(zip((name for name, _ in function.args), arguments, strict=True))
        returned: list[Axes] = []
        entries: dict[str, list[Axes]] = {}
        for number, block in enumerate(function.body):
            if number and block.args:  # blocks follow in the order of their branches
                passed = entries.get(block.label) or [_unknown(kind) for _, kind in block.args]
                values.update(zip((name for name, _ in block.args), passed, strict=True))
            kinds.update(block.args)
            last = self.block(block, values, kinds)
            if last.name == "tt.return":
                results = [values[x] for x in last.operands]
                returned = list(map(join, returned, results)) if returned else results
            for label, names in last.targets:
                passed = [values[x] for x in names]
                before = entries.get(label)
                entries[label] = list(map(join, before, passed)) if before else passed
        return returned

    def block(self, block: Block, values: dict[str, Axes], kinds: dict[str, Type]) -> Op:
        """Analyse a block's operations; return the last one, its terminator."""
        for op in block.ops[:-1]:
            self.op(op, values, kinds)
        return block.ops[-1]

    def op(self, op: Op, values: dict[str, Axes], kinds: dict[str, Type]) -> None:
        """Analyse one operation."""
        kinds.update(zip(op.results, op.types, strict=False))
        operands = [values[x] for x in op.operands]
        if op.name == "scf.for":
            results = self.loop(op, values, kinds)
        elif op.name == "scf.while":
            results = self.while_loop(op, values, kinds)
        elif op.name == "scf.if":
            results = self.branch(op, values, kinds)
        elif op.name == "tt.call" and len(self.calls) < MOST_CALLS:
            function, outer = self.functions.get(op.keywords[0]), self.calls
            self.calls = (*outer, op.text)
            results = [] if function is None else self.call(function, operands)
            self.calls = outer
        else:
            if op.name in ("tt.load", "tt.store"):
                self.access(op, operands, kinds)
            result = self.compute(op, operands, kinds)
            results = [] if result is None else [result]
        if len(results) != len(op.results):
            results = [_unknown(kind) for kind in op.types]
        values.update(zip(op.results, results, strict=True))

    def compute(self, op: Op, operands: list[Axes], kinds: dict[str, Type]) -> Axes | None:
        """Return the figures of an operation with one result, with its hints."""
        if len(op.results) != 1:
            return None
        rule = _RULES.get(op.name)
        if rule is not None and not op.operand_types:
            op.operand_types = [kinds[x] for x in op.operands]
        result = rule(op, operands) if rule is not None else None
        hints = frozenset(x for value in operands for x in value.hints)
        arguments = frozenset(x for value in operands for x in value.arguments)
        result = replace(result or _unknown(op.types[0]), hints=hints, arguments=arguments)
        if not self.hinted or op.name in _LOST or result.constant is not None:
            return result
        if op.name in _FOLDED and any(x.constant in (0, 1) for x in operands):
            return result
        if op.name == "arith.select" and operands[0].constant is not None:
            return result
        for name, word in HINTS.items():
            if name not in op.attrs:
                continue
            numbers = op.integers(name) or [op.integer(name, 1)]
            rank = len(result.contiguity)
            numbers = (numbers * rank)[:rank]
            text = f"tl.{word}({', '.join(map(str, numbers))})"
            figures = tuple(numbers)
            result = replace(
                result,
                contiguity=figures if name == "tt.contiguity" else result.contiguity,
                divisibility=figures if name == "tt.divisibility" else result.divisibility,
                constancy=figures if name == "tt.constancy" else result.constancy,
                hints=result.hints | {Hint(text, op.loc)},
            )
        return result

    # -- regions ---------------------------------------------------------------------------------
    def loop(self, op: Op, values: dict[str, Axes], kinds: dict[str, Type]) -> list[Axes]:
        """Analyse the body of a scf.for until what it carries no longer changes."""
        (block,) = op.regions[0]
        low, _, step, *carried = (values[x] for x in op.operands)
        index = replace(
            _scalar(_gcd(low.divisibility[0], step.divisibility[0])),
            hints=low.hints | step.hints,
            arguments=low.arguments | step.arguments,
        )
        kinds.update(block.args)
        while True:
            values.update(zip((name for name, _ in block.args), (index, *carried), strict=True))
            last = self.block(block, values, kinds)
            yielded = [values[x] for x in last.operands]
            joined = list(map(join, carried, yielded))
            if joined == carried:
                return carried
            carried = joined

    def while_loop(self, op: Op, values: dict[str, Axes], kinds: dict[str, Type]) -> list[Axes]:
        """Analyse both regions of a scf.while until what they carry no longer changes."""
        (before,), (after,) = op.regions
        carried = [values[x] for x in op.operands]
        kinds.update((*before.args, *after.args))
        while True:
            values.update(zip((name for name, _ in before.args), carried, strict=True))
            _, *handed = (values[x] for x in self.block(before, values, kinds).operands)
            values.update(zip((name for name, _ in after.args), handed, strict=True))
            yielded = [values[x] for x in self.block(after, values, kinds).operands]
            joined = list(map(join, carried, yielded))
            if joined == carried:
                return handed
            carried = joined

    def branch(self, op: Op, values: dict[str, Axes], kinds: dict[str, Type]) -> list[Axes]:
        """Analyse both sides of a scf.if."""
        results: list[Axes] = []
        for region in op.regions:
            if region and region[0].ops:
                last = self.block(region[0], values, kinds)
                yielded = [values[x] for x in last.operands]
                results = list(map(join, results, yielded)) if results else yielded
        return results

    # -- accesses --------------------------------------------------------------------------------
    def access(self, op: Op, operands: list[Axes], kinds: dict[str, Type]) -> None:
        """Record the vectors of a load or store through a block of pointers."""
        kind = kinds[op.operands[0]]
        if kind.kind != "value" or not kind.shape or kind.dtype.pointee is None:
            return
        number = 1 if op.name == "tt.load" else 2
        mask = operands[number] if len(operands) > number else None
        pointer, size = operands[0], kind.dtype.pointee.itemsize
        # the axis with the longest runs, of several the last one
        axis = max(range(len(kind.shape)), key=lambda d: (pointer.contiguity[d], d))
        width = min(
            max(pointer.divisibility[axis] // size, 1),
            pointer.contiguity[axis],
            VECTOR_BITS // (8 * size),
            max(prod(kind.shape) // (self.warps * WARP), 1),
            kind.shape[axis],
        )
        hints, unmasked = pointer.hints, width
        if mask is not None:
            width = min(width, mask.constancy[axis])
            hints |= mask.hints
        arguments = pointer.arguments | (frozenset() if mask is None else mask.arguments)
        shown = tuple(sorted(hints, key=str))
        vectors = Vectors(
            axis, _floor(width), _floor(unmasked), shown, arguments,
            op.name.removeprefix("tt."), op.loc,
        )  # fmt: skip
        site = (*self.calls, op.text)
        before = self.vectors.get(site)
        # the last visit of a loop's body counts: figures only fall from visit to visit
        if before is None or vectors.unmasked <= before.unmasked:
            self.vectors[site] = vectors


def _floor(width: int) -> int:
    """Return the largest power of two up to a width."""
    return 1 << (max(width, 1).bit_length() - 1)

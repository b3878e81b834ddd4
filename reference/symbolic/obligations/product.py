"""The obligation that the sum over k is the product."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmproof.reference.symbolic.interpreter.integer_rules import is_number, is_zero
from gemmproof.reference.symbolic.interpreter.symbolic_values import Data, SymbolicAccess
from gemmproof.reference.symbolic.obligations.contents import (
    Contents,
    NoProduct,
    Question,
    Tie,
    WhatIsRead,
    find_indices,
)
from gemmproof.reference.symbolic.obligations.coverage import judge_separate, reach
from gemmproof.reference.symbolic.obligations.indices import (
    OPEN,
    PROVED,
    NotAffine,
    Verdict,
    ask,
    copy_free,
    is_free,
    list_free,
    new_element,
)
from gemmproof.reference.symbolic.obligations.inversion import Inversion, NotInvertible
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    FALSE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    some,
    substitute,
    term,
    walk,
)
from gemmproof.reference.ttir import DTYPES

# -- contraction ---------------------------------------------------------------------------------
# types in which sums of integers that are exact in the declared accumulator stay exact
WIDE = ("f32", "f64", "i32", "i64")
INTEGERS = ("i32", "i64", "f64")
F32_INTEGERS = 2**24  # the integers up to here are floats of 32 bits
# kinds of data whose `word` is the type that they are kept in
_KEPT = ("cast", "add", "arith.addi", "reduce", "mul", "arith.muli")
MOST = 16  # products in one sum


@dataclass(frozen=True, slots=True)
class Element:
    """An operand's element that a load reads under a condition, through any copies in between."""

    load: SymbolicAccess
    name: str
    dtype: str
    at: tuple[Poly, ...]
    cond: Cond


@dataclass(frozen=True, slots=True)
class Over:
    """The atoms that a sum runs over, and the equations of programs and lanes that stored parts."""

    atoms: tuple[Atom, ...] = ()
    ties: tuple[Tie, ...] = ()

    def add(self, *atoms: Atom | None) -> Over:
        """Return the same with more lanes or trips."""
        return Over((*self.atoms, *(x for x in atoms if x is not None)), self.ties)

    def follow(self, source: WhatIsRead) -> Over:
        """Return the same with the programs and lanes that stored what is read."""
        return Over((*self.atoms, *source.tied), (*self.ties, *source.ties))


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two elements, under a condition.

    `precision` is how a dot takes its operands.
    """

    a: Element
    b: Element
    over: Over
    cond: Cond
    precision: str


def find_contractions(
    value: Data, contents: Contents, product: WantedProduct, is_last: bool = True
) -> list[Contraction]:
    """Return the sums of products that a number is the sum of. Raises NoProduct.

    With `is_last` the last cast is the result's own; sums before it must be wide.
    """
    if is_last and value.kind == "cast":
        value = value.parts[0]
    contractions = []
    wide: tuple[str, ...] = WIDE
    if product.largest:
        most = F32_INTEGERS // product.largest**2  # products of which every sum is exact
        holds = most > 0 and contents.solver.follows(le(product.depth, most)) == YES
        wide = WIDE if holds else INTEGERS
    for contraction in _Sums(contents, wide).contract(value, Over(), every(())):
        rounds = contraction.precision != "ieee" and "f32" in (
            contraction.a.dtype,
            contraction.b.dtype,
        )
        if rounds and not product.truncates:
            raise NoProduct(f"a product of operands rounded to {contraction.precision}")
        contractions.append(contraction)
        if len(contractions) > MOST:
            raise NoProduct(f"more than {MOST} sums of products")
    return contractions


@dataclass(slots=True)
class _Sums:
    contents: Contents
    wide: tuple[str, ...]

    def contract(self, value: Data, over: Over, cond: Cond) -> Iterator[Contraction]:
        """Yield the products that a number is the sum of, over lanes and trips, under `cond`."""
        if is_zero(value):
            return
        if value.kind in _KEPT and value.word and value.word not in self.wide:
            what = "products" if value.kind in ("mul", "arith.muli") else "sums"
            raise NoProduct(f"{what} kept in {value.word}")
        if value.kind in ("cast", "add", "arith.addi"):
            for part in value.parts:
                yield from self.contract(part, over, cond)
        elif value.kind in ("sum", "reduce"):
            yield from self.contract(value.parts[0], over.add(value.over), cond)
        elif value.kind == "choice":
            for part, case in zip(value.parts, (value.cond, ~value.cond), strict=True):
                yield from self.contract(part, over, cond & case)
        elif value.kind == "load":
            for source in self.contents.read(value.access, cond):
                if source.value is None:
                    self.require_none(value.access, source, cond)
                else:
                    whole = cond & source.cond
                    yield from self.contract(source.value, over.follow(source), whole)
        elif value.kind in ("dot", "mul", "arith.muli"):
            yield from self.multiply(value, over, cond)
        else:
            raise NoProduct(value.kind)

    def require_none(self, load: SymbolicAccess, source: WhatIsRead, cond: Cond) -> None:
        """Require that nothing is added where the condition of an operand's element holds."""
        assert source.memory is not None
        what = f"nothing of {source.memory.name} is added"
        self.contents.asked.append(Question(what, load, ~source.cond, (cond,)))

    def multiply(self, value: Data, over: Over, cond: Cond) -> Iterator[Contraction]:
        """Yield a product, of two elements or of a sum and 1."""
        x, y = value.parts
        if value.kind != "dot" and (is_number(x, 1) or is_number(y, 1)):
            yield from self.contract(y if is_number(x, 1) else x, over, cond)
            return
        precision = value.word if value.kind == "dot" else "ieee"
        over = over.add(value.over)
        right = list(self.list_factors(y, over, cond))
        for a, over_a in self.list_factors(x, over, cond):
            for b, over_b in right:
                atoms = tuple(dict.fromkeys((*over_a.atoms, *over_b.atoms)))
                ties = tuple(dict.fromkeys((*over_a.ties, *over_b.ties)))
                yield Contraction(a, b, Over(atoms, ties), a.cond & b.cond, precision)

    def list_factors(self, value: Data, over: Over, cond: Cond) -> Iterator[tuple[Element, Over]]:
        """Yield the elements that one side of a product is, each under its condition, except 0."""
        if is_zero(value):
            return
        if value.kind == "cast" and _keeps(value):
            yield from self.list_factors(value.parts[0], over, cond)
        elif value.kind == "choice":
            for part, case in zip(value.parts, (value.cond, ~value.cond), strict=True):
                yield from self.list_factors(part, over, cond & case)
        elif value.kind == "load":
            for source in self.contents.read(value.access, cond):
                whole, memory = cond & source.cond, source.memory
                if source.value is not None:
                    yield from self.list_factors(source.value, over.follow(source), whole)
                elif memory is not None:
                    name, dtype = memory.name, memory.dtype
                    yield Element(value.access, name, dtype, source.at, whole), over
        else:
            raise NoProduct(f"a product of {value.kind}")


def _keeps(value: Data) -> bool:
    """Return whether a cast preserves every value that was loaded."""
    source = value.parts[0]
    while source.kind in ("cast", "choice"):
        source = source.parts[0]
    if source.kind != "load":
        return False
    before, after = DTYPES[source.access.tensor.dtype], DTYPES[value.word]
    if before == after:
        return True
    return after.bits > before.bits and after.is_float >= before.is_float


# -- product -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class WantedProduct:
    """The product to prove: its operands' names and shapes, and what may be rounded.

    With `truncates` a dot may take its operands as tf32. `largest` is the largest magnitude of
    operands that are integers; 0: they are floats, and their values small integers.
    """

    shapes: Mapping[str, tuple[Poly, ...]]
    truncates: bool
    largest: int
    small: tuple[Atom, ...]

    @property
    def text(self) -> str:
        return f"c = {' '.join(self.shapes)}"

    @property
    def shape(self) -> tuple[Poly, ...]:
        """The batch, rows and columns of the product."""
        a, b = self.shapes.values()
        return (*a[:-1], b[-1])

    @property
    def depth(self) -> Poly:
        """K, the length of its sums."""
        return next(iter(self.shapes.values()))[-1]


@dataclass(frozen=True, slots=True)
class Leaving:
    """The relation of a result to its store: the view of the store's memory that it is made of.

    `adds`: the values of all programs are added up, by atomics or because torch sums an axis of the
    view (`summed`, a number). `is_last`: the stored numbers are of the result's own format.
    """

    view: Any = None
    adds: bool = False
    summed: int | None = None
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class _Share:
    """One contraction at the stored index: its k, when it adds, and what it runs over."""

    a: SymbolicAccess
    k: Poly
    cond: Cond
    over: Over


@dataclass(slots=True)
class _Stored:
    """A store of the result, with the index that it stores to."""

    solver: Solver
    product: WantedProduct
    access: SymbolicAccess
    adds: bool
    at: tuple[Poly, ...]
    shape: tuple[Poly, ...]
    here: Cond

    def ask(self, what: str, share: SymbolicAccess, goal: Cond, *given: Cond) -> Verdict:
        text, small = f"{self.product.text}: {what}", self.product.small
        return ask(self.solver, text, share.where, goal, (self.here, *given), small)

    def drop(self, axis: int | None) -> None:
        """Drop an axis along which all elements are added up."""
        if axis is not None:
            self.at, self.shape = (x[:axis] + x[axis + 1 :] for x in (self.at, self.shape))


def judge_product(
    contents: Contents, store: SymbolicAccess, product: WantedProduct, leaving: Leaving
) -> Iterator[Verdict]:
    """c = a b for every element that is stored, or added onto 0."""
    try:
        stored = _find_stored(contents.solver, store, product, leaving)
        for x, n in zip(stored.at, stored.shape, strict=True):
            for goal in (le(0, x), lt(x, n)):
                yield stored.ask("an element", store, goal)
        stored.drop(leaving.summed)
        if stored.shape != product.shape:
            raise NoProduct(f"{store.tensor.name} has other rows and columns than the product")
        assert store.value is not None
        contents.asked.clear()
        contractions = find_contractions(store.value, contents, product, leaving.is_last)
        for question in contents.asked:
            yield stored.ask(question.what, question.load, question.goal, *question.given)
        shares = []
        for contraction in contractions:
            share = yield from _judge_share(stored, contraction)
            shares.append(share)
        if not shares:
            yield stored.ask("nothing but 0", store, eq(product.depth, 0))
            return
        for i, first in enumerate(shares):
            for second in shares[i:]:
                yield _judge_once(stored, first, second)
        yield _judge_all(stored, shares)
    except (NoProduct, NotAffine, NotInvertible) as error:
        reason = str(error) or "an index that is no sum of digits"
        yield Verdict(OPEN, product.text, store.where, reason)


def judge_zeros(solver: Solver, product: WantedProduct) -> Verdict:
    """c = a b where the result is 0: the product has no elements, or K is 0."""
    empty = some(eq(n, 0) for n in (*product.shape, product.depth))
    return ask(solver, f"{product.text}: nothing but 0", None, empty, (), product.small)


def _find_stored(
    solver: Solver, store: SymbolicAccess, product: WantedProduct, leaving: Leaving
) -> _Stored:
    entries = find_indices(solver, store, leaving.view)
    if len(entries) != 1:
        raise NoProduct("an access of several cases")
    (case, at), shape = entries[0], store.tensor.owner_shape
    shape = shape if leaving.view is None else leaving.view.shape
    here = every((store.path, store.mask, case))
    return _Stored(solver, product, store, leaving.adds, at, shape, here)


def _judge_share(stored: _Stored, contraction: Contraction) -> Generator[Verdict, None, _Share]:
    """Judge whether a contraction is of the stored row and column and one k; return its share."""
    a, b = contraction.a, contraction.b
    roles = tuple(stored.product.shapes)
    if (a.name, b.name) == (roles[1], roles[0]):
        a, b = b, a
    if (a.name, b.name) != roles:
        raise NoProduct(f"a product of {a.name} and {b.name}")
    both = every((a.cond, b.cond, contraction.cond))
    *batch, row, column = stored.at
    *batch_a, row_a, k_a = a.at
    *batch_b, k_b, column_b = b.at
    pairs = [(row_a, row), (column_b, column), (k_a, k_b)]
    pairs += [pair for other in (batch_a, batch_b) for pair in zip(other, batch, strict=True)]
    for x, y in pairs:
        yield stored.ask("same index", a.load, eq(x, y), both)
    for goal in (le(0, k_a), lt(k_a, stored.product.depth)):
        yield stored.ask("k within K", a.load, goal, both)
    return _Share(
        a.load, _settle(stored, k_a, contraction.over.atoms, both), both, contraction.over
    )


def _settle(stored: _Stored, number: Poly, over: Sequence[Atom], *given: Cond) -> Poly:
    """Return a term without the minima, maxima and choices that conditions decide.

    Programs, trips and lanes with equal coefficients are dropped if they are 0: a loop of one trip.
    """
    for atom in sorted(walk(number), key=lambda x: x.number, reverse=True):
        if atom.kind not in ("min", "max", "choice"):
            continue
        x, y = atom.args[-2:]
        first = atom.args[0] if atom.kind == "choice" else le(x, y)
        first = ~first if atom.kind == "max" else first
        for cond, part in ((first, x), (~first, y)):
            if stored.solver.follows(cond, stored.here, *given) == YES:
                number = substitute(number, {atom: part})
                break
    steps = [number.terms.get((x,)) for x in number.atoms]
    for atom in sorted(number.atoms, key=lambda x: x.number):
        is_alike = steps.count(number.terms.get((atom,))) > 1 and (atom in over or is_free(atom))
        if is_alike and stored.solver.follows(eq(term(atom), 0), stored.here, *given) == YES:
            number = substitute(number, {atom: term(0)})
    return number


def _list_adding(stored: _Stored, shares: Sequence[_Share]) -> list[Atom]:
    """Return the lanes and trips in which two additions may differ; with atomics, all atoms."""
    over = [x for share in shares for x in share.over.atoms]
    if not stored.adds:
        return list(dict.fromkeys(over))
    solver, store = stored.solver, stored.access
    programs = [x for x in solver.known if str(x.args[0]).startswith("pid_")]
    own = [x for x in programs if x.args[1] == store.launch]
    named = [p for share in shares for p in (share.k, share.cond)]
    free = list_free(solver, stored.here, *stored.at, *named, *map(term, (*over, *own)))
    return list(dict.fromkeys((*free, *over, *own, *store.trips)))


def _judge_once(stored: _Stored, first: _Share, second: _Share) -> Verdict:
    """No two lanes, trips or programs add the same k to one element."""
    solver, text = stored.solver, f"{stored.product.text}: each k once"
    swaps = copy_free(solver, _list_adding(stored, (first, second)))
    equations = [(first.k, substitute(second.k, swaps))]
    equations += [(x, substitute(x, swaps)) for x in stored.at]
    other_cond = substitute(every((stored.here, second.cond)), swaps)
    differ = some(~eq(term(x), y) for x, y in swaps.items()) if first is second else every(())
    if differ == FALSE:  # a single addition, of a single k
        return Verdict(PROVED, text, first.a.where)
    conds = (stored.here, first.cond, other_cond)
    return judge_separate(solver, text, first.a, conds, equations, differ, swaps, ())


def _judge_all(stored: _Stored, shares: Sequence[_Share]) -> Verdict:
    """Every k in [0, K) is added."""
    solver, product = stored.solver, stored.product
    (target,), within = new_element(solver, (product.depth,), [(share.k,) for share in shares])
    given = [within]
    goals: list[Cond] = []
    elements: list[Poly] = []
    if stored.adds:  # any program may reach the element: one is searched for each k
        elements, within = new_element(solver, stored.shape, [stored.at])
        given.append(within)
    else:
        given.append(stored.here)
    for share in shares:
        equations = [(share.k, target), *zip(stored.at, elements, strict=False)]
        inner = (stored.here, share.cond) if stored.adds else (share.cond,)
        inverse = Inversion(_list_adding(stored, (share,)))
        try:
            inverse.solve([*equations, *share.over.ties])
        except NotInvertible:
            continue
        goals.append(reach(solver, inverse, equations, inner))
    text = f"{product.text}: every k"
    if goals and solver.follows(some(goals), *given) == YES:
        return Verdict(PROVED, text, shares[0].a.where)
    return Verdict(OPEN, text, shares[0].a.where, "z3 came to no end")

"""What defines each kind of atom: conditions on it and its parts, linear where they can be."""

from __future__ import annotations

from collections.abc import Iterator

from gemmproof.reference.symbolic.terms import (
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

LANE = "lane"


def lane(axis: int, size: int) -> Poly:
    """The lane of a block along an axis of so many lanes."""
    return (
        term(Atom("symbol", LANE, axis, size, is_natural=True, most=size - 1))
        if size > 1
        else term(0)
    )


def define(atom: Atom) -> tuple[Cond, ...]:
    """The conditions that hold of an atom because of what it is; it keeps them."""
    if atom.definition is None:
        atom.definition = tuple(_define(atom))
    return atom.definition


def _define(atom: Atom) -> Iterator[Cond]:
    x = term(atom)
    if atom.is_natural:
        yield le(atom.least, x)
    if atom.kind == "symbol" and atom.args[0] == LANE:
        yield lt(x, atom.args[2])
    elif atom.kind in ("floordiv", "mod"):
        yield from _define_floor(*atom.args)
    elif atom.kind in ("div", "rem"):
        yield from _define_truncated(*atom.args)
    elif atom.kind in ("min", "max"):
        first, second = atom.args
        both = (
            (le(x, first), le(x, second)) if atom.kind == "min" else (le(first, x), le(second, x))
        )
        yield from both
        yield eq(x, first) | eq(x, second)
    elif atom.kind == "choice":
        cond, then, other = atom.args
        yield ~cond | eq(x, then)
        yield cond | eq(x, other)
    elif atom.kind == "flag":
        (cond,) = atom.args
        yield le(x, 1)
        yield ~cond | eq(x, 1)
        yield cond | le(x, 0)  # eq would say the condition again
    elif atom.kind == "and":
        for part in atom.args:
            if part.is_natural:
                yield every((le(0, x), le(x, part)))


def pin(atom: Atom) -> Iterator[Cond]:
    """Conditions that hold of one value only, where they hold of any: the atom's own.

    Of a quotient and a remainder by a positive divisor they are few; what else is known of these
    follows.
    """
    if atom.kind not in ("floordiv", "mod", "div", "rem"):
        yield from define(atom)
        return
    x, d = atom.args
    kinds = ("floordiv", "mod") if atom.kind in ("floordiv", "mod") else ("div", "rem")
    q, r = (term(Atom(kind, x, d)) for kind in kinds)
    yield le(1, d)
    yield eq(x, q * d + r)
    yield every((le(0, r), lt(r, d)))
    if kinds[0] == "div":  # rounded towards zero: below 0 it is another quotient
        yield le(0, x)


def _define_floor(x: Poly, d: Poly) -> Iterator[Cond]:
    quotient, remainder = Atom("floordiv", x, d), Atom("mod", x, d)
    q, r = term(quotient), term(remainder)
    yield eq(x, q * d + r)
    divides = le(1, d)
    if d.constant is None:
        yield ~divides | every((le(0, r), lt(r, d)))
        yield some((~divides, ~le(0, x), every((le(0, q), le(q, x)))))
        yield some((~divides, ~le(0, x), ~lt(x, d), every((eq(q, 0), eq(r, x)))))
        yield some((~divides, lt(x, d), le(1, q)))
    else:
        yield from (le(0, r), lt(r, d)) if d.constant > 0 else ()


def _define_truncated(x: Poly, d: Poly) -> Iterator[Cond]:
    quotient, remainder = Atom("div", x, d), Atom("rem", x, d)
    q, r = term(quotient), term(remainder)
    yield eq(x, q * d + r)
    divides, positive = le(1, d), le(0, x)
    yield some((~divides, ~positive, every((le(0, r), lt(r, d), le(0, q), le(q, x)))))
    yield some((~divides, positive, every((le(r, 0), lt(-r, d), le(q, 0), le(x, q)))))
    yield some((~divides, ~positive, ~lt(x, d), every((eq(q, 0), eq(r, x)))))

"""Addresses and masks as formulas in the source's names, and a missing condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmproof.reference.symbolic.interpreter.symbolic_values import Ints
from gemmproof.reference.symbolic.lemmas import lane
from gemmproof.reference.symbolic.terms import (
    Atom,
    Cond,
    Poly,
    flag,
    le,
    lt,
    substitute,
    term,
    walk,
)

# -- formula -------------------------------------------------------------------------------------
LANES = "ijlmn"
_SIGNS = {"floordiv": "//", "div": "//", "mod": "%", "rem": "%", "and": "&", "or": "|", "xor": "^",
          "shr": ">>"}  # fmt: skip


class Namer:
    """Formats terms as text: `names` are those of polynomials, the first that fits is used.

    `numbers` are the names of coefficients.
    """

    def __init__(
        self, names: Sequence[tuple[Poly, str]], numbers: Mapping[int, str] | None = None
    ) -> None:
        self.names = [(whole, _word(name)) for whole, name in names if whole.constant is None]
        self.numbers = dict(numbers or {})

    def say(self, what: Poly) -> str:
        """Return a term as text."""
        rewritten = self.rewrite(what)
        text = self._sum(rewritten)
        bare = rewritten.atom is not None and text.startswith("(")
        return text[1:-1] if bare else text

    def rewrite(self, what: Poly) -> Poly:
        """Return the term with names in place of the terms that they stand for."""
        for whole, name in self.names:
            factor = _divide(what, whole)
            if factor:
                what = what - whole * factor + term(name) * factor
        total = term(0)
        for monomial, c in what.terms.items():
            product = term(c)
            for atom in monomial:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _atom(self, atom: Atom) -> Poly:
        if atom.is_leaf:
            return term(atom)
        args = [self.rewrite(x) if isinstance(x, Poly) else self._cond(x) for x in atom.args]
        return (
            flag(args[0])
            if isinstance(args[0], Cond) and len(args) == 1
            else term(Atom(atom.kind, *args))
        )

    def _cond(self, cond: Cond) -> Cond:
        if cond.term is not None:
            return Cond(cond.kind, self.rewrite(cond.term))
        return Cond(cond.kind, None, tuple(map(self._cond, cond.parts)))

    # -- text ------------------------------------------------------------------------------------
    def judge(self, cond: Cond) -> str:
        """Return a condition as text."""
        return self._format_cond(self._cond(cond))

    def _format_cond(self, cond: Cond, inner: bool = False) -> str:
        if cond.term is not None:
            return self._compare(cond.kind, cond.term)
        if not cond.parts:
            return "always" if cond.kind == "all" else "never"
        word = " and " if cond.kind == "all" else " or "
        text = word.join(dict.fromkeys(self._format_cond(part, True) for part in cond.parts))
        return f"({text})" if inner else text

    def _compare(self, kind: str, what: Poly) -> str:
        left = Poly({m: c for m, c in what.terms.items() if c > 0 and m})
        right = Poly({m: -c for m, c in what.terms.items() if c < 0 and m})
        constant = what.terms.get((), 0)
        if kind == "le":
            if constant == 1:
                return f"{self._sum(left)} < {self._sum(right)}"
            sides = (left + constant, right) if constant > 0 else (left, right - constant)
            return f"{self._sum(sides[0])} <= {self._sum(sides[1])}"
        sign = "==" if kind == "eq" else "!="
        left, right = (left, right - constant) if left.terms else (right, left + constant)
        return f"{self._sum(left)} {sign} {self._sum(right)}"

    def _sum(self, what: Poly) -> str:
        parts = []
        for monomial, c in sorted(what.terms.items(), key=lambda x: _order(x[0])):
            text = self._product(monomial, abs(c))
            parts.append(f"- {text}" if c < 0 else f"+ {text}")
        if not parts:
            return "0"
        parts.sort(key=lambda x: x.startswith("-"))
        text = " ".join(parts)
        return text.removeprefix("+ ") if text.startswith("+ ") else f"-{text[2:]}"

    def _product(self, monomial: tuple[Atom, ...], c: int) -> str:
        factors = [self._name(atom) for atom in monomial]
        if c != 1 or not factors:
            factors.append(self.numbers.get(c, str(c)) if factors else str(c))
        return " * ".join(factors)

    def _name(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return _leaf(atom)
        if atom.kind == "unknown":
            return f"<{str(atom.args[0]).partition(' at ')[0]}>"
        if atom.kind == "flag":
            return f"({self._format_cond(atom.args[0])})"
        if atom.kind == "choice":
            cond, x, y = atom.args
            return f"({self._sum(x)} if {self._format_cond(cond)} else {self._sum(y)})"
        x, y = atom.args
        if atom.kind in ("min", "max"):
            return f"{atom.kind}({self._sum(x)}, {self._sum(y)})"
        if atom.kind in ("floordiv", "div"):
            above = x - y + 1
            if (
                y.constant != 1
                and above.terms
                and () not in above.terms
                and len(above.terms) < max(len(x.terms), 2)
            ):
                return f"cdiv({self._sum(above)}, {self._sum(y)})"
        return f"({self._wrap(x)} {_SIGNS[atom.kind]} {self._wrap(y)})"

    def _wrap(self, what: Poly) -> str:
        text = self._sum(what)
        simple = len(what.terms) == 1 and " " not in text
        return text if simple or (text.startswith("(") and what.atom is not None) else f"({text})"


def _word(name: str) -> Atom:
    return Atom("symbol", name, "a word", is_natural=True)


def _leaf(atom: Atom) -> str:
    word = str(atom.args[0])
    if atom.args[1:2] == ("a word",):
        return word
    if word == "lane":
        axis = atom.args[1]
        return LANES[axis] if isinstance(axis, int) else str(axis)
    if word.startswith("pid_"):
        return f"program_id({'xyz'.index(word[-1])})"
    return "t" if word == "trip" else word


def _order(monomial: tuple[Atom, ...]) -> tuple[int, int]:
    """Return a sort key: programs and names before lanes, lanes before numbers."""
    if not monomial:
        return (3, 0)
    is_lane = any(x.kind == "symbol" and x.args[0] == "lane" for x in monomial)
    return (1 if is_lane else 0, min(x.number for x in monomial))


def _divide(what: Poly, whole: Poly) -> int:
    """Return how often a term is part of another, 0 if it is not: each part by the same number."""
    factor = 0
    for monomial, c in whole.terms.items():
        if not monomial:
            continue
        times, rest = divmod(what.terms.get(monomial, 0), c)
        if rest or not times or (factor and times != factor):
            return 0
        factor = times
    if whole.terms.get((), 0) and what.terms.get((), 0) != factor * whole.terms[()]:
        return 0
    return factor


def rank(whole: Poly) -> int:
    """Return a key that is larger for terms that contain more: they are named first."""
    return sum(1 for _ in walk(whole)) + len(whole.terms)


# -- repair --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Expression:
    """Python in the names of the source, and the condition that it expresses."""

    text: str
    cond: Cond


def spell_below(
    index: Poly, size: Poly, names: Mapping[str, Ints], constants: Mapping[str, int],
    shape: tuple[int, ...],
) -> Expression | None:  # fmt: skip
    """Return `index < size`, or None if the names cannot express it.

    The expression is exact: what it adds to the index on one side, it adds to the size on the
    other.
    """
    candidates = []
    for text, value, cost in _list_blocks(index, names, shape):
        limit = spell(size - (index - value), names, constants)
        if limit is not None:
            cost += len(limit.split())
            candidates.append((cost, Expression(f"({text} < {limit})", lt(index, size))))
    return min(candidates, key=lambda x: (x[0], len(x[1].text)))[1] if candidates else None


def spell_natural(
    index: Poly, names: Mapping[str, Ints], constants: Mapping[str, int], shape: tuple[int, ...]
) -> Expression | None:
    """Return `0 <= index`, or None if the names cannot express it."""
    candidates = []
    for text, value, cost in _list_blocks(index, names, shape):
        limit = spell(value - index, names, constants)
        if limit is not None:
            cost += len(limit.split())
            candidates.append((cost, Expression(f"({text} >= {limit})", le(0, index))))
    return min(candidates, key=lambda x: (x[0], len(x[1].text)))[1] if candidates else None


def _list_blocks(
    index: Poly, names: Mapping[str, Ints], shape: tuple[int, ...]
) -> Iterator[tuple[str, Poly, int]]:
    """Yield blocks that differ from the index by a number for all lanes: text, value, cost."""
    lanes = _lanes(index)
    for name, value in names.items():
        if not value.shape:
            continue
        for axis in range(len(shape)) if len(value.shape) == 1 else (None,):
            block = _align_block(value, axis, shape)
            if block is None or not lanes or _lanes(block) != lanes:
                continue
            rest = index - block
            if not _lanes(rest):
                suffix = "" if axis is None else _suffix(axis, len(shape))
                yield f"{name}{suffix}", block, 0 if not rest.terms else 2
    if len(lanes) == 1:  # no name is bound to it: a new range
        (atom,) = lanes
        axis, size = atom.args[1], atom.args[2]
        if isinstance(axis, int) and not _lanes(index - term(atom)):
            yield f"tl.arange(0, {size}){_suffix(axis, len(shape))}", term(atom), 8
    if not lanes and not shape:
        for name, value in names.items():
            if not value.shape and value.term == index:
                yield name, value.term, 0


def _suffix(axis: int, rank_: int) -> str:
    if rank_ == 1:
        return ""
    return f"[{', '.join(':' if i == axis else 'None' for i in range(rank_))}]"


def _align_block(value: Ints, axis: int | None, shape: tuple[int, ...]) -> Poly | None:
    """Return a block's term on the axes of the access, or None if it does not fit them."""
    if axis is None:
        fits = len(value.shape) == len(shape) and all(
            n in (1, m) for n, m in zip(value.shape, shape, strict=True)
        )
        return value.term if fits else None
    if value.shape[0] != shape[axis]:
        return None
    own = lane(0, value.shape[0]).atom
    return substitute(value.term, {own: lane(axis, shape[axis])}) if own else None


def _lanes(what: Poly) -> set[Atom]:
    return {x for x in walk(what) if x.kind == "symbol" and x.args[0] == "lane"}


def spell(what: Poly, names: Mapping[str, Ints], constants: Mapping[str, int]) -> str | None:
    """Return a number for all lanes as an expression, or None if the names cannot express it."""
    if what.constant is not None:
        return str(what.constant)
    scalars = [(x.term, name) for name, x in names.items() if not x.shape]
    equal = [name for whole, name in scalars if whole == what]
    if equal:
        # the latest variable, else the first parameter: sizes come before strides that equal them
        return next((name for name in reversed(equal) if not names[name].is_given), equal[0])
    scalars.sort(key=lambda x: rank(x[0]), reverse=True)
    namer = Namer(scalars, unambiguous(constants))
    rewritten = namer.rewrite(what)
    if not all(map(_is_spelled, walk(rewritten))) or not all(map(_rounds_down, walk(what))):
        return None
    text = namer.say(what).replace("cdiv(", "tl.cdiv(")
    return f"({text})" if " % " in text or " // " in text else text


def _is_spelled(atom: Atom) -> bool:
    """Return whether an atom is a name, or a quotient or remainder of names."""
    if atom.is_leaf:
        return atom.kind == "symbol" and atom.args[1:2] == ("a word",)
    return atom.kind in ("floordiv", "mod")


def _rounds_down(atom: Atom) -> bool:
    """Return whether a division gives the same in a kernel, which rounds towards zero."""
    divides = atom.kind in ("floordiv", "mod")
    return not divides or all(x.is_natural for x in atom.args)


def unambiguous(constants: Mapping[str, int]) -> dict[int, str]:
    """Return the names of numbers that only one constant of the kernel has."""
    by_value: dict[int, list[str]] = {}
    for name, value in constants.items():
        if type(value) is int and value > 1:
            by_value.setdefault(value, []).append(name)
    return {value: names[0] for value, names in by_value.items() if len(names) == 1}

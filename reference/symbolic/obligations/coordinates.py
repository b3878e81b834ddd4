"""From the offset of an access to its index along each axis of the operand's own view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Monomial,
    Poly,
    substitute,
    term,
    walk,
)


class NoView(Exception):
    """An offset that is no sum of indices times the view's strides, as far as terms show."""


def locate(offset: Poly, shape: Sequence[Poly], strides: Sequence[Poly]) -> tuple[Poly, ...]:
    """The index along each axis whose strides give the offset. Raises NoView.

    Any answer will do for a proof: the offset is their sum, whichever way it is written.
    """
    found: list[Poly] = [term(0)] * len(shape)
    rest = offset
    axes = [i for i, n in enumerate(shape) if n.constant != 1]
    for axis in sorted(axes, key=lambda i: _rank(strides[i]), reverse=True):
        found[axis], rest = _divide(rest, strides[axis])
    if rest.terms:
        raise NoView(f"{rest} elements are along no axis")
    return tuple(found)


def _rank(stride: Poly) -> tuple[int, int]:
    """Larger for a stride that is to be divided by first."""
    leading = _leading(stride)
    return len(leading), abs(stride.terms.get(leading, 0))


def _leading(stride: Poly) -> Monomial:
    return max(stride.terms, key=lambda m: (len(m), [x.number for x in m]), default=())


def _divide(whole: Poly, stride: Poly) -> tuple[Poly, Poly]:
    """Quotient and rest of a division of polynomials by the leading monomial of the stride."""
    leading = _leading(stride)
    coefficient = stride.terms.get(leading, 0)
    quotient = term(0)
    if not coefficient:
        return quotient, whole
    taken = {}
    for monomial, c in whole.terms.items():
        left = _remove(monomial, leading)
        if left is not None and c % coefficient == 0:
            taken[left] = c // coefficient
    quotient = Poly(taken)
    return quotient, whole - quotient * stride


def _remove(monomial: Monomial, factor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def split_choices(offset: Poly, strides: Sequence[Poly]) -> Iterator[tuple[Cond, Poly]]:
    """An offset in the cases of its choices between terms that have strides in them."""
    steps = {x for stride in strides for x in stride.atoms}
    for atom in sorted(offset.atoms, key=lambda x: x.number):
        if atom.kind == "choice" and any(_has(x, steps) for x in atom.args[1:]):
            cond, *branches = atom.args
            for case, branch in zip((cond, ~cond), branches, strict=True):
                for further, chosen in split_choices(substitute(offset, {atom: branch}), strides):
                    yield case & further, chosen
            return
    yield TRUE, offset


def list_choices(
    conds: tuple[Cond, ...], at: tuple[Poly, ...], most: int = 4
) -> Iterator[tuple[Cond, tuple[Cond, ...], tuple[Poly, ...]]]:
    """Conditions and indices in each case of the choices in the indices, of so many at the most."""
    found = min((x for x in walk(*at) if x.kind == "choice"), key=lambda x: x.number, default=None)
    if found is None or not most:
        yield TRUE, conds, at
        return
    cond, *branches = found.args
    for case, branch in zip((cond, ~cond), branches, strict=True):
        swap = {found: branch}
        inner = tuple(substitute(x, swap) for x in conds), tuple(substitute(x, swap) for x in at)
        for further, chosen, places in list_choices(*inner, most - 1):
            yield case & further, chosen, places


def _has(part: Poly, steps: set[Atom]) -> bool:
    return any(x in steps or (x.kind == "choice" and any(_has(y, steps) for y in x.args[1:]))
               for x in part.atoms)  # fmt: skip

"""Torch's symbolic shapes, and the decisions that a wrapper takes on them."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import gcd, inf
from types import ModuleType
from typing import Any

import torch
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from gemmproof.reference.provenance import calling_expression
from gemmproof.reference.simulation import NOWHERE, Where
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    evaluate,
    every,
    flag,
    le,
    some,
    substitute,
    term,
    walk,
)
from gemmproof.reference.symbolic.tracing.trace import (
    Guard,
    NotKnown,
    Untranslatable,
    is_condition,
    to_cond,
    to_term,
)
from gemmproof.reference.work import METER, counted_seconds

# -- torch's tracing -----------------------------------------------------------------------------
_COMPILER, _VALIDATOR = "torch._dynamo", "torch.fx.experimental.validator"
_SETTINGS = {
    "fake_tensor_cache_enabled": False,
    "fake_tensor_cache_crosscheck_enabled": False,
    "_custom_ops_profile": None,
}


@contextmanager
def without_compiler() -> Iterator[None]:
    """Allow symbolic shapes and tensors without elements to be used without torch's compiler."""
    if _COMPILER in sys.modules:
        yield
        return
    settings = _make_module(f"{_COMPILER}.config", _SETTINGS)
    disabled: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        """Return the function itself: there is no compiler that has to leave it alone."""
        disabled.append(function)
        return function

    named = {"config": settings, "disable": disable, "__getattr__": _import}
    stand_in = _make_module(_COMPILER, named)
    torch._dynamo = stand_in
    try:
        yield
    finally:
        for function in disabled:  # torch caches the answer, and may load its compiler later
            vars(function).pop("__dynamo_disable", None)
        if vars(torch).get("_dynamo") is stand_in:
            del torch._dynamo


@contextmanager
def without_imports() -> Iterator[None]:
    """Make torch's imports of its compiler find the stand-in of `without_compiler`."""
    if _COMPILER in sys.modules:
        yield
        return
    validator = _make_module(_VALIDATOR, {"translation_validation_enabled": lambda: False})
    modules = {_COMPILER: torch._dynamo, f"{_COMPILER}.config": torch._dynamo.config}
    modules |= {_VALIDATOR: validator} if _VALIDATOR not in sys.modules else {}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


def _make_module(name: str, named: Mapping[str, object]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(named)
    return module


def _import(name: str) -> Any:
    """Return an attribute of the compiler that the stand-in lacks."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module(_COMPILER), name)


class Shapes(FakeTensorMode):
    """Tensors of shapes and strides alone, without a cache of results: it would query the sizes."""

    __torch_dispatch__ = inspect.unwrap(FakeTensorMode.__torch_dispatch__)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.cache_enabled = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler to switch it off


# -- known relations -----------------------------------------------------------------------------
class Known:
    """Conditions that hold. Only their direct consequences are known: nothing is searched."""

    def __init__(self, *conds: Cond) -> None:
        self._holds: set[Cond] = set()
        self._bounds: dict[Poly, tuple[float, float]] = {}
        for cond in conds:
            self.learn(cond)

    def learn(self, cond: Cond) -> None:
        """Add a condition that holds."""
        self._holds.add(cond)
        if cond.kind == "all":
            for part in cond.parts:
                self.learn(part)
        elif cond.kind in ("le", "eq") and cond.term is not None:
            base, sign, constant = _split(cond.term)
            low, high = self._bound(base)
            # sign * base + constant <= 0
            if cond.kind == "eq":
                low = max(low, -sign * constant)
                high = min(high, -sign * constant)
            elif sign > 0:
                high = min(high, -constant)
            else:
                low = max(low, constant)
            self._bounds[base] = low, high

    def value(self, what: Poly) -> int | None:
        """Return the only value that a term can have, or None if unknown."""
        low, high = self._range(what)
        return int(low) if low == high else None

    def implies(self, cond: Cond) -> bool | None:
        """Return whether a condition holds, or None if unknown."""
        if cond in self._holds or cond == TRUE:
            return True
        if cond == FALSE or ~cond in self._holds:
            return False
        if cond.term is None:
            answers = [self.implies(part) for part in cond.parts]
            ends = cond.kind == "any"  # one part that is true, or false, decides
            if ends in answers:
                return ends
            return None if None in answers else not ends
        low, high = self._range(cond.term)
        if cond.kind == "le":
            return True if high <= 0 else False if low > 0 else None
        if low > 0 or high < 0:
            return cond.kind == "ne"
        return cond.kind == "eq" if low == high == 0 else None

    def reduce(self, cond: Cond) -> Cond:
        """Return what remains to be decided of a condition."""
        if cond.term is None:
            return (every if cond.kind == "all" else some)(map(self.reduce, cond.parts))
        cond = _shorten(cond)
        answer = self.implies(cond)
        return cond if answer is None else TRUE if answer else FALSE

    def settle(self, what: Any) -> Any:
        """Return a term or condition with its known minima and maxima resolved."""
        swaps = {}
        for atom in walk(what):
            if atom.kind in ("min", "max"):
                x, y = atom.args
                order = self.implies(le(x, y))
                if order is not None:
                    swaps[atom] = y if order == (atom.kind == "max") else x
        return substitute(what, swaps)

    def _bound(self, base: Poly) -> tuple[float, float]:
        """Return the range of a sum without its constant."""
        if not base.terms:
            return 0, 0
        low = base.least if base.is_natural else -inf
        most = base.most
        high = inf if most is None else most
        if (-base).is_natural:
            high = -(-base).least
        if base.atom is not None and base.atom.kind in ("floordiv", "mod"):
            first, last = self._divide(base.atom.kind, *base.atom.args)
            low, high = max(low, first), min(high, last)
        learned = self._bounds.get(base, (-inf, inf))
        return max(low, learned[0]), min(high, learned[1])

    def _divide(self, kind: str, what: Poly, by: Poly) -> tuple[float, float]:
        """Return the range of a quotient by a number, or of the remainder of a single number."""
        divisor, (low, high) = by.constant or 0, self._range(what)
        if divisor < 1 or (kind == "mod" and low != high):
            return -inf, inf
        if kind == "mod":
            return low % divisor, high % divisor
        return (
            low // divisor if low > -inf else low,
            high // divisor if high < inf else high,
        )

    def _range(self, what: Poly) -> tuple[float, float]:
        base, sign, constant = _split(what)
        low, high = self._bound(base)
        if len(base.terms) > 1 or any(c != 1 for c in base.terms.values()):
            summed = [self._product(m, c) for m, c in base.terms.items()]
            low = max(low, sum(x for x, _ in summed))
            high = min(high, sum(x for _, x in summed))
        elif len(next(iter(base.terms), ())) > 1:
            bounds = self._product(*next(iter(base.terms.items())))
            low, high = max(low, bounds[0]), min(high, bounds[1])
        if sign < 0:
            low, high = -high, -low
        return low + constant, high + constant

    def _product(self, monomial: tuple[object, ...], coefficient: int) -> tuple[float, float]:
        """Return the range of a product, if its factors are never negative."""
        low: float = 1
        high: float = 1
        for atom in monomial:
            factor_low, factor_high = self._bound(Poly({(atom,): 1}))  # type: ignore[dict-item]
            if factor_low < 0:
                return -inf, inf
            low = low * factor_low
            high = 0 if 0 in (high, factor_high) else high * factor_high
        ends = (low * coefficient, high * coefficient) if high < inf else (
            (low * coefficient, inf) if coefficient > 0 else (-inf, low * coefficient)
        )  # fmt: skip
        return min(ends), max(ends)


def _split(what: Poly) -> tuple[Poly, int, int]:
    """Return a sum as sign * base + constant; a sum and its negative have the same base."""
    constant = what.terms.get((), 0)
    rest = {m: c for m, c in what.terms.items() if m}
    first = min(rest, key=lambda m: tuple(x.number for x in m), default=None)
    sign = -1 if first is not None and rest[first] < 0 else 1
    return Poly({m: sign * c for m, c in rest.items()}), sign, constant


def _shorten(cond: Cond) -> Cond:
    """Return the same relation between terms without a common factor."""
    assert cond.term is not None
    rest = {m: c for m, c in cond.term.terms.items() if m}
    factor, constant = gcd(*rest.values()), cond.term.terms.get((), 0)
    if factor < 2:
        return cond
    whole = Poly({m: c // factor for m, c in rest.items()})
    if cond.kind == "le":
        return le(whole, -constant // factor)
    if constant % factor:
        return FALSE if cond.kind == "eq" else TRUE
    same = eq(whole, -constant // factor)
    return same if cond.kind == "eq" else ~same


# -- decisions -----------------------------------------------------------------------------------
_MOST_GUARDS = 400


class _Named(Source):
    """The source that torch records for a symbol; the usual ones import its compiler (3 s)."""

    def __init__(self, word: str) -> None:
        self.word = word

    @property
    def _name_template(self) -> str:
        return self.word

    if not isinstance(vars(Source).get("_name_template"), property):  # before torch 2.10

        def name(self) -> str:  # type: ignore[override]
            return self.word


class Decisions(ShapeEnv):
    """torch's symbolic shapes for one run with the sizes `hints`.

    `decisions` are the decisions in order, except those that `domain` or earlier ones imply.
    `running` is the instance of the run in progress: a wrapper may keep a size from an earlier one.
    """

    running: Decisions | None = None
    # whether the number that torch asks for only becomes part of a message
    converts_to_show: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, domain: Cond, hints: dict[Atom, int], deadline: float | None) -> None:
        super().__init__(
            allow_scalar_outputs=False,
            allow_dynamic_output_shape_ops=False,
            specialize_zero_one=False,
            duck_shape=False,
        )
        self.hints, self.deadline = dict(hints), deadline
        self.decisions: list[Guard] = []
        self.known = Known(domain)
        self.failure: NotKnown | None = None
        # true while torch allocates memory and asks only for its size in bytes
        self.sizing = False
        self._terms: dict[str, Poly] = {}
        self._symints: dict[Atom, Any] = {}
        self._read: dict[tuple[Any, Any], Any] = {}

    def _get_user_frame(self) -> None:
        """Return no line for torch's logs: it would import its compiler to skip its own lines."""

    def fail(self, message: str, where: Where | None = None, late: bool = False) -> NotKnown:
        """Return the error for an unsupported step, and keep it in case somebody catches it."""
        error = NotKnown(message, where or here(), late=late)
        self.failure = self.failure or error
        return error

    def symbol(self, atom: Atom, hint: int | None = None) -> Any:
        """Return torch's integer for a symbol."""
        if atom not in self._symints:
            value = self.hints.setdefault(atom, 1 if hint is None else hint)
            source = _Named("_".join(map(str, atom.args)))
            # positive=None: torch must not assume what it would otherwise ask
            created = self.create_symbol(
                value,
                source,
                dynamic_dim=DimDynamic.DYNAMIC,
                positive=None,
                do_not_specialize_zero_one=True,
            )
            self._terms[str(created)] = term(atom)
            self._symints[atom] = self.create_symintnode(created, hint=value, source=source)
        return self._symints[atom]

    def integer(self, what: Poly) -> Any:
        """Return torch's integer for a term, computed from its symbols."""
        total: Any = 0
        for monomial, coefficient in what.terms.items():
            product: Any = coefficient
            for atom in monomial:
                product = product * self._atom(atom)
            total = total + product
        return total

    def _atom(self, atom: Atom) -> Any:
        if atom.is_leaf:
            return self.symbol(atom)
        if atom.kind in ("floordiv", "mod", "min", "max"):
            x, y = (self.integer(part) for part in atom.args)
            if atom.kind in ("min", "max"):
                return (torch.sym_min if atom.kind == "min" else torch.sym_max)(x, y)
            return x // y if atom.kind == "floordiv" else x % y
        raise NotKnown(f"an operand's size is declared as {atom}")

    def term(self, x: Any) -> Poly:
        """Return the term of one of torch's integers."""
        if isinstance(x, torch.SymInt | torch.SymBool):
            self._check(x.node.shape_env)
        if isinstance(x, torch.SymInt):
            return self._translate(to_term, x.node.expr)
        if isinstance(x, torch.SymBool):
            return flag(self._translate(to_cond, x.node.expr))
        return term(int(x))

    def _check(self, env: Any) -> None:
        if env is not Decisions.running:
            raise (Decisions.running or self).fail("a size that was kept from an earlier call")

    def _translate(self, function: Any, expr: Any) -> Any:
        METER.decisions += 1
        translated = self._read.get((function, expr))
        if translated is None:
            translated = self._translate_expr(function, expr)
            # as first translated: one tensor's strides are the same terms throughout
            self._read[function, expr] = translated = self.known.settle(translated)
        return translated

    def _translate_expr(self, function: Any, expr: Any) -> Any:
        try:
            translated = function(expr, self._terms)
        except Untranslatable as error:
            raise self.fail(f"no term says {error}") from None
        except KeyError:  # a symbol that torch made for an element of a tensor
            raise self.fail("elements of a tensor are read on the host") from None
        for atom in walk(translated):
            divides = atom.kind in ("floordiv", "mod", "div", "rem")
            if divides and atom.args[1].constant is None and self.decide(eq(atom.args[1], 0)):
                raise ZeroDivisionError("integer division or modulo by zero")
        return translated

    def decide(self, cond: Cond) -> bool:
        """Return whether a condition holds for this run's sizes; the answer becomes a guard."""
        cond = self.known.reduce(cond)
        if cond in (TRUE, FALSE):
            return cond == TRUE
        if self.deadline is not None and counted_seconds() > self.deadline:
            raise self.fail("out of time", late=True)
        answer = bool(evaluate(cond, self.hints))
        guard = cond if answer else ~cond
        self.decisions.append((guard, here()))
        self.known.learn(guard)
        if len(self.decisions) > _MOST_GUARDS:
            raise self.fail(f"more than {_MOST_GUARDS} decisions on one path")
        return answer

    def number(self, what: Poly) -> int | None:
        """Return the only value of a term after the decisions so far, or None if unknown."""
        return self.known.value(what)

    def evaluate_expr(
        self,
        orig_expr: Any,
        hint: Any = None,
        fx_node: Any = None,
        size_oblivious: bool = False,
        fallback_value: Any = None,
        **_: Any,
    ) -> Any:
        """Answer torch when a size must become a number, or a comparison true or false."""
        self._check(self)
        if is_condition(orig_expr):
            empty = self.sizing and type(orig_expr).__name__ == "Equality"
            if empty and (size_oblivious or fallback_value is False):
                return False  # the size of empty memory is then too large, and nobody reads it
            return self.decide(self._translate(to_cond, orig_expr))
        if getattr(orig_expr, "is_number", isinstance(orig_expr, int | float)):
            return orig_expr
        if getattr(orig_expr, "is_integer", False):
            what = self._translate(to_term, orig_expr)
            value = self.number(what)
            if value is not None:
                return value
            if self.converts_to_show():
                return int(evaluate(what, self.hints))
            raise self.fail(f"{what} is a size, made a number here")
        raise self.fail(f"{orig_expr} is made of sizes, and a number is made of it here")


def here() -> Where | None:
    """Return the user's innermost line on the stack, or None."""
    where = calling_expression()
    return None if where is NOWHERE else where

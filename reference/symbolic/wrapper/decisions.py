"""Every decision that the sizes take part in, on one run of a wrapper, and the sizes themselves.

torch's symbolic shapes keep guards, ranges and replacements of symbols, some of which they deduce
and do not list. None of that is used: each question that reaches them is answered here, by the
run's own sizes, and the answer is noted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._guards import Source
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from gemmproof.reference.observation import NOWHERE, Where
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    evaluate,
    flag,
    term,
    walk,
)
from gemmproof.reference.symbolic.wrapper.known import Known
from gemmproof.reference.symbolic.wrapper.record import Guard, NotKnown
from gemmproof.reference.symbolic.wrapper.translate import (
    Untranslatable,
    is_condition,
    to_cond,
    to_term,
)
from gemmproof.reference.work import METER, counted_seconds

_MOST_GUARDS = 400


class _Named(Source):
    """Where torch believes that a symbol comes from; the usual ones import its compiler (3 s)."""

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

    `taken` are the decisions in order, but for those that `domain` or earlier ones decide.
    `running` is that of the run in progress: a wrapper may keep a size from an earlier one.
    """

    running: Decisions | None = None

    def __init__(self, domain: Cond, hints: dict[Atom, int], deadline: float | None) -> None:
        super().__init__(
            allow_scalar_outputs=False,
            allow_dynamic_output_shape_ops=False,
            specialize_zero_one=False,
            duck_shape=False,
        )
        self.hints, self.deadline = dict(hints), deadline
        self.taken: list[Guard] = []
        self.known = Known(domain)
        self.failure: NotKnown | None = None
        # true while torch allocates memory and asks only how many bytes it has
        self.sizing = False
        self._terms: dict[str, Poly] = {}
        self._made: dict[Atom, Any] = {}
        self._read: dict[tuple[Any, Any], Any] = {}

    def _get_user_frame(self) -> None:
        """No line for torch's logs: it would import its compiler to tell which lines are not."""

    def fail(self, message: str, where: Where | None = None, late: bool = False) -> NotKnown:
        """The error for what cannot be followed, kept in case somebody catches it."""
        error = NotKnown(message, where or here(), late=late)
        self.failure = self.failure or error
        return error

    def symbol(self, atom: Atom, hint: int | None = None) -> Any:
        """torch's integer for a symbol."""
        if atom not in self._made:
            value = self.hints.setdefault(atom, 1 if hint is None else hint)
            source = _Named("_".join(map(str, atom.args)))
            # positive=None: torch is to assume nothing that it would not ask
            made = self.create_symbol(
                value,
                source,
                dynamic_dim=DimDynamic.DYNAMIC,
                positive=None,
                do_not_specialize_zero_one=True,
            )
            self._terms[str(made)] = term(atom)
            self._made[atom] = self.create_symintnode(made, hint=value, source=source)
        return self._made[atom]

    def integer(self, what: Poly) -> Any:
        """torch's integer for a term, as it is computed from its symbols."""
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
        """The term that one of torch's integers is."""
        if isinstance(x, torch.SymInt | torch.SymBool):
            self._check(x.node.shape_env)
        if isinstance(x, torch.SymInt):
            return self._translate(to_term, x.node.expr)
        if isinstance(x, torch.SymBool):
            return flag(self._translate(to_cond, x.node.expr))
        return term(int(x))

    def _check(self, asked: Any) -> None:
        if asked is not Decisions.running:
            raise (Decisions.running or self).fail("a size that was kept from an earlier call")

    def _translate(self, function: Any, expr: Any) -> Any:
        METER.decisions += 1
        made = self._read.get((function, expr))
        if made is None:
            made = self._translate_anew(function, expr)
            # as it was first read: one tensor's strides are the same terms throughout
            self._read[function, expr] = made = self.known.settle(made)
        return made

    def _translate_anew(self, function: Any, expr: Any) -> Any:
        try:
            made = function(expr, self._terms)
        except Untranslatable as error:
            raise self.fail(f"no term says {error}") from None
        except KeyError:  # a symbol that torch made for an element of a tensor
            raise self.fail("elements of a tensor are read on the host") from None
        for atom in walk(made):
            divides = atom.kind in ("floordiv", "mod", "div", "rem")
            if divides and atom.args[1].constant is None and self.decide(eq(atom.args[1], 0)):
                raise ZeroDivisionError("integer division or modulo by zero")
        return made

    def decide(self, cond: Cond) -> bool:
        """Whether a condition holds for the sizes of this run; the answer becomes a guard."""
        cond = self.known.reduce(cond)
        if cond in (TRUE, FALSE):
            return cond == TRUE
        if self.deadline is not None and counted_seconds() > self.deadline:
            raise self.fail("out of time", late=True)
        answer = bool(evaluate(cond, self.hints))
        taken = cond if answer else ~cond
        self.taken.append((taken, here()))
        self.known.learn(taken)
        if len(self.taken) > _MOST_GUARDS:
            raise self.fail(f"more than {_MOST_GUARDS} decisions on one path")
        return answer

    def number(self, what: Poly) -> int | None:
        """A term's value, where what was decided so far leaves one."""
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
        """What torch asks when a size must become a number, or a comparison true or false."""
        self._check(self)
        if is_condition(orig_expr):
            empty = self.sizing and type(orig_expr).__name__ == "Equality"
            if empty and (size_oblivious or fallback_value is False):
                return False  # empty memory then counts too many bytes, and nobody asks how many
            return self.decide(self._translate(to_cond, orig_expr))
        if getattr(orig_expr, "is_number", isinstance(orig_expr, int | float)):
            return orig_expr
        if getattr(orig_expr, "is_integer", False):
            what = self._translate(to_term, orig_expr)
            value = self.number(what)
            if value is not None:
                return value
            raise self.fail(f"{what} is a size, made a number here")
        raise self.fail(f"{orig_expr} is made of sizes, and a number is made of it here")


def here() -> Where | None:
    """The user's innermost line on the stack."""
    where = calling_line()
    return None if where is NOWHERE else where

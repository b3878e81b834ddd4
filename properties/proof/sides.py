"""Sides of a wrapper's decisions: the condition of each, and the cases that took it."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.kernel import NONE, ContractError, KernelUnderTest
from gemmproof.properties.proof import Side
from gemmproof.properties.proof.domain import Domain
from gemmproof.reference.symbolic.formulas import Namer
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import Cond, evaluate, walk

Values = Mapping[str, int]


@dataclass(slots=True)
class PathSide:
    """One side of a decision on a line, `condition` as text: `ways` are those to take it.

    Each has the conditions of a path to this side, and the domain that the path is of.

    `is_reachable`: True if sizes and strides are known that the contract admits, False if the
    layouts of the contract have none, None if the solver did not decide it.
    """

    line: str
    condition: str
    decision: Cond
    ways: list[tuple[Cond, Domain]] = field(default_factory=list)
    is_reachable: bool | None = None

    def format(self) -> str:
        """Return the line and the condition as text."""
        if self.is_reachable:
            return f"{self.line} needs {self.condition}"
        return f"{self.line} never ran with {self.condition}"

    def may_take(
        self, kernel: KernelUnderTest, sms: int, known: dict[Case, Values], case: Case
    ) -> bool:
        """Return whether a case took the side, or may have; `known` caches the values of cases.

        The ways are those of a device of `sms` multiprocessors: one of another number decides
        otherwise where a condition has a multiple of it.
        """
        numbers = (int(n) for n in re.findall(r"\d+", self.condition))
        if case.sms not in (None, sms) and any(n and n % sms == 0 for n in numbers):
            return True
        for cond, domain in self.ways:
            if not _is_in(domain, kernel, case):
                continue
            values: Values = {axis: case.sides[axis] for axis in domain.sizes}
            leaves = {x: str(x) for x in walk(cond) if x.is_leaf}
            try:
                if not leaves.keys() <= {*domain.axes}:
                    if case not in known:
                        known[case] = _read_values(domain, kernel, case)
                    values = {**values, **known[case]}
                if evaluate(cond, {x: values[name] for x, name in leaves.items()}):
                    return True
            except (KeyError, ContractError):  # it depends on more than the operands
                return True
        return False


def list_sides(kernel: KernelUnderTest, sides: Iterable[PathSide], sms: int) -> Iterator[Side]:
    """Yield the sides that the contract admits, or may admit."""
    known: dict[Case, Values] = {}
    for side in sides:
        if side.is_reachable or (side.is_reachable is None and not _is_ruled_out(side)):
            may_take = partial(side.may_take, kernel, sms, known)
            yield Side(side.format(), may_take, is_known=side.is_reachable is True)


def _is_ruled_out(side: PathSide) -> bool:
    """Return whether no sizes meet the condition of a side, or those of the paths to it."""
    with suppress(OutOfTime):
        for cond, domain in side.ways:
            solver = Solver(domain.condition)
            if all(solver.decide(x) != "unsat" for x in (side.decision, cond)):
                return False
        return True
    return False


def _is_in(domain: Domain, kernel: KernelUnderTest, case: Case) -> bool:
    own, asked = dict(domain.case.arguments), dict(case.arguments)
    chosen = {n: x for n, x in asked.items() if n in kernel.choices or x == NONE}
    return case.dtype == domain.case.dtype and chosen == own and domain.fit(case) == case


def _read_values(domain: Domain, kernel: KernelUnderTest, case: Case) -> Values:
    """Return strides, offsets and addresses of a case's operands by the names of their symbols."""
    values: dict[str, int] = {}
    allocated = operands(case, kernel)
    for name, declared in domain.operands.items():
        tensor = allocated[name].tensor
        for step, n in zip(declared.strides, tensor.stride(), strict=True):
            if step.atom is not None and step.atom.is_leaf:
                values.setdefault(str(step.atom), n)
        values[f"offset of {name}"] = int(tensor.storage_offset())
        values[f"address of {name}"] = tensor.data_ptr() // tensor.element_size()
    return values


@lru_cache(maxsize=64)
def list_decisions(file: str) -> frozenset[int]:
    """Return the lines of a file that have a condition: torch decides on other lines, too."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset()
    lines: set[int] = set()
    for node in ast.walk(tree):
        tests: list[ast.expr] = [node] if isinstance(node, ast.BoolOp) else []
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tests.append(node.test)
        elif isinstance(node, ast.comprehension):
            tests += node.ifs
        for test in tests:
            lines |= {*range(test.lineno, (test.end_lineno or test.lineno) + 1)}
    return frozenset(lines)


def make_namer(domain: Domain) -> Namer:
    """Return a namer that calls strides as the source of a wrapper does."""
    return Namer(
        [
            (stride, f"{name}.stride({axis})")
            for name, operand in domain.operands.items()
            for axis, stride in enumerate(operand.strides)
            if stride.atom is not None and stride.atom.is_leaf and stride.atom not in domain.axes
        ]
    )


def describe_condition(domain: Domain, cond: Cond) -> str:
    """Return a condition as text, with a constant on its right."""
    try:
        text = make_namer(domain).judge(cond)
    except KeyError:  # an operation without an operator sign
        return str(cond)
    left, sign, right = text.partition(" <= ")
    is_bound = bool(sign) and left.isdigit() and " <= " not in right and cond.term is not None
    return f"{right} >= {left}" if is_bound else text

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
from gemmproof.reference.simulation import Where
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
        otherwise where a condition has a multiple of it. Which of two operands has the lower
        address is not decided by a case.
        """
        numbers = (int(n) for n in re.findall(r"\d+", self.condition))
        if case.sms not in (None, sms) and any(n and n % sms == 0 for n in numbers):
            return True
        for cond, domain in self.ways:
            if not _is_in(domain, kernel, case):
                continue
            if _compares_addresses(self.decision):
                return True
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


def _compares_addresses(cond: Cond) -> bool:
    """Return whether a condition names the addresses of several operands in one comparison."""
    if cond.term is None:
        return any(map(_compares_addresses, cond.parts))
    return sum(str(x).startswith("address of ") for x in walk(cond) if x.is_leaf) > 1


def _is_in(domain: Domain, kernel: KernelUnderTest, case: Case) -> bool:
    usual = {name: choice.names[0] for name, choice in kernel.choices.items()}
    own, asked = usual | dict(domain.case.arguments), usual | dict(case.arguments)
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


Span = tuple[int, int, int, int]  # first line and column, those behind the last


@lru_cache(maxsize=64)
def _list_conditions(file: str) -> tuple[Span, ...]:
    """Return the spans of the conditions in a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    tests: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp):
            tests.append(node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tests.append(node.test)
        elif isinstance(node, ast.comprehension):
            tests += node.ifs
    spans = {(x.lineno, x.col_offset, x.end_lineno or 0, x.end_col_offset or 0) for x in tests}
    return tuple(sorted(spans))


def is_condition(where: Where) -> bool:
    """Return whether a decision is that of a condition of the file's own.

    torch and Triton decide elsewhere, too: TensorDescriptor checks the strides that it is given.
    """
    spans = _list_conditions(where.file)
    if where.span is None:
        return any(first <= where.line <= last for first, _, last, _ in spans)
    begin, end = where.span[:2], where.span[2:]
    return any(span[:2] <= begin and end <= span[2:] for span in spans)


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

"""A contract over symbols: its domains, and a wrapper's paths over each in every configuration."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import smallest
from gemmproof.properties.cases.layouts import CONTIGUOUS
from gemmproof.properties.contract import ROLES, Contract
from gemmproof.properties.kernel import NONE, KernelUnderTest
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.symbolic.interpreter import follow
from gemmproof.reference.symbolic.interpreter.interpret import Machine, NotInterpretable
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import (
    FALSE,
    Atom,
    Cond,
    Poly,
    eq,
    evaluate,
    every,
    flag,
    le,
    lt,
    make,
    some,
    symbol,
    term,
)
from gemmproof.reference.symbolic.tracing import take_config, trace_wrapper
from gemmproof.reference.symbolic.tracing.replay import find_difference
from gemmproof.reference.symbolic.tracing.trace import (
    Path,
    Symbolic,
    Trace,
    Unvisited,
    WrapperRun,
)
from gemmproof.reference.triton_hooks import count_combinations

# Elements from the first of a tensor to behind its last: the reach of a 32-bit offset and a 32-bit
# count; and if the contract is huge, more than any device's memory holds.
SPAN, HUGE_SPAN = 2**31 - 1, 2**38
MOST_WAYS = 48  # of calling a wrapper: values, omitted operands, formats


def format_span(contract: Contract) -> str:
    """Format the number of elements that a tensor of a contract has fewer than."""
    return "2**38" if contract.huge else "2**31"


class NotExpressible(Exception):
    """A contract, or an operand, that terms cannot express; the message is one line."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Everything that one way of calling a wrapper admits, of sizes that are 0 or are not.

    `case` is its smallest, of which only the sizes change; `sizes` are symbols, or 0, by axis,
    `operands` the tensors by name, `condition` the constraints on all symbols, `plainest` the
    condition that every operand is dense.
    """

    case: Case
    sizes: Mapping[str, Poly]
    operands: Mapping[str, Symbolic]
    condition: Cond
    plainest: Cond
    any_strides: bool

    @property
    def axes(self) -> tuple[Atom, ...]:
        """The symbols of the sizes."""
        return tuple(x.atom for x in self.sizes.values() if x.atom is not None)

    @property
    def scope(self) -> str:
        """The sizes and strides of the domain, in words."""
        text = f"every {', '.join(self.sizes)}"
        return f"{text}, any strides" if self.any_strides else text

    def list_limits(self, contract: Contract) -> Iterator[str]:
        """Yield the limits of the sizes and tensors of every case, one phrase each."""
        axes: dict[int, list[str]] = {}
        for axis in self.sizes:
            axes.setdefault(contract.sizes(axis).high, []).append(axis)
        for high, names in axes.items():
            yield f"{', '.join(names)} at most {high}"
        yield f"operands and results below {format_span(contract)} elements"

    def fit(self, case: Case) -> Case | None:
        """Return a case with the sizes that are 0 here; None if another one of them is 0."""
        empty = {axis: 0 for axis, size in self.sizes.items() if size.constant is not None}
        atoms = {axis: size.atom for axis, size in self.sizes.items() if size.atom is not None}
        if any(case.sides[axis] < min(atom.least, 1) for axis, atom in atoms.items()):
            return None
        return case.with_sides(empty)

    def read_sides(self, values: Mapping[Any, int], default: Case | None = None) -> dict[str, int]:
        """Return the size of each axis if symbols, as atoms or by name, have these values."""
        sides = {}
        for axis, size in self.sizes.items():
            if size.constant is not None:
                sides[axis] = size.constant
            elif size.atom in values or axis in values:
                sides[axis] = values.get(size.atom, values.get(axis, 0))
            elif default is not None:
                sides[axis] = getattr(default, axis)
        return sides

    def add_strides(self, sizes: Mapping[Atom, int], padding: int = 0) -> dict[Atom, int]:
        """Return values with the strides that they lack: dense but for a padding of each line."""
        values = dict(sizes)
        for operand in self.operands.values():
            step = 1
            for n, stride in reversed(list(zip(operand.shape, operand.strides, strict=True))):
                if stride.atom is not None and stride.atom.is_leaf:
                    values.setdefault(stride.atom, step)
                step = int(evaluate(n, values)) * (step + padding)
        return values


def list_domains(kernel: KernelUnderTest) -> Iterator[Domain]:
    """Yield every way of calling a wrapper: each format, value, and operand that may be omitted.

    Raises NotExpressible.
    """
    options = []
    for name, choice in kernel.choices.items():
        options.append([(name, value) for value in choice.names])
    for name, declared in kernel.tensors.items():
        if declared.optional:
            options.append([(name, ""), (name, NONE)])
    ways = list(itertools.product(kernel.contract.formats, itertools.product(*options)))
    if len(ways) > MOST_WAYS:
        raise NotExpressible(f"{len(ways)} ways of calling it, where {MOST_WAYS} are tried")
    for dtype, chosen in ways:
        first = smallest(kernel.contract, dtype)
        arguments = tuple((name, word) for name, word in chosen if word)
        for sizes in _list_sizes(kernel.contract):
            domain = _make(kernel, replace(first, arguments=arguments), sizes)
            if domain.condition != FALSE:
                yield domain


def _list_axes(contract: Contract) -> tuple[str, ...]:
    return ("batch", "M", "N", "K") if contract.batched else ("M", "N", "K")


def _list_sizes(contract: Contract) -> Iterator[dict[str, Poly]]:
    """Yield sizes of which none is 0, then those of which an axis is the first to be 0.

    An empty operand has other strides of torch's, and its own path through most wrappers. A depth
    of 0 is not separate if strides are any, because they do not depend on it.
    """
    axes = _list_axes(contract)
    plain = () if contract.layouts == CONTIGUOUS else ("K",)
    may_be = [x for x in axes if contract.sizes(x).low == 0 and x not in plain]
    for empty in ("", *may_be):
        later = (*(may_be[may_be.index(empty) + 1 :] if empty else ()), *plain)
        least = {x: max(contract.sizes(x).low, x not in later) for x in axes}
        sizes = {axis: symbol(axis, is_natural=True, least=n) for axis, n in least.items()}
        yield {**sizes, empty: term(0)} if empty else sizes


def _make(kernel: KernelUnderTest, case: Case, sizes: dict[str, Poly]) -> Domain:
    contract = kernel.contract
    conds = [cond for axis in sizes for cond in _admit(contract, axis, sizes[axis])]
    if contract.where is not None:
        if not isinstance(contract.where, str):
            raise NotExpressible("a condition on the sizes that is a function")
        whole = {**sizes, "batch": sizes.get("batch", term(1))}
        conds.append(_relate(contract.where, whole))
    integers = {n: term(x) for n, x in kernel.values_of(case).items() if type(x) is int}
    omitted = {name for name, value in case.arguments if value == NONE}
    operands = {}
    for name, role in ROLES.items():
        shape = tuple(sizes[axis] for axis in (("batch",) if contract.batched else ()) + role.axes)
        declared = kernel.tensors.get(name)
        fmt = case.dtype if declared is None else declared.format
        if declared is not None:
            shape = _shape(declared.axes, sizes, integers)
        is_dense = contract.layouts == CONTIGUOUS
        operands[name] = _operand(name, fmt, shape, is_dense, contract, conds)
    for name, declared in kernel.tensors.items():
        if name not in ROLES and name not in omitted:
            shape = _shape(declared.axes, sizes, integers)
            is_dense = declared.layouts == CONTIGUOUS
            operands[name] = _operand(name, declared.format, shape, is_dense, contract, conds)
    dense = [cond for operand in operands.values() for cond in _make_dense(operand)]
    any_strides = contract.layouts != CONTIGUOUS
    return Domain(case, sizes, operands, every(conds), every(dense), any_strides)


def _make_dense(operand: Symbolic) -> Iterator[Cond]:
    step = term(1)
    for n, stride in reversed(list(zip(operand.shape, operand.strides, strict=True))):
        yield eq(stride, step)
        step = step * n


def _admit(contract: Contract, axis: str, size: Poly) -> Iterator[Cond]:
    sizes = contract.sizes(axis)
    if size.atom is not None:
        yield le(size.atom.least, size)
    yield le(size, sizes.high)
    if sizes.step > 1:
        yield eq(make("mod", size, sizes.step), 0)


def _operand(
    name: str, fmt: str, shape: tuple[Poly, ...], is_dense: bool, contract: Contract,
    conds: list[Cond],
) -> Symbolic:  # fmt: skip
    strides: list[Poly] = []
    step = term(1)
    for n in reversed(shape):
        strides.append(step)
        step = step * make("max", n, 1)  # as torch's of an empty tensor
    if not is_dense:
        axes = reversed(range(len(shape)))
        strides = [symbol(f"stride_{name}{axis}", is_natural=True) for axis in axes]
        conds += [lt(x, SPAN) for x in strides]
    strides.reverse()
    last = sum(((n - 1) * x for n, x in zip(shape, strides, strict=True)), term(0))
    conds.append(lt(last, HUGE_SPAN if contract.huge else SPAN))
    dtype = getattr(torch, FORMATS[fmt].stored.dtype)
    return Symbolic(dtype, shape, tuple(strides))


def _shape(
    axes: tuple[str | int, ...], sizes: Mapping[str, Poly], integers: Mapping[str, Poly]
) -> tuple[Poly, ...]:
    values = {"batch": term(1), **sizes, **integers}
    return tuple(term(x) if isinstance(x, int) else _evaluate(x, values) for x in axes)


# -- text over sizes -----------------------------------------------------------------------------
def _evaluate(text: str, sizes: Mapping[str, Poly]) -> Poly:
    return _number(_read(ast.parse(text, mode="eval").body, sizes))


def _relate(text: str, sizes: Mapping[str, Poly]) -> Cond:
    return _truth(_read(ast.parse(text, mode="eval").body, sizes))


def _truth(x: Poly | Cond) -> Cond:
    return x if isinstance(x, Cond) else ~eq(x, 0)


def _number(x: Poly | Cond) -> Poly:
    return flag(x) if isinstance(x, Cond) else x


_COMPARED = {
    ast.Eq: eq,
    ast.NotEq: lambda x, y: ~eq(x, y),
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: lambda x, y: lt(y, x),
    ast.GtE: lambda x, y: le(y, x),
}


def _read(node: ast.expr, sizes: Mapping[str, Poly]) -> Poly | Cond:
    def number(inner: ast.expr) -> Poly:
        return _number(_read(inner, sizes))

    match node:
        case ast.Constant(value=int(n)):
            return term(n)
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right):
            x, y = number(left), number(right)
            match op:
                case ast.Add():
                    return x + y
                case ast.Sub():
                    return x - y
                case ast.Mult():
                    return x * y
                case ast.FloorDiv() | ast.Mod():
                    kind = "floordiv" if isinstance(op, ast.FloorDiv) else "mod"
                    if y.constant or y.least:
                        return make(kind, x, y)
                    # by 0 it is 0, as in a contract
                    return make("choice", ~eq(y, 0), make(kind, x, y), term(0))
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return ~_truth(_read(inner, sizes))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -number(inner)
        case ast.BoolOp(op=op, values=values):
            parts = [_read(part, sizes) for part in values]
            is_and = isinstance(op, ast.And)
            conds = [part for part in parts if isinstance(part, Cond)]
            if len(conds) == len(parts):
                return every(conds) if is_and else some(conds)
            *others, last = parts  # a number decides by its value, and is that value
            for part in reversed(others):
                chosen = (last, part) if is_and else (part, last)
                last = make("choice", _truth(part), *map(_number, chosen))
            return last
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARED for op in ops
        ):
            terms = [number(x) for x in (left, *others)]
            pairs = zip(ops, terms, terms[1:], strict=False)
            return every(_COMPARED[type(op)](x, y) for op, x, y in pairs)
    raise NotExpressible(f"{ast.unparse(node)}, which terms cannot say")


# -- paths -----------------------------------------------------------------------------------------
MOST_PATHS = 24
USUAL = (3, 37, 53, 29)  # batch, M, N, K
MOST_CONFIGS = 16
MOST_REPLAYS = 3  # of a path in its first configuration; in the others one


@dataclass(frozen=True, slots=True)
class TracedPath:
    """A path of a wrapper, in one configuration, with its launches over symbols."""

    domain: Domain
    config: int
    path: Path
    machines: list[Machine]


@dataclass(frozen=True, slots=True)
class Untraced:
    """A part of a domain whose calls are not known, and why; `late` if time ran out.

    `defect` says how a traced path differs from a call of the wrapper. `in_kernel`: only a kernel
    is not known.
    """

    why: str
    late: bool = False
    defect: str = ""
    in_kernel: bool = False


EVERY_PATH_RAISES = Untraced("every path of the wrapper raises")  # a proof would be vacuous


@dataclass(frozen=True, slots=True)
class TraceCache:
    """Results that the domains and configurations of a kernel share.

    `traced`: the trace of a domain, in any configuration; `decided`: sizes of a domain at which a
    condition holds, or None; `checked`: z3's answers to texts.
    """

    traced: dict[tuple[Case, tuple[Atom, ...], Cond], Trace] = field(default_factory=dict)
    decided: dict[tuple[Cond, Cond], Mapping[Atom, int] | None] = field(default_factory=dict)
    checked: dict[str, str] = field(default_factory=dict)


# gets each run, and the sides that no call took, with the case of which only sizes differ
See = Callable[[Case, WrapperRun | Unvisited], None]


def iter_traced_paths(
    kernel: KernelUnderTest, domain: Domain, target: str | None, cache: TraceCache,
    deadline: Callable[[], float], see: See | None = None,
) -> Iterator[list[TracedPath | Untraced]]:  # fmt: skip
    """Yield the paths of each configuration, and the parts of the domain that they do not cover.

    A path that launches no more configurations than came before is not repeated. `deadline` is
    asked once a configuration, for the search for paths.
    """
    for config in range(MOST_CONFIGS):
        solver = Solver(domain.condition, deadline=deadline(), checked=cache.checked)
        parts: list[TracedPath | Untraced] = []
        configs, raised = 1, list[bool]()
        for path in list_paths(kernel, domain, target, config, solver, cache, see):
            if isinstance(path, Untraced):
                parts.append(path)
                continue
            combined = count_combinations(path.choices)
            configs = max([configs, combined])
            raised.append(path.failed is not None and path.failed.raised)
            if (difference := _replay(kernel, domain, target, path, config)) is not None:
                parts.append(difference)
                continue
            # one that failed may lack the launches that tell how many configurations it has
            if path.failed is not None or config < combined:
                parts += _follow(domain, path, config)
        yield [*parts, EVERY_PATH_RAISES] if raised and all(raised) else parts
        if config + 1 >= configs:
            return
    yield [Untraced(f"more than {MOST_CONFIGS} configurations")]


def asks_sms(domain: Domain, cache: TraceCache) -> bool:
    """Return whether the wrapper read the number of multiprocessors when it was traced."""
    traced = cache.traced.get(_key(domain))
    return traced is not None and any(path.asks_sms for path in traced.leaves)


def _key(domain: Domain) -> tuple[Case, tuple[Atom, ...], Cond]:
    return domain.case, domain.axes, domain.condition


def _replay(
    kernel: KernelUnderTest, domain: Domain, target: str | None, path: Path, config: int
) -> Untraced | None:
    """Return how calls with plain integers differ from a path, None if they do not.

    The wrapper is called at the sizes of the path, and at others that take it.
    """
    if path.failed is not None and (config or not path.failed.raised):
        return None
    case = replace(domain.case, config=config)
    for values in itertools.islice(_list_values(domain, path), 1 if config else MOST_REPLAYS):
        difference = find_difference(
            lambda tensors: kernel.call(case, tensors), domain.operands, path, values, target,
            config, case.sms,
        )  # fmt: skip
        if difference is not None:
            why = f"its paths are not those of its calls: {difference.text}"
            return Untraced(why, defect=difference.text if difference.is_ours else "")
    return None


# of the sizes of a path, to get others: large ones, ones that keep factors, and neighbours
_OTHERS: tuple[Callable[[int], int], ...] = (
    lambda n: 37 * n + 11,
    lambda n: 33 * n,
    lambda n: n + 1,
    lambda n: n + 64,
)


def _list_values(domain: Domain, path: Path) -> Iterator[dict[Atom, int]]:
    """Yield the sizes that a path ran with, then others that take it, changed along all axes first.

    Those are not searched for: the path may have others.
    """
    first = dict(path.hints)
    yield first
    condition = every((domain.condition, path.condition))
    strides = {x.atom for operand in domain.operands.values() for x in operand.strides}
    for axes in (domain.axes, *([axis] for axis in domain.axes)):
        for change in _OTHERS:
            sizes = {x: n for x, n in first.items() if x not in strides or x in domain.axes}
            sizes |= {axis: change(first[axis]) for axis in axes if axis in first}
            for padding in (3, 0) if domain.any_strides else (0,):
                values = domain.add_strides(sizes, padding)
                with suppress(KeyError):
                    if evaluate(condition, values):
                        yield values
                        break


def _follow(domain: Domain, path: Path, config: int) -> Iterator[TracedPath | Untraced]:
    """Yield a path with its launches over symbols, or why it has none; neither if it raises."""
    if path.failed is not None:
        if not path.failed.raised:
            yield Untraced(str(path.failed), path.failed.late)
        return
    try:
        machines = [follow(launch, number) for number, launch in enumerate(path.launches)]
    except NotInterpretable as why:
        yield Untraced(f"{why.where}: {why}" if why.where else str(why), in_kernel=True)
        return
    yield TracedPath(domain, config, path, machines)


def list_paths(
    kernel: KernelUnderTest, domain: Domain, target: str | None, config: int, solver: Solver,
    cache: TraceCache, see: See | None = None,
) -> Iterator[Path | Untraced]:  # fmt: skip
    """Yield the parts of the domain that no path covers, then the paths of one configuration.

    A wrapper that ran in one configuration runs again in another only where that may change more
    than its launches.
    """
    key = _key(domain)
    case = replace(domain.case, config=config)

    def call(tensors: Mapping[str, object]) -> Any:
        return kernel.call(case, tensors)

    def find(cond: Cond) -> Mapping[Atom, int] | None:
        asked = (domain.condition, cond)  # formats and configurations ask the same
        with suppress(OutOfTime):
            if asked not in cache.decided:
                cache.decided[asked] = solver.find(cond, small=domain.axes)
            return cache.decided[asked]
        return None

    trace = take_config(cache.traced[key], config) if key in cache.traced else None
    if trace is None:
        hint = _usual_sizes(domain, kernel) or solver.find(domain.condition, small=domain.axes)
        if hint is None:
            yield Untraced("no sizes were parts that the contract admits")
            return
        trace = trace_wrapper(
            call, domain.operands, domain.condition, target, hint, find,
            most_paths=MOST_PATHS, config=config, deadline=solver.deadline, sms=case.sms,
        )  # fmt: skip
        cache.traced[key] = trace
    for left in trace.unvisited:
        if not _is_ruled_out(solver, left.condition):
            where = f"{left.where}: " if left.where else ""
            yield Untraced(f"{where}a path that was not run: {left.why}", left.late)
            if see is not None:
                see(case, left)
    for run in trace.runs:
        if see is not None:
            see(case, run)
    yield from trace.paths


def _is_ruled_out(solver: Solver, cond: Cond) -> bool:
    with suppress(OutOfTime):
        return solver.decide(cond) == "unsat"
    return False


def _usual_sizes(domain: Domain, kernel: KernelUnderTest) -> Mapping[Atom, int] | None:
    """Return sizes neither small nor round, so that most wrappers take their general path."""
    sides = kernel.contract.fit(dict(zip(domain.sizes, USUAL[-len(domain.sizes) :], strict=True)))
    if sides is None:
        return None
    values = {size.atom: max(1, sides[axis]) for axis, size in domain.sizes.items() if size.atom}
    values = domain.add_strides(values, padding=3)
    return values if bool(evaluate(domain.condition, values)) else None

"""The sizes from which an integer wraps: the formula of each offset that reaches 2**31."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.domain import (
    EVERY_PATH_RAISES,
    Domain,
    NotExpressible,
    TraceCache,
    TracedPath,
    iter_traced_paths,
    list_domains,
)
from gemmproof.properties.proof.prove import list_spans
from gemmproof.reference.symbolic.interpreter.integer_rules import fits
from gemmproof.reference.symbolic.interpreter.interpret import NotInterpretable
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.obligations.indices import NotAffine, locate
from gemmproof.reference.symbolic.solver import YES, OutOfTime, Solver, find_at, fresh_state
from gemmproof.reference.symbolic.terms import (
    Atom,
    Cond,
    Poly,
    eq,
    evaluate,
    every,
    lt,
    make,
    term,
    walk,
)
from gemmproof.reference.work import counted_seconds

WIDTH = 31  # bits of an offset below its sign
WRAPS = 2**WIDTH
# sizes for which another size exists at which an offset is 2**31
OTHERS = (3, *(2**i + more for i in range(17) for more in (0, 1)))
RESTS = (1, 129)  # sizes that an offset does not depend on
MOST_TRIED = 12  # of them for one offset


@dataclass(frozen=True, slots=True)
class Wrap:
    """The offset of an operand that fits exactly while `text` is below 2**31.

    Both sides are decided: it fits for every size below, and wraps `at` sizes where it is `value`.
    `sides`: the sizes there, by axis; `is_dense` if its operand is.
    """

    operand: str
    text: str
    at: str
    value: int
    sides: tuple[tuple[str, int], ...]
    is_dense: bool

    def __str__(self) -> str:
        value = "" if self.value == WRAPS else f" ({self.value})"
        return f"{self.operand} fits while {self.text} < 2**31, wraps at {self.at}{value}"


class _NotDecided(Exception):
    """An undecided obligation that an exact limit would depend on."""


@fresh_state()
def find_wraps(kernel: KernelUnderTest, target: str | None, seconds: float) -> tuple[Wrap, ...]:
    """Return the offsets of a kernel that wrap under its contract, once per operand and formula.

    None of them if a single one was not decided.
    """
    until, wraps = counted_seconds() + seconds, dict[tuple[str, str], Wrap]()
    with suppress(_NotDecided, NotExpressible, NotInterpretable, NotAffine, OutOfTime):
        for domain in list_domains(kernel):
            configs = iter_traced_paths(kernel, domain, target, TraceCache(), lambda: until)
            for part in itertools.chain.from_iterable(configs):
                if isinstance(part, TracedPath):
                    for wrap in _judge_path(kernel, part, until):
                        wraps.setdefault((wrap.operand, wrap.text), wrap)
                elif part is not EVERY_PATH_RAISES:
                    raise _NotDecided(part.why)
        return tuple(wraps.values())
    return ()


def _judge_path(kernel: KernelUnderTest, traced: TracedPath, until: float) -> Iterator[Wrap]:
    machines = traced.machines
    accesses = [access for machine in machines for access in machine.accesses]
    conds = [
        traced.domain.condition,
        traced.path.condition,
        *list_spans(kernel, traced.path, accesses),
    ]
    conds += [machine.launched for machine in machines]
    solver = Solver(every(conds), deadline=until)
    for machine in machines:
        solver.known |= machine.known
    for claim in (claim for machine in machines for claim in machine.claims):
        if claim.kind == "fit" and solver.follows(claim.cond, claim.path) != YES:
            raise _NotDecided(claim.text)
    for access in accesses:
        for step, cond in access.steps:
            assumptions = (access.path, access.mask, cond)
            if solver.follows(fits(step, WIDTH + 1), *assumptions) != YES:
                yield _find_wrap(kernel, traced, solver, access, step, assumptions)


def _find_wrap(
    kernel: KernelUnderTest, traced: TracedPath, solver: Solver, access: SymbolicAccess, step: Poly,
    assumptions: tuple[Cond, ...],
) -> Wrap:  # fmt: skip
    """Find where an offset wraps, decided on both sides. Raises _NotDecided."""
    top, formula = _find_top(access, step)
    fit = fits(step, WIDTH + 1)
    if solver.follows(fit, *assumptions, lt(top, WRAPS)) != YES:
        raise _NotDecided(f"{formula} < 2**31 is not enough")
    # an argument that is wider makes its offsets wider, too
    arguments = (x for launch in traced.path.launches for x in launch.arguments)
    narrow_arguments = every(lt(x, WRAPS) for x in arguments if isinstance(x, Poly))
    unfolded = solver.unfold(~fit, narrow_arguments, *assumptions)
    tried = _list_values(traced.domain, solver.domain, _list_steps(kernel, traced.domain), top)
    for values in itertools.islice(tried, MOST_TRIED):
        if find_at(solver, unfolded, {atom: term(n) for atom, n in values.items()}) is not None:
            named = set(walk(eq(top, 0)))
            shown = (f"{_name(str(x))}={n}" for x, n in values.items() if x in named)
            value = int(evaluate(top, values))
            is_dense = not any(str(x).startswith("stride_") for x in walk(eq(top, 0)))
            sides = tuple(traced.domain.read_sides(values).items())
            return Wrap(access.tensor.name, formula, " ".join(shown), value, sides, is_dense)
    raise _NotDecided(f"no sizes were found at which {formula} reaches 2**31")


def _find_top(access: SymbolicAccess, step: Poly) -> tuple[Poly, str]:
    """Return the largest value of a step of an access's offset inside its operand, and its formula.

    The solver has to confirm that it is the largest. Raises _NotDecided, NotAffine.
    """
    tensor = access.tensor
    shape, strides = tensor.owner_shape, tensor.owner_strides
    whole = locate(access.term + tensor.offset, shape, strides)
    parts = locate(step, shape, strides)
    top, factors, counted = term(0), list[str](), term(1)
    for at, index, n, stride in zip(whole, parts, shape, strides, strict=True):
        counted = counted * n
        if index.terms:
            last, last_text = _find_last(at, index, n)
            top = top + last * stride
            factor = str(stride) if len(stride.terms) == 1 else f"({stride})"
            last_text = (
                last_text if last_text.isdigit() or stride.constant == 1 else f"({last_text})"
            )
            factors.append(last_text if stride.constant == 1 else f"{last_text} * {_name(factor)}")
    if top == counted - 1:  # dense, and the whole offset at once
        return top, f"{' * '.join(map(str, shape))} - 1"
    return top, " + ".join(factors)


def _find_last(at: Poly, index: Poly, n: Poly) -> tuple[Poly, str]:
    """Return the last index of a part where the whole index ends its axis, and its text."""
    size, rest = str(n) if n.atom is not None else f"({n})", at - index
    if not rest.terms:
        return n - 1, f"{size} - 1"
    if index.constant is not None:  # the increment of a trip
        return index, str(index)
    if index.most is not None:  # lanes alone
        return make("min", n, index.most + 1) - 1, f"min({size}, {index.most + 1}) - 1"
    if rest.most is not None:  # where a tile begins
        block = rest.most + 1
        return make("floordiv", n - 1, block) * block, f"({size} - 1) // {block} * {block}"
    raise _NotDecided("an offset that is a part of an index")


def _name(text: str) -> str:
    """Format a symbol in Python's notation."""
    return re.sub(r"stride_(\w+?)(\d)", r"\1.stride(\2)", text)


def _list_steps(kernel: KernelUnderTest, domain: Domain) -> dict[Atom, int]:
    """Return the number that each size must be a multiple of."""
    sizes = domain.sizes.items()
    return {x.atom: kernel.contract.sizes(axis).step for axis, x in sizes if x.atom is not None}


def _list_values(
    domain: Domain, admitted: Cond, steps: Mapping[Atom, int], top: Poly
) -> Iterator[dict[Atom, int]]:
    """Yield values of all sizes and strides at which a largest offset has just reached 2**31.

    One symbol after another is as large as needed, and all others are small and dense; those that
    reach it exactly come first.
    """
    candidates: list[tuple[int, int, int, dict[Atom, int]]] = []
    named = sorted(walk(eq(top, 0)), key=str)
    rests = list(itertools.product(RESTS, repeat=sum(x not in named for x in steps)))
    for free, other, rest in itertools.product(named, OTHERS, rests):
        left = iter(rest)
        values_ = {x: other if x in named else max(x.least, next(left)) for x in steps}
        step = steps.get(free, 1)
        low, more = (evaluate(top, _fill(domain, steps, {**values_, free: n})) for n in (0, step))
        if more <= low:
            continue
        values = _fill(domain, steps, {**values_, free: -(-(WRAPS - low) // (more - low)) * step})
        value = int(evaluate(top, values))
        if value >= WRAPS and _may_be(admitted, values):
            candidates.append((value, max(values.values()), len(candidates), values))
    yield from (values for *_, values in sorted(candidates, key=lambda x: x[:3]))


def _may_be(admitted: Cond, values: Mapping[Atom, int]) -> bool:
    """Return whether values are admitted, or do not decide it."""
    try:
        return bool(evaluate(admitted, values))
    except KeyError:
        return True


def _fill(domain: Domain, steps: Mapping[Atom, int], fixed: Mapping[Atom, int]) -> dict[Atom, int]:
    """Return values of a domain's symbols: the fixed ones, small sizes, and dense strides."""
    values = {x: -(-fixed.get(x, x.least) // step) * step for x, step in steps.items()}
    values |= {x: n for x, n in fixed.items() if x not in steps}
    return domain.add_strides(values)

"""A traced result has the layout that torch gives it, for shapes and strides of all kinds."""

import itertools
import random

import pytest
import torch
from tests.reference.symbolic.symbolic_sizes import trace

from gemmproof.reference.symbolic.terms import TRUE, eq, evaluate, le, symbol
from gemmproof.reference.symbolic.terms import make as make_term
from gemmproof.reference.symbolic.tracing.symbolic_shapes import Known
from gemmproof.reference.symbolic.tracing.trace import Symbolic

pad = torch.nn.functional.pad
OPERATIONS = {
    "clone": lambda a, b: a.clone(),
    "a copy as another type": lambda a, b: a.to(torch.int32),
    "a number": lambda a, b: a * 3,
    "a number on the left": lambda a, b: 2 << a,
    "one operand": lambda a, b: -a,
    "two operands": lambda a, b: a + b,
    "a copy and an operand": lambda a, b: a.clone() | b,
    "a row": lambda a, b: a * b[0],
    "a row first": lambda a, b: b[0] * a,
    "a column": lambda a, b: a - b[:, :1],
    "a column and a row": lambda a, b: a[:, :1] - b[:1],
    "more axes": lambda a, b: a[:, :, None] + torch.arange(3),
    "an axis of its own": lambda a, b: a[:, None, :] * b[None],
    "axes at either end": lambda a, b: (a.unsqueeze(0), a.unsqueeze(-1), a[0].unsqueeze(1)),
    "padding": lambda a, b: pad(a, (0, 3, 1, 0)),
    "padding to whole pairs": lambda a, b: pad(a, (0, a.shape[1] % 2, 0, a.shape[0] % 2)),
    "padding with nothing": lambda a, b: pad(a, (0, 0)),
    "a part": lambda a, b: pad(a, (-1, 0, 0, -1)),
    "a part of more": lambda a, b: pad(a, (-1, 2)),
    "a view": lambda a, b: pad(a, (0, 1)).view(-(-a.shape[0] // 1), 1, a.shape[1] + 1),
    "a flat view": lambda a, b: pad(a, (0, 1)).view(a.shape[0] * (a.shape[1] + 1)),
    "a stack": lambda a, b: torch.stack([a, b]),
    "a stack along the last": lambda a, b: torch.stack([a, b], -1),
    "one after another": lambda a, b: ((a.to(torch.int64) * 2).t() & 7).to(torch.int16),
}  # fmt: skip
NAMES = ("M", "N", "a0", "a1", "b0", "b1")
SYMBOLS = {name: symbol(f"layout {name}", is_natural=True) for name in NAMES}


def operands():
    """Two matrices of one shape."""
    M, N, *steps = SYMBOLS.values()
    pairs = (steps[:2], steps[2:])
    given = zip(("a", "b"), pairs, strict=True)
    return {name: Symbolic(torch.int16, (M, N), tuple(pair)) for name, pair in given}


def draw(rng):
    """A shape and strides: dense ones, in either order, and others."""
    M, N = (rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(2))
    values = [M, N]
    for _ in range(2):
        other = rng.randint(0, 5), rng.randint(0, 5)
        dense = (N, 1), (1, M), (max(N, 1), 1)
        values += rng.choice((*dense, (2 * N, 2), (1, 1), (2, 2), (0, 1), (1, 0), (0, 0), other))
    return dict(zip(NAMES, values, strict=True))


def hint_of(values):
    return {SYMBOLS[x].atom: n for x, n in values.items()}


def make(values):
    shape = values["M"], values["N"]
    buffers = [torch.ones(100, dtype=torch.int16) for _ in range(2)]
    return [
        buffers[i].as_strided(shape, (values[f"{x}0"], values[f"{x}1"])) for i, x in enumerate("ab")
    ]


def describe(call):
    """The layouts of the results, or that it raises."""
    try:
        results = call()
    except (RuntimeError, IndexError):
        return "raises"
    results = results if isinstance(results, tuple) else (results,)
    return [(tuple(x.shape), x.stride(), str(x.dtype)) for x in results]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_is_laid_out_as_torch_does(name):
    rng, operation = random.Random(name), OPERATIONS[name]
    for _ in range(15):
        values = draw(rng)
        hint = hint_of(values)
        (path,) = trace(operation, TRUE, given=operands(), hint=hint, most_paths=1).paths
        expected = describe(lambda: operation(*make(values)))  # noqa: B023
        assert evaluate(path.condition, hint)
        if expected == "raises":
            assert path.failed
            continue
        assert path.failed is None, path.failed
        at = lambda terms: tuple(int(evaluate(x, hint)) for x in terms)  # noqa: B023, E731
        layouts = [(at(x.shape), at(x.strides)) for x in path.results]
        assert layouts == [(shape, strides) for shape, strides, _ in expected], values


@pytest.mark.parametrize(
    "name", ["clone", "a number", "two operands", "a row", "padding to whole pairs"]
)
def test_each_layout_is_a_path(name):
    rng, operation = random.Random(name), OPERATIONS[name]
    traced = trace(operation, TRUE, given=operands(), hint=hint_of(draw(rng)), most_paths=40)
    assert len(traced.paths) > 1
    for _ in range(40):
        values = draw(rng)
        hint = hint_of(values)
        matches = [path for path in traced.paths if evaluate(path.condition, hint)]
        if not matches:
            assert any(evaluate(x.condition, hint) for x in traced.unvisited)
            continue
        (path,) = matches
        if path.failed:
            assert describe(lambda: operation(*make(values))) == "raises"  # noqa: B023
            continue
        at = lambda terms: tuple(int(evaluate(x, hint)) for x in terms)  # noqa: B023, E731
        layouts = [(at(x.shape), at(x.strides)) for x in path.results]
        assert layouts == [x[:2] for x in describe(lambda: operation(*make(values)))], values  # noqa: B023


def test_what_is_known_holds():
    """Conclusions from conditions on small numbers agree with every number that fits."""
    rng, x, y = random.Random(7), symbol("known x", is_natural=True), symbol("known y")
    decided = 0
    for _ in range(300):
        inner = x * rng.randint(-2, 3) + y * rng.randint(-1, 2) + rng.randint(-4, 4)
        terms = [x, y, inner, make_term("floordiv", inner, 4), make_term("mod", inner, 3) + x]
        terms += [make_term("max", x, rng.randint(0, 3)), make_term("min", y, x)]
        draw_cond = lambda: rng.choice((le, eq, lambda s, t: ~eq(s, t)))(  # noqa: E731
            rng.choice(terms) * rng.randint(1, 3),  # noqa: B023
            rng.randint(-4, 6),
        )
        facts, asked = [draw_cond(), draw_cond()], draw_cond() | (draw_cond() & draw_cond())
        known, queried = Known(*facts), rng.choice(terms)
        answer, left, settled = known.implies(asked), known.reduce(asked), known.settle(queried)
        decided += answer is not None
        for i, j in itertools.product(range(9), range(-6, 7)):
            at = {x.atom: i, y.atom: j}
            if all(evaluate(fact, at) for fact in facts):
                assert answer in (None, bool(evaluate(asked, at)))
                assert bool(evaluate(left, at)) == bool(evaluate(asked, at))
                assert evaluate(settled, at) == evaluate(queried, at)
    assert decided > 20

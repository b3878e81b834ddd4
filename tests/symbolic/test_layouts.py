"""How a traced result is laid out is how torch lays it out, for shapes and strides of all kinds."""

from __future__ import annotations

import random

import pytest
import torch
from symbolic_sizes import trace

from gemmproof.reference.symbolic.terms import TRUE, evaluate, symbol
from gemmproof.reference.symbolic.wrapper import Symbolic

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
    found = [M, N]
    for _ in range(2):
        other = rng.randint(0, 5), rng.randint(0, 5)
        dense = (N, 1), (1, M), (max(N, 1), 1)
        found += rng.choice((*dense, (2 * N, 2), (1, 1), (2, 2), (0, 1), (1, 0), (0, 0), other))
    return dict(zip(NAMES, found, strict=True))


def make(values):
    shape = values["M"], values["N"]
    room = [torch.ones(100, dtype=torch.int16) for _ in range(2)]
    return [
        room[i].as_strided(shape, (values[f"{x}0"], values[f"{x}1"])) for i, x in enumerate("ab")
    ]


def describe(call):
    """The layouts of the results, or that it raises."""
    try:
        made = call()
    except (RuntimeError, IndexError):
        return "raises"
    made = made if isinstance(made, tuple) else (made,)
    return [(tuple(x.shape), x.stride(), str(x.dtype)) for x in made]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_is_laid_out_as_torch_does(name):
    rng, operation = random.Random(name), OPERATIONS[name]
    for _ in range(15):
        values = draw(rng)
        hint = {SYMBOLS[x].atom: n for x, n in values.items()}
        (path,) = trace(operation, TRUE, given=operands(), hint=hint, most_paths=1).paths
        wanted = describe(lambda: operation(*make(values)))  # noqa: B023
        assert evaluate(path.condition, hint)
        if wanted == "raises":
            assert path.failed
            continue
        assert path.failed is None, path.failed
        at = lambda terms: tuple(int(evaluate(x, hint)) for x in terms)  # noqa: B023, E731
        found = [(at(x.shape), at(x.strides)) for x in path.results]
        assert found == [(shape, strides) for shape, strides, _ in wanted], values

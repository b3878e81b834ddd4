"""Programs that share blocks: stacked products have the bits of the programs' own products."""

from __future__ import annotations

import numpy as np
import pytest

from gemmproof.reference.dot import dot_model
from gemmproof.reference.simulator.ops.dots import Shared, product
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir import F32

M, N, K = 3, 5, 16


def make_shared(n: int, of: np.ndarray, shape: tuple[int, int], seed: int) -> Shared:
    """Blocks of ordinary values, and in the last one Inf, NaN, zeros of both signs, subnormals."""
    blocks = np.random.default_rng(seed).standard_normal((n, *shape)).astype(np.float16)
    for i, x in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**-24, 65504.0)):
        blocks[-1].reshape(-1)[3 * i] = x
    return Shared(blocks, of)


def pairs(kind: str, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks of a and of b of each program."""
    at = np.arange(rows * columns)
    if kind == "rows":
        return at // columns, at % columns
    if kind == "columns":
        return at % rows, at // rows
    at = np.random.default_rng(7).permutation(at)
    return at // columns, at % columns


@pytest.mark.parametrize("target", [None, "sm_90"])
@pytest.mark.parametrize("with_acc", [False, True])
@pytest.mark.parametrize("kind", ["rows", "columns", "shuffled"])
def test_stacked_products_have_the_bits_of_single_ones(
    kind: str, with_acc: bool, target: str | None
) -> None:
    """In a grid walked by rows, by columns or in any order, with an accumulator or from zero."""
    of_a, of_b = pairs(kind, 4, 3)
    a, b = make_shared(4, of_a, (M, K), 1), make_shared(3, of_b, (K, N), 2)
    acc = np.random.default_rng(3).standard_normal((12, M, N)).astype(np.float32)
    model = dot_model(target, "fp16")
    lazy = product(model, a, b, Value(acc, F32) if with_acc else None, F32)
    assert lazy is not None
    expected = model.dot(a.blocks[of_a], b.blocks[of_b], acc if with_acc else None)
    assert np.array_equal(lazy.data.view(np.uint32), expected.view(np.uint32))
    c, d = make_shared(4, of_a, (M, K), 4), make_shared(3, of_b, (K, N), 5)
    longer = product(model, c, d, product(model, a, b, None, F32), F32)
    assert longer is not None
    first = model.dot(a.blocks[of_a], b.blocks[of_b], None)
    expected = model.dot(c.blocks[of_a], d.blocks[of_b], first)
    assert np.array_equal(longer.data.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        ([0, 0, 1, 1, 2], [0, 1, 0, 1, 0]),  # the last pair belongs to no program
        ([0, 0, 1, 1], [0, 1, 0, 1]),  # a block of a that no program has
        ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 0]),  # a pair twice
    ],
)
def test_other_programs_are_multiplied_one_by_one(of_a: list[int], of_b: list[int]) -> None:
    """If the pairs are no full grid there is nothing to stack."""
    a = make_shared(3, np.array(of_a), (M, K), 1)
    b = make_shared(2, np.array(of_b), (K, N), 2)
    assert product(dot_model(None, "fp16"), a, b, None, F32) is None

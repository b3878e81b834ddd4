"""The memory of an evaluation: that of the operands and results, not of gathered elements."""

import tracemalloc

import numpy as np
from tests.reference.spec.spec_ways import floats

from gemmproof.reference.spec import Rules, evaluate


def test_gathered_expert_matrices_are_not_copied():
    rng, M, K, N, E = np.random.default_rng(0), 300, 300, 300, 8
    a = rng.standard_normal((M, K)).astype(np.float16)
    w = rng.standard_normal((E, N, K)).astype(np.float16)
    ids = rng.integers(0, E, M).astype(np.int32)
    given = {"a": (a, "fp16"), "w": (w, "fp16"), "ids": (ids, "int32")}

    def spec(a, w, ids):
        return (a[:, None, :] @ w[ids].mT)[:, 0]

    tracemalloc.start()
    (c,) = evaluate(spec, given, Rules("sm_90"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < M * K * N * 8  # less than one array of all gathered matrices
    true = np.stack([w[ids[m]].astype(float) @ a[m].astype(float) for m in range(M)])
    assert (np.abs(c.value - true) <= c.bound * 2.0**-20).all()


def test_a_product_of_every_choice_and_k_is_not_held_at_once():
    rng, M, T, N, K, E = np.random.default_rng(1), 60, 2, 70, 64, 8
    a, b = (floats(rng, "fp16", *shape) for shape in ((M, K), (E, N, K)))
    ids = rng.integers(0, E, (M, T)).astype(np.int32)
    given = {"a": (a, "fp16"), "b": (b, "fp16"), "ids": (ids, "int32")}
    tracemalloc.start()
    (c,) = evaluate(lambda a, b, ids: (a[:, None, None, :] * b[ids]).sum(-1), given, Rules())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # every SpecArray has six arrays, and a product makes more
    assert peak < 2 * M * T * N * K * 8
    assert c.shape == (M, T, N)


def test_gathered_matrices_are_arrays_like_others():
    w = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    ids = np.array([2, -3, 2], np.int32)
    given = {"w": (w, "fp32"), "ids": (ids, "int32")}
    for spec in (
        lambda w, ids: w[ids] * 2 + 1, lambda w, ids: 1 + w[ids] + w[ids],
        lambda w, ids: np.multiply(w[ids], 2) + 1, lambda w, ids: (w + w)[ids] - -1,
    ):  # fmt: skip
        (c,) = evaluate(spec, given, Rules())
        assert np.array_equal(c.value, w[ids] * 2 + 1)
        assert c.exact.all()
    (c,) = evaluate(lambda w, ids: w[ids].sum(0)[:, :1], given, Rules())
    assert np.array_equal(c.value, w[ids].sum(0)[:, :1])


def test_an_evaluation_of_512_512_4096(benchmark):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((512, 4096), (4096, 512)))
    s = rng.uniform(1, 2, 512).astype(np.float32)
    given = {"a": (a, "fp16"), "b": (b, "fp16"), "s": (s, "fp32")}
    (c,) = benchmark(evaluate, lambda a, b, s: (a @ b) * s[:, None] * s + s, given, Rules("sm_90"))
    assert c.known.all()

"""GEMV, batches, groups, experts, LoRA, split-K: as specs, as kernels compute them, and wrongly."""

from itertools import pairwise

import numpy as np
from tests.reference.spec.spec_ways import dot, floats, judge, scales

F = np.float32
M, N, K = 9, 7, 256


def test_gemv_by_dot_and_by_sum():
    rng = np.random.default_rng(6)
    given = {"a": floats(rng, "fp16", M, K), "b": floats(rng, "fp16", K)}
    right = [
        lambda a, b: dot(a, b[:, None])[:, 0],
        lambda a, b: (a.astype(F) * b.astype(F)).sum(-1),
        lambda a, b: sum((dot(a[:, k::4], b[k::4, None], -1) for k in range(4)), F(0))[:, 0],
    ]
    for spec in (
        lambda a, b: (a @ b[:, None])[:, 0],
        lambda a, b: (a * b).sum(-1),
        lambda a, b: a @ b,
        lambda a, b: b @ a.T,
    ):
        judge(spec, given, right, [lambda a, b: dot(a[:, 1:], b[1:, None])[:, 0]])  # fmt: skip


def test_a_vector_times_a_vector_is_a_number():
    rng = np.random.default_rng(8)
    given = {"a": floats(rng, "fp16", K), "b": floats(rng, "fp16", K)}
    right = [lambda a, b: dot(a[None], b[:, None])[0, 0]]
    judge(lambda a, b: a @ b, given, right, [lambda a, b: dot(a[None, 1:], b[1:, None])[0, 0]])


def test_bmm_with_a_shared_operand():
    rng = np.random.default_rng(7)
    given = {"a": floats(rng, "bf16", 3, M, K), "b": floats(rng, "bf16", K, N)}
    judge(lambda a, b: a @ b, given,
          [dot, lambda a, b: dot(a.reshape(-1, K), b, -1).reshape(3, M, N)],
          [lambda a, b: dot(a[[1, 2, 0]], b)])  # fmt: skip


def test_grouped_with_an_empty_group_and_lora():
    rng = np.random.default_rng(8)
    ends = (0, 4, 4, M)
    given = {"a": floats(rng, "fp16", M, K), "w": floats(rng, "fp16", 3, K, N)}

    def grouped(a, w):
        return np.concatenate([a[i:j] @ w[g] for g, (i, j) in enumerate(pairwise(ends))])

    def ways(a, w, step=1, shift=0):
        groups = enumerate(pairwise(ends))
        return np.concatenate([dot(a[i:j], w[g - shift], step) for g, (i, j) in groups])

    judge(grouped, given, [ways, lambda a, w: ways(a, w, -1)], [lambda a, w: ways(a, w, 1, 1)])
    given = {
        "x": given["a"],
        "w": given["w"][0],
        "a": floats(rng, "fp16", K, 16),
        "b": floats(rng, "fp16", 16, N),
    }
    judge(lambda x, w, a, b: x @ w + 0.5 * ((x @ a).may_round("fp16") @ b), given,
          [lambda x, w, a, b: dot(x, w) + F(0.5) * dot(dot(x, a), b),
           lambda x, w, a, b: dot(x, w, -1) + F(0.5) * dot(dot(x, a, -1).astype(np.float16), b),
           lambda x, w, a, b: dot(np.concatenate([dot(x, a) * F(0.5), x.astype(F)], 1),
                                  np.concatenate([b, w]))],
          [lambda x, w, a, b: dot(x, w) + dot(dot(x, a), b)])  # fmt: skip


def test_experts_by_id_with_padding():
    rng, E = np.random.default_rng(9), 4
    ids = np.sort(rng.integers(0, E, 13)).astype(np.int32)
    token = rng.integers(0, M, 13).astype(np.int32)
    valid = rng.integers(0, 2, 13).astype(np.int8)
    given = {"a": floats(rng, "bf16", M, K), "w": floats(rng, "bf16", E, K, N), "ids": ids,
             "token": token, "valid": valid, "p": scales(rng, 13)}  # fmt: skip

    def gathered(a, w, ids, token, valid, p):
        rows = (a[token][:, None, :] @ w[ids])[:, 0] * p[:, None]
        return np.where(valid[:, None] == 1, rows, 0)

    def masked(a, w, ids, token, valid, p):
        rows = sum(np.where((ids == e)[:, None], a[token] @ w[e], 0) for e in range(E))
        return np.where(valid[:, None] == 1, rows * p[:, None], 0)

    def way(a, w, ids, token, valid, p, step=1, shift=0):
        rows = [
            dot(a[t][None], w[(i + shift) % E], step)[0] for t, i in zip(token, ids, strict=True)
        ]
        return np.where(valid[:, None], np.stack(rows) * p[:, None], F(0))

    for spec in (gathered, masked):
        judge(spec, given, [way, lambda **x: way(**x, step=-1)], [lambda **x: way(**x, shift=1)])


def test_split_k_into_a_workspace_of_any_number_of_slices():
    rng = np.random.default_rng(10)
    given = {"a": floats(rng, "fp16", M, K), "b": floats(rng, "fp16", K, N)}

    def slices(a, b, S):
        return sum((dot(a[:, s::S], b[s::S], -1) for s in reversed(range(S))), F(0))

    judge(lambda a, b: a @ b, given, [lambda S=S, **x: slices(S=S, **x) for S in (1, 2, 3, 16)],
          [lambda a, b: slices(a[:, :-1], b[:-1], 2)])  # fmt: skip

"""The writers of a result, element by element, through each operation that moves elements."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from tests.corpora.tiled import plain

from gemmproof.reference.simulator import host_work, run

A, B = torch.arange(24.0).view(6, 4).half(), torch.arange(32.0).view(4, 8).half()
ROWS = torch.tensor([5, 0, 3, 1, 2, 4])
TO = torch.arange(48).view(6, 8) % 6

# from a tensor x of (6, 8), of which some elements are a product of torch, to another one; they
# move marks as they move numbers
MOVES = {
    "clone": lambda x: x.clone(),
    "cast": lambda x: x.to(torch.float32),
    "cast to the same": lambda x: x.to(x.dtype, copy=True),
    "transposed copy": lambda x: x.t().contiguous(),
    "reshaped": lambda x: x.t().reshape(4, 12),
    "a view of parts": lambda x: x[1:5, ::2],
    "expanded": lambda x: x[:, :1].expand(6, 3).contiguous(),
    "cat": lambda x: torch.cat([x, torch.zeros_like(x)], 1),
    "cat into out": lambda x: torch.cat([x, x], out=x.new_empty(12, 8)),
    "stack": lambda x: torch.stack([torch.zeros_like(x), x]),
    "rows selected": lambda x: x.index_select(0, ROWS),
    "rows indexed": lambda x: x[ROWS],
    "elements gathered": lambda x: x.gather(0, TO),
    "taken": lambda x: torch.take(x, TO),
    "selected by a condition": lambda x: torch.where(TO > 2, x, torch.zeros_like(x)),
    "filled where a condition holds": lambda x: x.masked_fill(TO > 2, 0),
    "rows put": lambda x: x.new_zeros(6, 8).index_put_((ROWS,), x),
    "rows copied": lambda x: x.new_zeros(6, 8).index_copy_(0, ROWS, x),
    "scattered": lambda x: x.new_zeros(6, 8).scatter_(0, TO, x),
    "zeros scattered": lambda x: x.clone().scatter_(0, TO[:1], 0.0),
    "assigned to a slice": lambda x: assign(x.new_zeros(9, 8), x),
    "padded": lambda x: torch.nn.functional.pad(x, (1, 2, 0, 3)),
    "repeated": lambda x: x.repeat(2, 1),
    "repeated in place": lambda x: x.repeat_interleave(2, dim=0),
    "flipped": lambda x: x.flip(0, 1),
    "rolled": lambda x: x.roll(3, 1),
    "the lower triangle": lambda x: x.tril(),
    "unbound and stacked": lambda x: torch.stack(x.unbind(1)),
    "zeroed in part": lambda x: assign(x.clone(), torch.zeros(2, 8)),
    "filled with a number": lambda x: x.index_fill(0, ROWS[:2], 0.0),
    "embedded": lambda x: torch.nn.functional.embedding(ROWS, x),
    "split": lambda x: torch.hstack(x.split(3, dim=1)),
    "swapped through out": lambda x: torch.index_select(x, 0, ROWS, out=x.new_empty(6, 8)),
}


def assign(target, x):
    target[: len(x)] = x
    return target


def make_partial(a, b):
    """Return the kernel's result with a part that torch computes."""
    c = plain(a, b)
    c[1:4, 2:7] = (a @ b)[1:4, 2:7]
    return c


@pytest.mark.parametrize("name", MOVES)
def test_marks_move_as_elements_do(name):
    ones = torch.zeros(6, 8)
    ones[1:4, 2:7] = 1
    expected = MOVES[name](ones).numpy() != 0
    call = run(lambda a, b: MOVES[name](make_partial(a, b)), A, B)
    work = call.host_work
    hit = np.zeros(expected.shape, np.bool_) if work == [] else work[0].hit
    assert torch.equal(call.result, MOVES[name](A @ B))  # which marks leave as it is
    assert hit.tolist() == expected.tolist()
    assert {(x.kind, x.operation) for x in work} <= {("product", "mm")}


def test_a_graph_that_ran_again_leaves_the_writers_unknown():
    def replay(a, b):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c = plain(a, b)
        graph.replay()
        return c

    assert run(replay, A, B).host_work is None


def test_too_many_operations_leave_the_writers_unknown(monkeypatch):
    def several(a, b):
        return (plain(a, b) * 2).relu().abs()

    assert len(run(several, A, B).host_work) == 3
    monkeypatch.setattr(host_work, "_MOST_WRITERS", 7)
    assert run(several, A, B).host_work is None


def test_parts_of_a_large_result_have_unknown_writers(monkeypatch):
    monkeypatch.setattr(host_work, "MOST_MARKED", 6 * 8 * 2 - 1)
    assert run(make_partial, A, B).host_work is None
    (work,) = run(lambda a, b: plain(a, b).copy_(a @ b), A, B).host_work
    assert work.operation == "mm"
    assert run(lambda a, b: a @ b, A[:, :0], B[:0]).host_work is not None


def test_a_result_of_an_operator_that_is_no_copy_has_one_writer():
    def pad(a, b):
        return torch.nn.functional.pad(make_partial(a, b), (1, 1), mode="replicate")

    assert run(pad, A, B).host_work[0].hit.all()


def test_an_operator_that_takes_no_bytes_leaves_the_writers_unknown(monkeypatch):
    monkeypatch.setattr(host_work, "_COPIES", re.compile("copy|replication_pad1d|lerp"))
    assert run(lambda a, b: torch.lerp(make_partial(a, b), a @ b, 0.5), A, B).host_work is None


def test_a_wrapper_may_read_addresses():
    def aligned(a, b):
        c = a.new_empty(6, 8)
        if any(x.data_ptr() % 2 for x in (a, b, c)) or c.untyped_storage().nbytes() < 96:
            raise ValueError("not aligned")
        return plain(a, b, c=c)

    assert run(aligned, A, B).host_work == []


def test_a_sampled_call_has_no_writers():
    assert run(plain, A, B, sampled=True).host_work is None


def test_the_writers_of_each_of_several_results_are_known():
    def pair(a, b):
        c = plain(a, b)
        return c, (a @ b).sum(1)

    (work,) = run(pair, A, B, results=("c", "sums")).host_work
    assert (work.result, work.operation, work.hit.shape) == ("sums", "mm", (6,))


def test_old_memory_in_a_part_of_a_result():
    kept = torch.ones(6, 8)

    def refresh_in_part(a, b):
        plain(a[:4], b, c=kept[:4])
        return kept

    (work,) = run(refresh_in_part, A, B).host_work
    assert work.kind == "earlier"
    assert work.hit.nonzero()[0].tolist() == [4] * 8 + [5] * 8

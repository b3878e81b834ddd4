"""A path is compared with calls of its wrapper with plain integers."""

from dataclasses import replace

import pytest
import torch
from tests.corpora.tiled import launch, plain, plain_kernel
from tests.reference.symbolic import traced_wrappers as wrappers
from tests.reference.symbolic.symbolic_sizes import K, M, N, operands, trace

from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.symbolic.terms import every, le, term
from gemmproof.reference.symbolic.tracing.replay import find_difference
from gemmproof.reference.symbolic.tracing.trace import NotKnown

SOME = every(le(1, n) for n in (M, N, K))


def compare(wrapper, path, config=0, **sizes):
    """Return how a call at a path's sizes, or at others, differs from it."""
    axes = {"M": M.atom, "N": N.atom, "K": K.atom}
    values = {**path.hints, **{axes[name]: n for name, n in sizes.items()}}
    call = lambda tensors: wrapper(*tensors.values())  # noqa: E731
    difference = find_difference(call, operands(), path, values, None, config)
    return None if difference is None else difference.text


def launched(wrapper, **options):
    return next(p for p in trace(wrapper, SOME, **options).paths if p.launches)


RIGHT = (
    plain,
    wrappers.split_k,
    wrappers.by_heuristics,
    wrappers.tuned,
    wrappers.tuned_twice,
    wrappers.tuned_once_for_two_launches,
    wrappers.persistent,
    wrappers.asks_types,
    wrappers.by_function,
    wrappers.described,
)


@pytest.mark.parametrize("wrapper", RIGHT, ids=lambda x: getattr(x, "__name__", "plain"))
def test_every_path_of_a_wrapper_is_that_of_its_calls(wrapper):
    traced = trace(wrapper, SOME)
    compared = [compare(wrapper, p) for p in traced.paths if not p.failed or p.failed.raised]
    assert compared
    assert set(compared) == {None}


@pytest.mark.parametrize("config", range(4))
def test_a_path_is_compared_in_its_configuration(config):
    path = launched(wrappers.tuned_twice).take(config)
    assert compare(wrappers.tuned_twice, path, config) is None
    assert compare(wrappers.tuned_twice, path, (config + 1) % 4) is not None


def takes_the_size_of_the_run(a, b):
    rows = getattr(a.shape[0], "node", None)
    rows = a.shape[0] if rows is None else rows.hint
    return launch(plain_kernel, a, b, grid=(rows, 1), BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)


def asks_for_the_class(a, b):
    return plain(a, b, BLOCK_M=16 if a.shape[0].__class__ is int else 32)


def catches_what_a_stand_in_lacks(a, b):
    try:
        rows = 16 + 0 * int.bit_length(a.shape[0])
    except TypeError:
        rows = 32
    return plain(a, b, BLOCK_M=rows)


def test_a_size_that_became_a_number_differs_at_other_sizes(texts):
    path = launched(takes_the_size_of_the_run)
    assert compare(takes_the_size_of_the_run, path) is None
    texts("a size that became a number", compare(takes_the_size_of_the_run, path, M=6017))


@pytest.mark.parametrize("wrapper", [asks_for_the_class, catches_what_a_stand_in_lacks])
def test_what_differs_between_a_symbol_and_an_integer_is_a_difference(wrapper):
    assert "the grid" in compare(wrapper, launched(wrapper))


@pytest.mark.parametrize(
    "wrapper", [takes_the_size_of_the_run, asks_for_the_class, catches_what_a_stand_in_lacks]
)
def test_nothing_is_proved_of_a_path_that_differs(wrapper):
    contract = Contract(("fp16",), layouts="contiguous")
    proofs = prove(KernelUnderTest("k", wrapper, contract))
    for proof in proofs.verdicts:
        assert proof.status == "not decided"
        assert "its paths are not those of its calls" in proof.why
    assert len(proofs.defects) == 1


def test_a_wrapper_that_keeps_a_tensor_is_no_defect_of_the_tracer():
    kept = []

    def wrapper(a, b):
        kept.append(a)
        return plain(kept[0], b)

    path = launched(wrapper)
    call = lambda tensors: wrapper(*tensors.values())  # noqa: E731
    difference = find_difference(call, operands(), path, path.hints, None)
    assert "kept from an earlier call" in difference.text
    assert not difference.is_ours


def tamper(path, **fields):
    first = replace(path.launches[0], **fields)
    return replace(path, launches=[first, *path.launches[1:]])


def test_each_part_of_a_launch_is_compared():
    path = launched(plain)
    (launch,) = path.launches
    others = list(launch.arguments)
    others[0], others[1] = others[1], others[0]  # b for a
    longer = [term(7) if x == M else x for x in launch.arguments]
    view = replace(launch.arguments[0], offset=term(1))
    wrong = {
        "the grid": tamper(path, grid=(*launch.grid[:2], term(2))),
        "a_ptr": tamper(path, arguments=others),
        "M": tamper(path, arguments=longer),
        "the offset of": tamper(path, arguments=[view, *launch.arguments[1:]]),
        "BLOCK_K": tamper(path, constants={**launch.constants, "BLOCK_K": 64}),
        "num_warps": tamper(path, options={**launch.options, "num_warps": 8}),
        "launches": replace(path, launches=[launch, launch]),
        "results": replace(path, results=[]),
    }
    for part, tampered in wrong.items():
        assert part in compare(plain, tampered)
    assert compare(plain, path) is None


def test_memories_are_compared_by_their_use():
    def twice(a, b):
        w = [torch.empty((16, 16), device=a.device, dtype=a.dtype) for _ in range(2)]
        return launch(plain_kernel, a, b, c=w[0], BLOCK_M=16, BLOCK_N=16, BLOCK_K=16), w[1]

    def swapped(a, b):
        c, w = twice(a, b)
        return w, c

    path = launched(twice)
    assert compare(twice, path) is None
    assert "memory" in compare(swapped, path)


def test_a_refusal_is_one_only_if_a_call_refuses_too():
    refusing = [p for p in trace(wrappers.refuses).paths if p.failed]
    assert [compare(wrappers.refuses, p) for p in refusing] == [None] * len(refusing)
    refused = replace(refusing[0], hints=launched(wrappers.refuses).hints)
    assert "returns" in compare(plain, refused)
    path = launched(plain)
    failed = replace(path, failed=NotKnown("raises ValueError", raised=True))
    assert "returns" in compare(plain, failed)
    assert "raises ValueError" in compare(_raises, path)


def _raises(a, b):
    raise ValueError("never")

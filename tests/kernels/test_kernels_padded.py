"""matmul_padded: what is copied, what is not, and that the product is right in every format."""

import warnings
from importlib import import_module
from unittest.mock import patch

import pytest
import torch
from tests.kernels.calls import integers, multiply, run_quietly

from gemmproof.kernels import gemm, matmul_padded
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE
from gemmproof.kernels.descriptors import find_product
from gemmproof.reference.simulator import run

PADDED = "gemmproof.kernels.matmul_padded"


@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
@pytest.mark.parametrize("is_t", [False, True])
def test_odd_rows_of_every_format_are_multiplied_by_descriptors(dtype, is_t):
    a, b = integers(35, 45, dtype, is_t), integers(45, 27, dtype, is_t)
    options = {"input_precision": "tf32" if dtype == torch.float32 else "ieee"}
    seen = run_quietly(matmul_padded, a, b, **options)
    assert [launch.kernel for launch in seen.launches] == ["matmul_tma_kernel"]
    assert torch.equal(seen.result.double(), multiply(a, b, DEFAULT_OUT_DTYPE[dtype]))


@pytest.mark.parametrize(
    ("a", "b", "out", "copied"),
    [
        (integers(32, 40), integers(40, 24), None, ""),
        (integers(32, 40, is_t=True), integers(40, 24, is_t=True), None, ""),
        (integers(32, 44)[:, 1:41], integers(40, 24), None, "a"),
        (integers(32, 40), integers(40, 48)[:, ::2], None, "b"),
        (integers(32, 40), integers(40, 23), None, "bc"),
        (integers(32, 40), integers(40, 24), torch.zeros(32, 48).half()[:, ::2], "c"),
        (integers(32, 40), integers(40, 24)[:, :20], torch.zeros(32, 24).half()[:, :20], "c"),
        (integers(32, 40, torch.int8, is_t=True), integers(40, 32, torch.int8), None, "ab"),
        (integers(32, 48, torch.int8), integers(48, 32, torch.int8, is_t=True), None, ""),
    ],
)
def test_what_descriptors_address_is_not_copied(a, b, out, copied):
    with patch(f"{PADDED}.launch_described") as called:
        result = matmul_padded(a, b, out=out)
    given_a, given_b, given_c, *_ = called.call_args.args
    assert (given_a is not a) == ("a" in copied)
    assert (given_b is not b) == ("b" in copied)
    assert (given_c is not result) == ("c" in copied)
    assert torch.equal(given_a, a)
    assert torch.equal(given_b, b)
    assert find_product(given_a, given_b, given_c, has_spare_rows="c" in copied) is not None


def test_the_gaps_of_out_are_left_alone():
    memory = torch.full((14, 27), 7.0).half()
    a, b = integers(7, 19), integers(19, 9)
    run_quietly(matmul_padded, a, b, out=memory[::2, ::3])
    assert torch.equal(memory[::2, ::3].double(), a.double() @ b.double())
    memory[::2, ::3] = 7
    assert (memory == 7).all()


def test_copies_are_no_part_of_a_graph_of_gradients():
    """As of `matmul`, which is not differentiable: out may be a leaf."""
    a, b = integers(9, 17).requires_grad_(), integers(17, 11).requires_grad_()
    out = torch.zeros(9, 11, dtype=torch.float16, requires_grad=True)
    with patch(f"{PADDED}.launch_described") as called:
        assert matmul_padded(a, b, out=out) is out
    assert not any(x.requires_grad for x in called.call_args.args[:2])


@pytest.mark.parametrize("M", [40, 41])
def test_without_a_copy_engine_nothing_is_copied_and_nothing_said(M):
    """gemm does not choose it there either."""
    a, b = integers(M, 40), integers(40, M)
    with (
        warnings.catch_warnings(),
        patch.object(import_module("gemmproof.kernels.gemm"), "LARGE", 8),
        patch.object(import_module("gemmproof.kernels.gemm"), "FEW_ROWS", 8),
        patch(f"{PADDED}.copy_to_rows", side_effect=AssertionError),
    ):
        warnings.simplefilter("error")
        for function, kernel in (
            (matmul_padded, "matmul_persistent_kernel"),
            (gemm, "matmul_swizzled_kernel"),
        ):
            seen = run(function, a, b, target="sm_80")
            assert [launch.kernel for launch in seen.launches] == [kernel]
            assert torch.equal(seen.result.double(), a.double() @ b.double())


@pytest.mark.parametrize("K", [0, 5])
def test_an_empty_k_and_full_precision_go_to_pointers_without_a_copy(K):
    a, b = torch.ones(3, K), torch.ones(K, 5)
    with (
        patch(f"{PADDED}.launch_described") as other,
        patch(f"{PADDED}.launch_persistent") as called,
    ):
        matmul_padded(a, b)
    assert (other.call_count, called.call_args.args[0] is a) == (0, True)

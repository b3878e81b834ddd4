"""scripts/measure.py huge, on the CPU at small sizes: any product but the exact one is reported."""

import pytest
import torch
from scripts.gpu import huge
from scripts.gpu.evidence import CONFTEST

from gemmproof.reference.formats import OPERANDS
from gemmproof.reference.simulator import run
from gemmproof.worker.load_kernel import load_registered

CPU = torch.device("cpu")


def right(a, b):
    return (a.double() @ b.double()).to(torch.float16)


def wrong_in_the_last_element(a, b):
    c = right(a, b)
    c[-1, -1] += 1
    return c


def unwritten(a, b):
    c = right(a, b)
    c[3:5] = torch.nan
    return c


@pytest.mark.parametrize("format", ["fp16", "fp8e4m3"])
@pytest.mark.parametrize("at_once", [2**30, 8 * 40 * 5])
def test_the_exact_product_has_every_bit(format, at_once, monkeypatch):
    monkeypatch.setattr(huge, "BYTES_AT_ONCE", at_once)
    row = huge.compare_problem(right, format, (33, 17, 40), CPU)
    assert (row["expected"], row["equal"], row["found"]) == (True, 33 * 17, "")


@pytest.mark.parametrize(
    ("launch", "wrong", "where"),
    [(wrong_in_the_last_element, 1, "c[32, 16]: got "), (unwritten, 34, "c[3, 0]: got nan")],
)
def test_another_product_is_told_with_its_place(launch, wrong, where, monkeypatch):
    monkeypatch.setattr(huge, "BYTES_AT_ONCE", 8 * 40 * 5)
    row = huge.compare_problem(launch, "fp16", (33, 17, 40), CPU)
    assert (row["expected"], row["equal"]) == (False, 33 * 17 - wrong)
    assert row["found"].startswith(where)


@pytest.mark.parametrize("name", huge.PRODUCTS)
def test_what_computes_more_than_a_product_is_called_so_that_it_gives_one(name):
    dtype = torch.float8_e4m3fn if "scaled" in name else torch.float16
    a, b = (torch.randint(-2, 3, (rows, 144), dtype=torch.int8) for rows in (16, 24))
    seen = run(huge.PRODUCTS[name], a.to(dtype), b.to(dtype).T)
    assert torch.equal(seen.result.double(), a.double() @ b.double().T)


def test_each_of_them_is_registered():
    tasks = [(kernel.name, fmt) for kernel in load_registered(CONFTEST) for fmt in OPERANDS]
    assert {*huge.PRODUCTS} <= {name.removesuffix(f"_{fmt}") for name, fmt in tasks}


def test_what_raises_is_a_row(monkeypatch):
    def broken(a, b):
        raise RuntimeError(error)

    from gemmproof import KernelUnderTest

    error = "CUDA error: illegal address"
    monkeypatch.setattr(huge, "find_kernel", lambda name: KernelUnderTest(name, broken))
    monkeypatch.setattr(huge, "SIZES", {2: {"a": (3, 3, 3)}})
    monkeypatch.setattr(huge.torch, "device", lambda name: CPU)
    row = huge.compare_kernel("broken", "fp16")
    assert not row["expected"]
    assert f"RuntimeError: {error}" in huge.describe(row)


@pytest.mark.parametrize(("width", "problems"), huge.SIZES.items())
def test_the_sizes_pass_what_they_are_to_pass(width, problems):
    for large, (M, N, K) in problems.items():
        passed = {"a": M * K * width > 2**32, "b": K * N * width > 2**32, "c": M * N > 2**31}
        assert [name for name, is_huge in passed.items() if is_huge] == [large]
        assert N * width % 16 == K * width % 16 == 0
        assert K % 128 != 0 != M % 128

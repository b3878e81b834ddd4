"""Results whose sizes, strides or memory change in place, before and after the launch."""

import pytest
import torch
from tests.corpora.tiled import launch, plain_kernel

from gemmproof.engine.kernel_check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove


def compute(a, b, c):
    return launch(plain_kernel, a, b, c=c, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16)


def empty(a, *shape):
    return torch.empty(shape, device=a.device, dtype=a.dtype)


def resized(a, b):
    return compute(a, b, empty(a, 0).resize_(a.shape[0], b.shape[1]))


def resized_as(a, b):
    return compute(a, b, empty(a, 0).resize_as_(empty(a, a.shape[0], b.shape[1])))


def set_to_another(a, b):
    return compute(a, b, empty(a, 0).set_(empty(a, a.shape[0], b.shape[1])))


def with_the_data_of_another(a, b):
    c = empty(a, 0)
    c.data = empty(a, a.shape[0], b.shape[1])
    return compute(a, b, c)


def transposed(a, b):
    return compute(a, b, empty(a, b.shape[1], a.shape[0]).t_())


def strided(a, b):
    M, N = a.shape[0], b.shape[1]
    return compute(a, b, empty(a, M * N).as_strided_((M, N), (N, 1)))


def with_an_axis_of_1(a, b):
    return compute(a, b, empty(a, a.shape[0], b.shape[1]).unsqueeze_(0).squeeze_(0))


RIGHT = (
    resized,
    resized_as,
    set_to_another,
    with_the_data_of_another,
    transposed,
    strided,
    with_an_axis_of_1,
)


def resized_afterwards(a, b):
    """Elements that nothing stores, and others that torch may move."""
    c = empty(a, 1, 1)
    compute(a[:1], b[:, :1], c)
    return c.resize_(a.shape[0], b.shape[1])


def transposed_afterwards(a, b):
    return compute(a, b, empty(a, a.shape[0], b.shape[1])).t_()


def set_to_an_empty_one(a, b):
    c = empty(a, a.shape[0], b.shape[1])
    compute(a, b, c)
    return c.set_(empty(a, a.shape[0], b.shape[1]))


WRONG = (resized_afterwards, transposed_afterwards, set_to_an_empty_one)


def make(wrapper):
    return KernelUnderTest("k", wrapper, Contract(("fp16",)))


@pytest.mark.parametrize("wrapper", RIGHT)
def test_what_changes_before_the_launch_is_followed(wrapper):
    assert {proof.status for proof in prove(make(wrapper)).verdicts} == {"proved"}


@pytest.mark.parametrize("wrapper", WRONG)
def test_what_changes_afterwards_is_not_proved(wrapper):
    assert prove(make(wrapper)).find("exact_on_integers").status != "proved"


def test_the_simulation_runs_both():
    assert check(make(resized), max_examples=4).verdict == "pass"
    assert check(make(resized_afterwards), max_examples=4).verdict == "fail"

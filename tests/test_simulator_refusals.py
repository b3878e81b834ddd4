"""Operations the simulator does not know, and what Triton refuses to compile."""

import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import launched

from gemmproof.reference.simulator import (
    KernelError,
    Unsupported,
    execution,
    run,
)


@triton.jit
def double(x):
    return 2 * x


@triton.jit
def assembly(o):
    i = tl.arange(0, 16)
    x = tl.inline_asm_elementwise("vabsdiff $0, $1, $2;", "=r,r,r", [i, i], tl.int32, True, 1)
    tl.store(o + i, x)


@triton.jit
def mapped(o):
    i = tl.arange(0, 16)
    tl.store(o + i, tl.map_elementwise(double, i))


@pytest.mark.parametrize(
    ("kernel", "word"), [(assembly, "vabsdiff"), (mapped, "tl.map_elementwise")]
)
def test_an_unknown_operation_is_named_with_its_line(kernel, word):
    """Never skipped: the operation, the file and the line, in one line."""
    with pytest.raises(Unsupported) as raised:
        run(launched(kernel, (1,)), torch.zeros(1))
    text = str(raised.value)
    assert word in text
    assert "test_simulator_refusals.py:" in text
    assert "\n" not in text
    lines = open(__file__).read().splitlines()  # noqa: SIM115
    assert word in lines[raised.value.where.line - 1]


@triton.jit
def bad_word(o):
    tl.store(o, tl.nonsense(3))


@triton.jit
def bad_method(o):
    tl.store(o, tl.arange(0, 16).nonsense())


@triton.jit
def bad_shapes(o):
    tl.store(o + tl.arange(0, 16), tl.arange(0, 32))


@triton.jit
def bad_branch(o):
    if tl.arange(0, 16) > 3:
        tl.store(o, 1)


@triton.jit
def bad_store(o):
    tl.store(tl.arange(0, 16), 1)


@triton.jit
def bad_mask(o):
    tl.store(o + tl.arange(0, 16), 1, mask=tl.arange(0, 16))


@triton.jit
def bad_index(o):
    tl.store(o, tl.arange(0, 16)[3])


@triton.jit
def bad_shape(o):
    n = tl.program_id(0) + 16
    tl.store(o + tl.arange(0, n), 1)


@triton.jit
def bad_float(o):
    tl.store(o, (tl.arange(0, 16) * 1.5) // 2)


@triton.jit
def bad_bits(o):
    tl.store(o + tl.arange(0, 16), (tl.arange(0, 16) * 1.5) & 1)


@triton.jit
def bad_other(o):
    tl.store(o, tl.load(o, other=0))


@triton.jit
def bad_name(o):
    tl.store(o, undefined_name)  # noqa: F821


@triton.jit
def bad_static(o, S: tl.constexpr = 24):
    tl.static_assert(S == 16, "S must be 16")


@triton.jit
def bad_reshape(o):
    tl.store(o + tl.arange(0, 16), tl.reshape(tl.arange(0, 32), (16,)))


@triton.jit
def bad_pointers(o):
    tl.store(o + o, 1)


@triton.jit
def bad_scalar_store(o):
    tl.store(o, tl.arange(0, 16))


REFUSED = [
    bad_word, bad_method, bad_shapes, bad_branch, bad_store, bad_mask, bad_index, bad_shape,
    bad_float, bad_bits, bad_other, bad_name, bad_static, bad_reshape, bad_pointers,
    bad_scalar_store,
]  # fmt: skip


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda k: k.fn.__name__)
def test_what_triton_refuses_is_the_kernels_error(kernel):
    """One line that begins with the kernel's file and line."""
    with pytest.raises(KernelError) as raised:
        run(launched(kernel, (1,)), torch.zeros(1))
    text = str(raised.value)
    assert text.startswith("test_simulator_refusals.py:")
    assert "\n" not in text
    first = kernel.fn.__code__.co_firstlineno
    assert first < raised.value.where.line <= first + 4
    assert raised.value.where.function == kernel.fn.__name__


def test_what_a_wrapper_raises_comes_through():
    class Own(Exception):
        pass

    def wrapper(x):
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        run(wrapper, torch.zeros(1))
    assert not execution.running()

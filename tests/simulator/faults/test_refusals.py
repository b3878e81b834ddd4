"""Operations the simulator does not know, and what Triton refuses to compile."""

import linecache

import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import launched
from simulator_masks import line

from gemmproof.reference.simulator import (
    CompileError,
    KernelError,
    Unsupported,
    context,
    run,
)


@triton.jit
def assembly(o):
    i = tl.arange(0, 16)
    x = tl.inline_asm_elementwise("vabsdiff $0, $1, $2;", "=r,r,r", [i, i], tl.int32, True, 1)
    tl.store(o + i, x)


def test_an_unknown_operation_is_named_with_its_line():
    """Never skipped: the operation, the file and the line, in one line."""
    with pytest.raises(Unsupported) as raised:
        run(launched(assembly, (1,)), torch.zeros(1))
    text = str(raised.value)
    assert "vabsdiff" in text
    assert text.startswith(f"test_refusals.py:{line(assembly, 'vabsdiff')}: ")
    assert "\n" not in text


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


@triton.jit
def bad_loop(o, n):
    x = n
    while True:
        x = x + 1
    tl.store(o, x)


@triton.jit
def bad_break(o):
    for i in range(4):
        if i > 2:
            break
    tl.store(o, 1)


@triton.jit
def bad_carried(o):
    x = 0
    for _ in range(4):
        x += 1.5
    tl.store(o, x)


@triton.jit
def bad_member(o, S: tl.constexpr = 3):
    if S in (1, 3):
        tl.store(o, 1)


@triton.jit
def bad_half(o):
    tl.store(o + tl.arange(0, 16), tl.exp(tl.zeros((16,), tl.float16)))


# kernel, what stands on the line at fault and nowhere else, Triton's words
REFUSED = [
    (bad_word, "nonsense", "has no attribute 'nonsense'"),
    (bad_method, "nonsense", "has no attribute 'nonsense'"),
    (bad_shapes, "tl.store", "incompatible dimensions at index 0: 16 and 32"),
    (bad_branch, "> 3", "more than one value is ambiguous"),
    (bad_store, "tl.store", "Unsupported ptr type"),
    (bad_mask, "mask=", "Mask must have boolean scalar type"),
    (bad_index, "[3]", "unsupported tensor index"),
    (bad_shape, "tl.arange", "must be of type tl.constexpr"),
    (bad_float, "// 2", "unexpected type fp32"),
    (bad_bits, "& 1", "invalid operands"),
    (bad_other, "other=0", "cannot be provided without `mask`"),
    (bad_name, "undefined_name", "undefined_name is not defined"),
    (bad_static, "tl.static_assert", "S must be 16"),
    (bad_reshape, "tl.reshape", "cannot change total number of elements"),
    (bad_pointers, "o + o", "cannot add pointers together"),
    (bad_scalar_store, "tl.store", "Value argument cannot be block type"),
    (bad_loop, "while True", "constexpr"),
    (bad_break, "break\n", "Break"),
    (bad_carried, "for _ in range", "Loop-carried variable x"),
    (bad_member, "in (1, 3)", "In"),
    (bad_half, "tl.exp", "Expected dtype ['fp32', 'fp64'] but got fp16"),
]


@pytest.mark.parametrize(
    ("kernel", "text", "words"), REFUSED, ids=[kernel.fn.__name__ for kernel, _, _ in REFUSED]
)
def test_what_triton_refuses_is_the_kernels_error(kernel, text, words):
    """One line: the user's file and line, the kernel, Triton's own words."""
    args = (3,) if kernel is bad_loop else ()
    with pytest.raises(CompileError) as raised:
        run(launched(kernel, (1,), *args), torch.zeros(1))
    message = str(raised.value)
    number, name = line(kernel, text), kernel.fn.__name__
    begin = f"test_refusals.py:{number}: Triton refuses to compile {name}: "
    assert message.startswith(begin)
    assert words in message.removeprefix(begin)
    assert "\n" not in message
    assert raised.value.where.function == name
    assert issubclass(CompileError, KernelError), "a finding, not a limit of the simulator"


@triton.jit
def helper_at_fault(x):
    return x + tl.arange(0, 32)


def callers():
    """Kernels that reach the helper by a global, as a constant and in a closure."""
    helper = helper_at_fault

    @triton.jit
    def by_global(o):
        i = tl.arange(0, 16)
        tl.store(o + i, helper_at_fault(i))

    @triton.jit
    def by_constant(o, F: tl.constexpr = helper_at_fault):
        i = tl.arange(0, 16)
        tl.store(o + i, F(i))

    @triton.jit
    def by_closure(o):
        i = tl.arange(0, 16)
        tl.store(o + i, helper(i))

    return [by_global, by_constant, by_closure]


@pytest.mark.parametrize("kernel", callers(), ids=lambda k: k.fn.__name__)
def test_the_line_at_fault_may_be_a_helpers(kernel):
    """The innermost line of the user's own functions; the kernel is the one that was launched."""
    with pytest.raises(CompileError, match=f"compile {kernel.fn.__name__}: ") as raised:
        run(launched(kernel, (1,)), torch.zeros(1))
    assert raised.value.where.line == line(helper_at_fault, "tl.arange")


def test_a_refused_kernel_prints_nothing(capfd):
    """Triton prints a whole module that fails its own check; a report must not hold it."""

    @triton.jit
    def unchecked(a, c, T: tl.constexpr):
        at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        x = tl.load(a + at)
        tl.store(c + at, tl.dot(x, x, tl.zeros((16, 16), T)).to(tl.float32))

    def wrapper(a):
        c = torch.zeros(16, 16)
        unchecked[(1,)](a, c, tl.float16)
        return c

    with pytest.raises(CompileError):
        run(wrapper, torch.zeros((16, 16), dtype=torch.bfloat16))
    assert capfd.readouterr().out == ""


def test_what_a_wrapper_raises_comes_through():
    class Own(Exception):
        pass

    def wrapper(x):
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        run(wrapper, torch.zeros(1))
    with pytest.raises(Unsupported, match="outside of a kernel launch"):
        context.current()


@triton.jit
def summing_to_another_type(c, S: tl.constexpr):
    ones = tl.full((S, S), 1.0, tl.bfloat16)
    total = tl.dot(ones, ones, tl.zeros((S, S), tl.int32))
    tl.store(c + tl.arange(0, S), tl.sum(total, 0))


def test_what_only_the_verifier_refuses_has_its_words_and_line(capfd):
    def wrapper(a):
        c = torch.empty(16, device=a.device)
        summing_to_another_type[(1,)](c, 16)
        return c

    with pytest.raises(CompileError, match="operand type mismatch") as raised:
        run(wrapper, torch.zeros(1))
    assert "tl.sum(total, 0)" in linecache.getline(raised.value.where.file, raised.value.where.line)

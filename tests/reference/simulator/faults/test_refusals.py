"""Operations the simulator does not know, and kernels that Triton refuses to compile."""

import linecache
import runpy
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher
from tests.support.simulator_masks import line

from gemmproof.reference.simulation import CompileError, KernelError, Unsupported
from gemmproof.reference.simulator import run, session


@triton.jit
def assembly(o):
    i = tl.arange(0, 16)
    x = tl.inline_asm_elementwise("vabsdiff $0, $1, $2;", "=r,r,r", [i, i], tl.int32, True, 1)
    tl.store(o + i, x)


def test_an_unknown_operation_is_named_with_its_line():
    """Never skipped: the operation, the file and the line, in one line."""
    with pytest.raises(Unsupported) as raised:
        run(launcher(assembly, (1,)))
    text = str(raised.value)
    assert "vabsdiff" in text
    assert text.startswith(f"test_refusals.py:{line(assembly, 'vabsdiff')}: ")
    assert "\n" not in text


# a kernel's body, its line at fault marked unless it is the first -> Triton's words
REFUSED = {
    "tl.store(o, tl.nonsense(3))": "has no attribute 'nonsense'",
    "tl.store(o, tl.arange(0, 16).nonsense())": "has no attribute 'nonsense'",
    "tl.store(o + tl.arange(0, 8), tl.arange(0, 4))": "incompatible dimensions at index 0: 8 and 4",
    "if tl.arange(0, 16) > 3:\n    tl.store(o, 1)": "more than one value is ambiguous",
    "tl.store(tl.arange(0, 16), 1)": "Unsupported ptr type",
    "tl.store(o + tl.arange(0, 8), 1, mask=tl.arange(0, 8))": "Mask must have boolean scalar type",
    "tl.store(o, tl.arange(0, 16)[3])": "unsupported tensor index",
    "n += 16\ntl.store(o + tl.arange(0, n), 1)  # here": "must be of type tl.constexpr",
    "tl.store(o, (tl.arange(0, 16) * 1.5) // 2)": "unexpected type fp32",
    "tl.store(o + tl.arange(0, 16), (tl.arange(0, 16) * 1.5) & 1)": "invalid operands",
    "tl.store(o, tl.load(o, other=0))": "cannot be provided without `mask`",
    "tl.store(o, undefined_name)": "undefined_name is not defined",
    'tl.static_assert(S == 16, "S must be 16")': "S must be 16",
    "tl.store(o, tl.reshape(tl.arange(0, 8), (4,)))": "cannot change total number of elements",
    "tl.store(o + o, 1)": "cannot add pointers together",
    "tl.store(o, tl.arange(0, 16))": "Value argument cannot be block type",
    "x = n\nwhile True:  # here\n    x = x + 1\ntl.store(o, x)": "constexpr",
    "for i in range(4):\n    if i > 2:\n        break  # here\ntl.store(o, 1)": "Break",
    "x = 0\nfor _ in range(4):  # here\n    x += 1.5\ntl.store(o, x)": "Loop-carried variable x",
    "if S in (1, 3):\n    tl.store(o, 1)": "In",
    "tl.store(o, tl.exp(n.to(tl.float16)))": "Expected dtype ['fp32', 'fp64'] but got fp16",
}
HEAD = """import triton
import triton.language as tl

@triton.jit
def bad(o, n, S: tl.constexpr):
"""


@pytest.mark.parametrize("body", REFUSED)
def test_what_triton_refuses_is_the_kernels_error(body, tmp_path):
    """One line: the user's file and line, the kernel, Triton's own message."""
    marked = [i for i, text in enumerate(body.splitlines()) if text.endswith("# here")]
    number = len(HEAD.splitlines()) + 1 + sum(marked)
    file = tmp_path / "refused.py"
    file.write_text(HEAD + textwrap.indent(body, "    "))
    with pytest.raises(CompileError) as raised:
        run(launcher(runpy.run_path(file)["bad"], (1,), 3, 24))
    message = str(raised.value)
    begin = f"refused.py:{number}: Triton refuses to compile bad: "
    assert message.startswith(begin)
    assert REFUSED[body] in message.removeprefix(begin)
    assert "\n" not in message
    assert raised.value.where.function == "bad"
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
    """The innermost line of the user's own functions; the kernel is the one that was launcher."""
    with pytest.raises(CompileError, match=f"compile {kernel.fn.__name__}: ") as raised:
        run(launcher(kernel, (1,)))
    assert raised.value.where.line == line(helper_at_fault, "tl.arange")


def test_a_refused_kernel_prints_nothing(capfd):
    """Triton prints a whole module that fails its own check; a report must not hold it."""

    @triton.jit
    def unchecked(a, c, T: tl.constexpr):
        at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        x = tl.load(a + at)
        tl.store(c + at, tl.dot(x, x, tl.zeros((16, 16), T)).to(tl.float32))

    x = torch.zeros((16, 16), dtype=torch.bfloat16)
    with pytest.raises(CompileError):
        run(launcher(unchecked, (1,), tl.float16, shape=x.shape, dtype=torch.float32), x)
    assert capfd.readouterr().out == ""


def test_what_a_wrapper_raises_comes_through():
    class Own(Exception):
        pass

    def wrapper(x):
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        run(wrapper, torch.zeros(1))
    with pytest.raises(Unsupported, match="outside of a kernel launch"):
        session.current()


@triton.jit
def packed_by_three(c, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(c + i, tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [i], tl.int32, True, 3))


def test_what_only_the_verifier_refuses_has_its_words_and_line(capfd):
    with pytest.raises(CompileError, match="a multiple of the op's packed_element") as raised:
        run(launcher(packed_by_three, (1,), 16, shape=(16,)))
    assert "inline_asm_elementwise" in linecache.getline(
        raised.value.where.file, raised.value.where.line
    )

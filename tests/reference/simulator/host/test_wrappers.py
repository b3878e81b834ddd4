"""Wrappers as people write them: their work around a right kernel is no fault."""

import pytest
import torch
import triton
from tests.support.simulator_masks import into, kernel

from gemmproof.reference.simulator import run

S = 16


def out(a, b, dtype=torch.float32, make=torch.empty):
    return make((a.shape[0], b.shape[1]), device=a.device, dtype=dtype)


def plain(a, b):
    return into(a, b, out(a, b))


def padded(a, b):
    """Whole tiles are stored, a view is returned."""
    M, N = a.shape[0], b.shape[1]
    c = torch.empty((triton.cdiv(M, S) * S, triton.cdiv(N, S) * S), device=a.device)
    return into(a, b, c, C="-")[:M, :N]


def padded_operands(a, b):
    a = torch.nn.functional.pad(a, (0, -a.shape[1] % S))
    b = torch.nn.functional.pad(b, (0, 0, 0, -b.shape[0] % S))
    return plain(a, b)


def onto_filled_later(a, b):
    c = out(a, b)
    c.zero_()
    return into(a, b, c, ONTO=True)


def halves_of_the_columns(a, b):
    c, half = out(a, b), b.shape[1] // 2
    into(a, b[:, :half], c[:, :half])
    into(a, b[:, half:], c[:, half:])
    return c


def halves_of_k(a, b):
    c, half = out(a, b), b.shape[0] // 2
    into(a[:, :half], b[:half], c)
    into(a[:, half:], b[half:], c, ONTO=True)
    return c


def flat_output(a, b):
    c = torch.empty(a.shape[0] * b.shape[1], device=a.device)
    into(a, b, c.view(a.shape[0], b.shape[1]))
    return c.view(a.shape[0], b.shape[1])


def strided_output(a, b):
    c = torch.empty_strided((a.shape[0], b.shape[1]), (1, a.shape[0] + 3), device=a.device)
    return into(a, b, c)


def copied_output(a, b):
    c = out(a, b, torch.float64)
    c.copy_(plain(a, b))
    return c


def added_output(a, b):
    c = out(a, b)
    torch.add(plain(a, b), 0.0, out=c)
    return c


class Module(torch.nn.Module):
    def forward(self, a, b):
        return plain(a, b)


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return plain(a, b)

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return plain(gradient, b.T), plain(a.T, gradient)


@torch.library.custom_op("gemmproof_tests::plain", mutates_args=())
def registered(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return plain(a, b)


def careful(a, b):
    """The checks that production wrappers begin with."""
    assert a.is_cuda
    assert b.is_cuda
    assert a.device == b.device
    assert a.device.type == "cuda"
    properties = torch.cuda.get_device_properties(a.device)
    assert properties.multi_processor_count > 1
    assert torch.cuda.get_device_capability(a.device) == (9, 0)
    assert triton.runtime.driver.active.get_current_target().backend == "cuda"
    assert a.shape[1] == b.shape[0], "incompatible dimensions"
    assert torch.cuda.is_available()
    with torch.cuda.device(a.device):
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device.type, dtype=torch.float32)
        into(a, b, c)
    torch.cuda.synchronize()
    return c


def asks_the_compiled_kernel(a, b):
    c = out(a, b)
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, S), triton.cdiv(N, S))
    strides = (*a.stride(), *b.stride(), *c.stride())
    early = kernel.warmup(a, b, c, M, N, K, *strides, "MK", "KN", "MN", S=S, grid=grid)
    early._init_handles()
    assert early.n_regs >= 0
    assert early.metadata.shared >= 0
    kernel[grid](a, b, c, M, N, K, *strides, "MK", "KN", "MN", S=S)
    return c


cache = {}


def cached_workspace(a, b):
    """A buffer that outlives the call, as split-K wrappers keep."""
    key = (a.shape, b.shape)
    if key not in cache:
        cache[key] = torch.empty((64, 64), device=a.device)
    into(a, b, cache[key][: a.shape[0], : b.shape[1]])
    return cache[key][: a.shape[0], : b.shape[1]].clone()


WRAPPERS = {
    **{f.__name__: f for f in (plain, padded, padded_operands, onto_filled_later, flat_output)},
    **{f.__name__: f for f in (halves_of_the_columns, halves_of_k, strided_output, copied_output)},
    **{f.__name__: f for f in (added_output, careful, asks_the_compiled_kernel, cached_workspace)},
    "padded_and_copied": lambda a, b: padded(a, b).contiguous(),
    "copied_operands": lambda a, b: plain(a.contiguous(), b.T.contiguous().T),
    "cast_operands": lambda a, b: plain(a.to(torch.bfloat16), b.to(dtype=torch.bfloat16)),
    "onto_zeros": lambda a, b: into(a, b, out(a, b, make=torch.zeros), ONTO=True),
    "transposed_problem": lambda a, b: into(b.T, a.T, out(b.T, a.T)).T,
    "cast_output": lambda a, b: plain(a, b).to(torch.float64),
    "bf16_output": lambda a, b: into(a, b, out(a, b, torch.bfloat16)),
    "module": Module(),
    "autograd": lambda a, b: Function.apply(a, b),
    "no_grad": torch.no_grad()(plain),
    "inference_mode": torch.inference_mode()(plain),
    "by_operator": lambda a, b: torch.ops.gemmproof_tests.plain(a, b),
    "registered": registered,
}


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize(("M", "N", "K"), [(37, 45, 29), (1, 2, 2), (16, 32, 16)], ids=str)
def test_a_right_wrapper(name, M, N, K):
    """The exact product and no fault, twice, whatever undefined memory holds."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-3, 4, (M, K), generator=generator).half()
    b = torch.randint(-3, 4, (K, N), generator=generator).half()
    for fill in ("nan", "large"):
        seen = run(WRAPPERS[name], a, b, fill=fill)
        assert seen.faults == []
        assert (seen.result.double() == a.double() @ b.double()).all()


def test_one_tensor_as_both_operands():
    """The same storage under two names, one of them transposed."""
    a = torch.randint(-3, 4, (37, 37)).half()
    seen = run(plain, a, a.T)
    assert seen.faults == []
    assert (seen.result.double() == a.double() @ a.double().T).all()


def onto_empty(a, b):
    return into(a, b, out(a, b), ONTO=True)


def half_stored(a, b):
    half = b.shape[1] // 2
    c = out(a, b)
    into(a, b[:, :half], c[:, :half])
    return c


def half_padded(a, b):
    """The view that is returned begins in rows that nothing stored."""
    c = torch.empty((a.shape[0] + 1, b.shape[1]), device=a.device)
    into(a, b, c[1:])
    return c[:-1]


@pytest.mark.parametrize(
    ("wrapper", "kind", "lanes"),
    [(onto_empty, "undefined_stored", 37 * 45), (half_stored, "never_stored", 37 * 23),
     (half_padded, "never_stored", 45)],
)  # fmt: skip
@pytest.mark.parametrize("fill", ["nan", "zero"])
def test_a_wrong_wrapper_around_a_right_kernel(wrapper, kind, lanes, fill):
    a, b = torch.ones((37, 29)).half(), torch.ones((29, 45)).half()
    (fault,) = run(wrapper, a, b, fill=fill).faults
    assert (fault.kind, fault.operand, fault.lanes) == (kind, "c", lanes)

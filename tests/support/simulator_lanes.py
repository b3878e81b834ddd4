"""Run one function on every lane of two arrays inside a kernel, and numbers to run it on."""

import linecache
from functools import cache
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run

# Triton's types, with torch's and numpy's type of an element
TORCH_OF = {
    tl.int1: torch.bool,
    tl.int8: torch.int8,
    tl.int16: torch.int16,
    tl.int32: torch.int32,
    tl.int64: torch.int64,
    tl.uint8: torch.uint8,
    tl.uint16: torch.uint16,
    tl.uint32: torch.uint32,
    tl.uint64: torch.uint64,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float32: torch.float32,
    tl.float64: torch.float64,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}


def _numpy_of(dtype):
    name = str(dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name, name))


NUMPY = {dtype.name: _numpy_of(kind) for dtype, kind in TORCH_OF.items()}
SIGNED = (tl.int8, tl.int16, tl.int32, tl.int64)
UNSIGNED = (tl.uint8, tl.uint16, tl.uint32, tl.uint64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (tl.float16, tl.bfloat16, tl.float32, tl.float64, tl.float8e4nv, tl.float8e5)
ALL = (tl.int1, *INTEGERS, *FLOATS)


def get_name(dtype):
    return dtype.name


def limits(dtype):
    bits = dtype.int_bitwidth
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype in SIGNED else (0, 2**bits - 1)


def wrap(x, dtype):
    """The Python integer x in the type's range, as two's complement hardware keeps it."""
    low, high = limits(dtype)
    return (x - low) % (high - low + 1) + low


def samples(dtype, seed=0, count=40):
    """Extremes and random integers of a type."""
    low, high = limits(dtype)
    rng = np.random.default_rng(seed)
    drawn = [int(x) for x in rng.integers(low, high, count, dtype=NUMPY[dtype.name], endpoint=True)]
    edge = [low, low + 1, -2, -1, 0, 1, 2, 3, 7, high // 2, high - 1, high]
    return [x for x in edge if low <= x <= high] + drawn


def tensor(values, dtype):
    """A list of numbers, or an array, as a torch tensor of a Triton type."""
    array = np.array(values, dtype=NUMPY[dtype.name])
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(TORCH_OF[dtype])


def array_of(x):
    """A torch tensor as numpy, also where numpy itself lacks the type."""
    return x.contiguous().view(torch.uint8).numpy().view(_numpy_of(x.dtype)).reshape(x.shape)


@cache
def expression(text, parameters="x, y", **names):
    """A jitted function of the parameters that returns `text`; `names` are its constants."""
    file = f"<expression {text} {names}>"
    source = f"def evaluate({parameters}):\n    return {text}\n"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"tl": tl, **{name: tl.constexpr(value) for name, value in names.items()}}
    exec(compile(source, file, "exec"), namespace)
    return triton.jit(namespace["evaluate"])


@triton.jit
def lanes_kernel(x_ptr, y_ptr, o_ptr, n, F: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=1.0)
    y = tl.load(y_ptr + i, mask=mask, other=1.0)
    tl.store(o_ptr + i, F(x, y), mask=mask)


def run_lanes(text, x, y, dtype, **names):
    """The run of an expression in x, y and `names` on all lanes, its result stored as `dtype`."""
    kernel_args = x.numel(), expression(text, **names), 4096
    grid = (triton.cdiv(x.numel(), 4096),)
    how = {"shape": x.shape, "dtype": TORCH_OF[dtype], "make": torch.empty}
    return run(launcher(lanes_kernel, grid, *kernel_args, **how), x, y)


def compute(text, x, y, dtype, **names):
    """As `run_lanes`, faultless, as a numpy array."""
    seen = run_lanes(text, x, y, dtype, **names)
    assert seen.faults == []
    return array_of(seen.result)


def pairs(a, b=None):
    """All pairs of two lists as two flat lists."""
    grid = list(product(a, a if b is None else b))
    return [p for p, _ in grid], [q for _, q in grid]


def every(dtype):
    """All bit patterns of an 8- or 16-bit type."""
    size = NUMPY[dtype.name].itemsize
    return np.arange(2 ** (8 * size), dtype=f"u{size}").view(NUMPY[dtype.name])


def finite_values(dtype):
    """The finite values of a narrow float type in order, as float64, without -0."""
    values = every(dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)] + 0.0)


def round_once(x, dtype, saturate):
    """Nearest even by comparing each float64 with the exact midpoint of its two neighbours."""
    values = finite_values(dtype)
    top = values[-1]
    beyond = 2 * top - values[-2]  # the next value if the exponent went on
    table = np.concatenate([[-beyond], values, [beyond]])
    index = np.clip(np.searchsorted(table, x, side="right") - 1, 0, len(table) - 2)
    low, high = table[index], table[index + 1]
    middle = (low + high) / 2
    low_even = _even(low, dtype, top)
    up = (x > middle) | ((x == middle) & ~low_even)
    near = np.where(up, high, low)
    near = np.where(x >= beyond, beyond, np.where(x <= -beyond, -beyond, near))
    limit = top if saturate else np.inf
    near = np.where(near > top, limit, np.where(near < -top, -limit, near))
    near = np.where(np.isinf(x), np.sign(x) * limit, near)
    return np.copysign(np.where(np.isnan(x), np.nan, near), x)


def _even(x, dtype, top):
    """True if the last bit of the value's encoding is 0; one step above the largest it flips."""
    inside = np.where(np.abs(x) > top, 0.0, x).astype(np.float32).astype(NUMPY[dtype.name])
    even = (inside.view(f"u{inside.itemsize}") & 1) == 0
    last = np.array([top], np.float32).astype(NUMPY[dtype.name])
    top_even = (last.view(f"u{last.itemsize}") & 1)[0] == 0
    return np.where(np.abs(x) > top, not top_even, even)


def same(got, expected):
    """Equal as numbers, signs of zero included, NaN equal to NaN."""
    got = got.astype(np.float64)
    equal = (got == expected) & (np.signbit(got) == np.signbit(expected))
    return equal | (np.isnan(got) & np.isnan(expected))


def cast(x, source, target, **how):
    """The lanes of the array x cast inside a kernel."""
    t = torch.from_numpy(x.view(f"u{x.itemsize}").copy()).view(TORCH_OF[source])
    arguments = "".join(f", {word}={word.upper()}" for word in how)
    names = {word.upper(): value for word, value in how.items()}
    return compute(f"x.to(TARGET{arguments})", t, t, target, TARGET=target, **names)


def launcher(kernel, grid, *args, shape=(64,), dtype=torch.int32, make=torch.zeros, **how):
    """A wrapper that launches `kernel` on its tensors, an output of this shape, then args."""

    def wrapper(*tensors):
        o = make(shape, dtype=dtype, device="cuda")
        kernel[grid](*tensors, o, *args, **how)
        return o

    return wrapper


def result_of(kernel, grid, *args, tensors=(), **how):
    """Return the output of a faultless launch, as numpy."""
    seen = run(launcher(kernel, grid, *args, **how), *tensors)
    assert seen.faults == []
    return seen.result.numpy()


FILLS = ("nan", "ones", "zero", "large")


def integers(*shape, dtype=torch.float16, seed=0):
    """Small integers, exact in every format and order of sums."""
    values = np.random.default_rng(seed + sum(shape)).integers(-3, 4, shape)
    return torch.from_numpy(values).to(dtype)


def assert_innocent(wrapper, *tensors, expected=None, **how):
    """No fault and the exact product, over every kind of dirty memory."""
    a, b = tensors[:2]
    if expected is None:
        expected = a.double() @ b.double()
    kept = [t.clone() for t in tensors]
    for fill in FILLS:
        seen = run(wrapper, *tensors, fill=fill, **how)
        assert seen.faults == []
        assert seen.launches
        assert (seen.result.double() == expected).all()
    for before, after in zip(kept, tensors, strict=True):
        assert torch.equal(before.float(), after.float())
    return seen


SIZES = [(1, 1, 1), (33, 17, 40), (64, 64, 64), (5, 70, 16), (50, 3, 100)]
sizes = pytest.mark.parametrize(("M", "N", "K"), SIZES, ids=str)


@triton.jit
def store_rows(o_ptr, blocks, N: tl.constexpr):
    """Store each block of a tuple, of N lanes or a scalar, as the next row of N elements."""
    for row in tl.static_range(len(blocks)):
        tl.store(o_ptr + row * N + tl.arange(0, N), blocks[row])


def empty_launcher(kernel, grid, *args, shape=(16,), dtype=torch.float32, **how):
    """As `launcher`, onto fp32 that nothing has defined."""
    return launcher(kernel, grid, *args, shape=shape, dtype=dtype, make=torch.empty, **how)

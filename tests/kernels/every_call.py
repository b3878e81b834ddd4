"""Calls of every kernel, and their launches on each generation of GPUs, to be compiled.

No signature is typed: a launch is that of a wrapper, for operands without contents.
"""

import warnings
from functools import cache, partial
from itertools import groupby

import torch
from tests.kernels.compiled import capture_launches

from gemmproof import kernels
from gemmproof.kernels import KERNELS
from gemmproof.reference.provenance import reserve

TARGETS = ("sm_80", "sm_90", "sm_100")
F16, BF16, F32, I8 = torch.float16, torch.bfloat16, torch.float32, torch.int8
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
#: Sizes of c, large enough for the widest tiles and for all multiprocessors, and of the sum.
SIZE, K = 2048, 1024
#: Addresses alone: nothing is read.
MEMORY = torch.frombuffer(reserve(2**40), dtype=torch.uint8)


def empty(*shape, dtype=F16, is_t=False):
    """A matrix of dense rows, or of dense columns."""
    x = torch.empty(shape[::-1] if is_t else shape, dtype=dtype, device="cuda")
    return x.T if is_t else x


def make_operands(dtype, a_is_t=False, b_is_t=True, size=SIZE):
    a, b = empty(size, K, dtype=dtype, is_t=a_is_t), empty(K, size, dtype=dtype, is_t=b_is_t)
    return a, b


def stretch(dtype, *shape):
    """Strides of 64 bits that nothing divides."""
    step = 2**31 + 1
    strides = (step + 2, step)[-len(shape) :]
    return MEMORY.view(dtype).as_strided(shape, strides)


def multiply(*operands, **options):
    """Plain products, of few rows too."""
    a, b = make_operands(*operands)
    for name in ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent"):
        KERNELS[name](a, b, **options)
    for rows in (16, 32, SIZE):
        kernels.matmul_splitk(a[:rows], b, **options)


def describe(*operands, **options):
    """Launch the kernels with descriptors; of few tiles too, which matmul_ws makes narrower."""
    a, b = make_operands(*operands)
    for name in ("matmul_tma", "matmul_padded", "matmul_streamk", "matmul_ws"):
        KERNELS[name](a, b, **options)
    KERNELS["matmul_ws"](*make_operands(*operands, size=SIZE // 2), **options)
    kernels.bmm(a.expand(2, -1, -1), b.expand(2, -1, -1), **options)


def share(*operands, **options):
    """matmul_streamk, whose stages depend on the layouts."""
    kernels.matmul_streamk(*make_operands(*operands), **options)


def multiply_groups(dtype):
    """As many groups as there may be, which take the most registers."""
    a, b = make_operands(dtype)
    offsets = torch.empty(1025, dtype=torch.int32, device="cuda")
    kernels.grouped_gemm(a, b.expand(1024, -1, -1), offsets)


def finish(dtype, activation, added=None, **options):
    """With a bias, and a residual where its format is given."""
    a, b = make_operands(dtype)
    bias = empty(SIZE, dtype=added or dtype)
    residual = None if added is None else empty(SIZE, SIZE, dtype=added)
    kernels.matmul_fused(a, b, bias, activation=activation, residual=residual, **options)
    KERNELS["matmul_ws"](a, b, bias=bias, activation=activation, **options)


def scale(dtype, out_dtype, **options):
    """By rows and columns, with a bias."""
    scales, bias = empty(SIZE, dtype=F32), empty(SIZE, dtype=BF16)
    kernels.matmul_scaled(*make_operands(dtype), scales, scales, bias, out_dtype, **options)


def scale_blocks(dtype, out_dtype):
    blocks = empty(SIZE, K // 128, dtype=F32), empty(K // 128, SIZE // 128, dtype=F32)
    kernels.matmul_block_scaled(*make_operands(dtype), *blocks, out_dtype)


def widen(group, has_zero):
    """Integer weights, for each number of rows that has a separate tile."""
    shape = (SIZE,) if group is None else (K // group, SIZE)
    scales, zero = empty(*shape), empty(*shape, dtype=I8) if has_zero else None
    b8, b4 = empty(K, SIZE, dtype=I8, is_t=True), empty(K // 4, SIZE, dtype=torch.int16, is_t=True)
    for rows in (16, 32, 64, 128):
        kernels.matmul_w8(empty(rows, K), b8, scales, zero, group=group)
        kernels.matmul_w4(empty(rows, K), b4, scales, zero, group=group)


def multiply_stretched():
    """Each kernel by pointers; sizes of 9 need a mask in every block."""
    a, b, scales = stretch(F16, 9, 9), stretch(F16, 9, 9), stretch(F32, 9)
    for name in ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent"):
        KERNELS[name](a, b)
    kernels.matmul_splitk(a, b)
    kernels.bmm(a[None], b[None])
    kernels.grouped_gemm(a, b[None], torch.empty(2, dtype=torch.int32, device="cuda"))
    kernels.matmul_fused(a, b, stretch(F16, 9), residual=stretch(F32, 9, 9))
    kernels.matmul_w8(a, stretch(I8, 9, 9), scales)
    kernels.matmul_w4(a, stretch(torch.int16, 32, 9), scales)
    kernels.matmul_scaled(stretch(I8, 9, 9), stretch(I8, 9, 9), scales, scales)
    small = stretch(E5M2, 9, 9)
    kernels.matmul_block_scaled(small, small, stretch(F32, 9, 1), stretch(F32, 1, 1))


def multiply_one():
    """Sizes and strides of 1 are constants."""
    scalar = empty(1, 1)
    for name in KERNELS:
        KERNELS[name](scalar, scalar)
    kernels.bmm(scalar[None], scalar[None])


#: Calls by the description of their operands.
CALLS = {
    "fp16": partial(multiply, F16),
    "fp16, b of dense rows": partial(multiply, F16, False, False),
    "fp16, described": partial(describe, F16),
    "fp16, described, b of dense rows": partial(describe, F16, False, False),
    "fp16, described, a of dense columns": partial(describe, F16, True, True),
    "fp16, both the other way": partial(share, F16, True, False),
    "fp16 to fp32": partial(describe, F16, out_dtype=F32),
    "fp16, groups": partial(multiply_groups, F16),
    "fp16, bias and SiLU": partial(finish, F16, "silu"),
    "fp16, bias, GELU and residual": partial(finish, F16, "gelu", F16),
    "fp16, all else of fp32": partial(finish, F16, "gelu_tanh", F32, out_dtype=F32),
    "weights, groups of 128": partial(widen, 128, True),
    "weights, groups of 64": partial(widen, 64, True),
    "weights, groups of 32": partial(widen, 32, True),
    "weights": partial(widen, None, False),
    "tf32": partial(multiply, F32, input_precision="tf32"),
    "tf32, described": partial(describe, F32, input_precision="tf32"),
    "tf32, b of dense rows": partial(share, F32, False, False, input_precision="tf32"),
    "tf32, a of dense columns": partial(share, F32, True, True, input_precision="tf32"),
    "tf32, both the other way": partial(share, F32, True, False, input_precision="tf32"),
    "fp8e4m3": partial(multiply, E4M3),
    "fp8e4m3, described": partial(describe, E4M3),
    "fp8e4m3, groups": partial(multiply_groups, E4M3),
    "fp8e4m3, scaled": partial(scale, E4M3, BF16),
    "fp8e4m3, scaled, to fp32": partial(scale, E4M3, F32),
    "fp8e5m2, scaled, summed fast": partial(scale, E5M2, BF16, fast_accum=True),
    "fp8e4m3, scaled by blocks": partial(scale_blocks, E4M3, BF16),
    "int8": partial(multiply, I8),
    "int8, described": partial(describe, I8),
    "int8, scaled": partial(scale, I8, BF16),
    "fp32": partial(multiply, F32),
    "fp32, batches": partial(describe, F32),
    "strides of 64 bits": multiply_stretched,
    "one element": multiply_one,
}
#: Excluded to save time; for sm_80, also features that Triton has since sm_89.
CASES = [
    (gpu, label)
    for gpu in TARGETS
    for label in CALLS
    if (label != "one element" or gpu == "sm_90") and (gpu != "sm_80" or "e4m3" not in label)
]


def list_calls(gpu, label):
    """The launches of a call, by descriptors where the GPU has them, and by pointers."""
    collected = []
    for has_engine in {gpu != "sm_80", False}:
        with capture_launches(gpu, has_engine) as launches, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that pointers are used
            CALLS[label]()
        collected += launches
    return sorted(collected, key=sort_key)


def sort_key(launch):
    """Return a sort key: of launches that `groupby` puts together, the last one fetches most."""
    return launch.kernel, launch.constants.get("PER_WORD", 0), launch.fetched


@cache
def list_launches(gpu):
    """Return the launches to compile, by their labels.

    A configuration of a kernel is compiled in the first call that uses it; of later calls, in the
    one that fetches most. fp32 in full precision is the one that fetches least: with others ptxas
    is busy for half a minute.
    """
    selected, keys, configurations = {}, set(), set()
    for label in (y for x, y in CASES if x == gpu):
        calls = list_calls(gpu, label)
        edge = 0 if label.startswith("fp32") else -1
        chosen = [list(some)[edge].key for _, some in groupby(calls, lambda x: sort_key(x)[:2])]
        selected[label] = []
        for launch in calls:
            is_new = launch.key not in keys
            if is_new and (launch.key in chosen or str(launch) not in configurations):
                selected[label].append(launch)
                keys.add(launch.key)
                configurations.add(str(launch))
    return selected

"""Products that fail in the way that their wrapper names: each is one run of the command."""

import ctypes
import resource
import subprocess
from functools import partial

import torch
import triton
import triton.language as tl


@triton.jit
def body(a, b, c, M, N, K, B: tl.constexpr, WAY: tl.constexpr, extra):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    if WAY == "endless":
        i = 1
        while i > 0:
            i = i * 3 % 7 + 1
        m += i * 0
    if WAY == "wide":
        m += tl.sum(tl.arange(0, 1048576)[:, None] + tl.arange(0, 16)).to(tl.int32) * 0
    if WAY == "unnamed":
        m += no_such_name  # noqa: F821 - on purpose
    if WAY == "assembly":
        m = tl.inline_asm_elementwise("frob $0, $1;", "=r,r", [m], tl.int32, is_pure=True, pack=1)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        x = k + tl.arange(0, B)
        left = tl.load(a + m[:, None] * K + x, (m[:, None] < M) & (x < K), 0.0)
        right = tl.load(b + x[:, None] * N + n, (x[:, None] < K) & (n < N), 0.0)
        acc += tl.dot(left, right)
    tl.store(c + m[:, None] * N + n, acc.to(c.dtype.element_ty), (m[:, None] < M) & (n < N))


SIZES = [triton.Config({"B": 16}), triton.Config({"B": 24}), triton.Config({"B": 32})]
tuned = triton.autotune(SIZES, key=["M"])(body)


def launch(a, b, way="", extra=0, grid=None, kernel=body, **sizes):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty((M, N))
    tiles = grid or (lambda o: (triton.cdiv(M, o["B"]), triton.cdiv(N, o["B"])))
    kernel[tiles](a, b, c, M, N, K, WAY=way, extra=extra, **sizes)  # the launch
    return c


right = partial(launch, B=16)
endless = partial(right, way="endless")
beyond = partial(right, grid=(1, 65536))
many = partial(right, grid=(10**9,))
wide = partial(right, way="wide")
unnamed = partial(right, way="unnamed")
assembly = partial(right, way="assembly")
dictionary = partial(right, extra={"x": 1})
imaginary = partial(right, extra=1j)
one_config = partial(launch, kernel=tuned)


def with_ttir(change, a, b):
    """Compute the product with the text of its TTIR changed before the simulator reads it."""
    from gemmproof.reference.simulator import launch as launched_kernel

    make_ttir = launched_kernel.make_ttir
    launched_kernel.make_ttir = lambda *args: change(make_ttir(*args))
    try:
        return right(a, b)
    finally:
        launched_kernel.make_ttir = make_ttir


def cut_short(a, b):
    return with_ttir(lambda text: text[: text.index(" tt.store ")], a, b)


def garbled(a, b):
    return with_ttir(lambda text: text.replace(" tt.store ", " tt.store %nothing, "), a, b)


def asks_driver(a, b):
    return right(a, b, extra=triton.runtime.driver.active.utils.sm_partition)


def asks_properties(a, b):
    return right(a, b, extra=torch.cuda.get_device_properties(0).l3_size)


def asks_figures(a, b):
    return right(a, b, extra=triton.runtime.driver.active.utils.get_device_properties(0)["l3"])


def compiled(a, b):
    c = a.new_empty((1, 1))
    return body[1, 1](a, b, c, 1, 1, 1, B=16, WAY="", extra=0)


def asks_compiled(a, b):
    return right(a, b, extra=compiled(a, b).n_barriers)


def needs_package(a, b):
    import no_such_package

    return no_such_package.matmul(a, b)


def needs_library(a, b):
    return ctypes.CDLL("libcudart.so.999").matmul(a, b)


def needs_tool(a, b):
    return right(a, b, extra=len(subprocess.run(["/not/here/nvidia-smi"], check=True).stdout))


def needs_operator(a, b):
    return right(a, b, extra=torch.max(a.to(torch.float8_e4m3fn)).item())


def needs_namespace(a, b):
    return torch.ops.no_such_library.matmul(a, b)


def other_option(a, b):
    return right(a, b, waves_per_eu=2)


def prefers_library(a, b):
    try:
        return ctypes.CDLL("libcudart.so.999").matmul(a, b)
    except OSError:
        return right(a, b)


def prefers_fields(a, b):
    properties = torch.cuda.get_device_properties(0)
    utilities = triton.runtime.driver.active.utils
    size = getattr(properties, "l3_size", 3) if not hasattr(utilities, "sm_partition") else 4
    return right(a, b, extra=size)


def hoards(a, b):
    torch.empty(1 << 50, dtype=torch.int8)
    return right(a, b)


def reserves(a, b):
    # as on a machine that limits memory
    resource.setrlimit(resource.RLIMIT_AS, (24 << 30, resource.RLIM_INFINITY))
    torch.empty(64 << 30, dtype=torch.int8)
    return right(a, b)

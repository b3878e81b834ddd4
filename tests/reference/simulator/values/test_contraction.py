"""Products that may become part of an fma: the report on them, compared with cubins."""

import linecache
import re
import subprocess

import pytest
import torch
import triton
import triton.language as tl
from tests.support.lanes import first_of_each
from triton.backends.compiler import GPUTarget

from gemmproof.reference.simulator import run


@triton.jit
def load(x_ptr, row: tl.constexpr):
    return tl.load(x_ptr + 256 * row + tl.arange(0, 256))


@triton.jit
def store(y_ptr, y):
    tl.store(y_ptr + tl.arange(0, 256), y)


@triton.jit
def multiply_add(a, b, c):
    return a * b + c


@triton.jit
def fma_with_one(a, b, c):
    return tl.fma(a * b, 1.0, c)


def kernel_of(name, text):
    """A kernel of that name, which stores an expression in the rows a, b, c and d of x."""
    rows = ", ".join(f"load(x_ptr, {row})" for row in range(4))
    source = f"def {name}(x_ptr, y_ptr, n):\n    a, b, c, d = {rows}\n    store(y_ptr, {text})\n"
    file, scope = f"<kernel {name}>", dict(globals())
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    return triton.jit(scope[name])


@triton.jit
def in_a_branch(x_ptr, y_ptr, n):
    x = load(x_ptr, 0)
    if n > 3:
        x *= load(x_ptr, 1)
    store(y_ptr, x + load(x_ptr, 2))


@triton.jit
def carried(x_ptr, y_ptr, n):
    x, y = load(x_ptr, 0), load(x_ptr, 1)
    for _ in range(n):
        y = y + x
        x = x * load(x_ptr, 2)
    store(y_ptr, y)


@triton.jit
def apart_in_a_loop(x_ptr, y_ptr, n):
    x, y = load(x_ptr, 0), load(x_ptr, 1)
    for _ in range(n):
        x = tl.sqrt(x * load(x_ptr, 2))
        y = load(x_ptr, 3) - tl.sqrt(tl.abs(y))
    store(y_ptr, tl.maximum(x, y))


@triton.jit
def tile_of(x_ptr, row: tl.constexpr):
    offs = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    return tl.load(x_ptr + 8 * row + offs % 256)


@triton.jit
def store_tile(y_ptr, y):
    tl.store(y_ptr + tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :], y)


@triton.jit
def into_a_split_dot(x_ptr, y_ptr, n):
    store_tile(y_ptr, tl.dot(tile_of(x_ptr, 0) * 3.7, tile_of(x_ptr, 1), input_precision="tf32x3"))


@triton.jit
def onto_a_promoted_dot(x_ptr, y_ptr, n):
    a, b = tile_of(x_ptr, 0).to(tl.float8e5), tile_of(x_ptr, 1).to(tl.float8e5)
    acc = tile_of(x_ptr, 2) * tile_of(x_ptr, 3)
    store_tile(y_ptr, tl.dot(a, b, acc, max_num_imprecise_acc=32))


@triton.jit
def onto_a_dot(x_ptr, y_ptr, n):
    a, b = tile_of(x_ptr, 0).to(tl.float16), tile_of(x_ptr, 1).to(tl.float16)
    store_tile(y_ptr, tl.dot(a, b, tile_of(x_ptr, 2) * tile_of(x_ptr, 3)))


def asm(text):
    """Inline assembly of a and b."""
    return f"tl.inline_asm_elementwise({text!r}, '=r,r,r', [a, b], tl.float32, True, 1)"


FREE_EXPRESSIONS = {
    "added": "a * b + c",
    "subtracted_from": "c - a * b",
    "moved": "tl.reshape(tl.reshape(tl.load(x_ptr) * b, (1, 256)), (256,)) + c",
    "chosen": "tl.where(d > 0, a * b, 0.0) + c",
    "in_assembly": asm("{ .reg .f32 t; mul.f32 t, $1, $2; add.f32 $0, t, $2; }"),
    "from_assembly": asm("mul.f32 $0, $1, $2;") + " + c",
    "element_by_element": "tl.map_elementwise(multiply_add, a, b, c)",
    "by_an_fma_with_one": "tl.fma(a * b, 1.0, c)",
    "by_an_fma_with_one_each": "tl.map_elementwise(fma_with_one, a, b, c)",
    "squares_summed": "tl.cumsum(a * a)",
    "by_an_fma_onto_zero": "tl.fma(a, b, -0.0) + c",
    "the_larger_of_the_same": "tl.maximum(a * b, a * b) + c",
    "absolute_square": "tl.abs(a * a) + c",
    "instead_of_a_load": (
        "tl.load(x_ptr + tl.arange(0, 256), mask=tl.arange(0, 256) < 0, other=a * b) + c"
    ),
}
FIXED_EXPRESSIONS = {
    "written_as_fma": "tl.fma(a, b, c) + d",
    "into_a_factor": "tl.fma(a * b, c, d)",
    "sum_then_product": "(a + b) * c",
    "indices_summed": "tl.sqrt(a * b) + tl.sum(a.to(tl.int32))",
    "rectified": "tl.maximum(a * b, 0.0) + c",
    "rounded_in_assembly": asm("mul.rn.f32 $0, $1, $2;") + " + c",
}
FREE = (
    *(kernel_of(*row) for row in FREE_EXPRESSIONS.items()),
    in_a_branch, carried, into_a_split_dot, onto_a_promoted_dot,
)  # fmt: skip
FIXED = (*(kernel_of(*row) for row in FIXED_EXPRESSIONS.items()), apart_in_a_loop, onto_a_dot)
#: Nothing forbids to fuse these either, though compilers so far do not.
UNFUSED = ("chosen", "in_a_branch", "carried")


def get_name(kernel):
    return kernel.fn.__name__


@pytest.mark.parametrize("kernel", FREE + FIXED, ids=get_name)
def test_only_what_a_compiler_may_fuse_is_told(kernel):
    x, y = torch.ones(1024), torch.zeros(64 * 64)
    seen = run(lambda a: kernel[(1,)](a, y, 5), x, target="sm_90")
    assert ("fma" in seen.launches[0].rounds) == (kernel in FREE)


@pytest.mark.parametrize("kernel", first_of_each(FREE + FIXED), ids=get_name)
def test_a_cubin_has_fmas_of_the_compilers_own_only_there(kernel, tmp_path):
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
    source = triton.compiler.ASTSource(kernel, signature)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-sass", str(cubin)]
    sass = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count = {name: len(re.findall(rf"\b{name}\b", sass)) for name in ("FFMA", "FADD", "FMUL")}
    if kernel in FREE:
        assert count["FFMA"] > 0 or get_name(kernel) in UNFUSED, count
    else:
        assert count["FADD"] + count["FMUL"] > 0, count
        assert (count["FFMA"] > 0) == ("fma" in compiled.asm["ttir"]), count

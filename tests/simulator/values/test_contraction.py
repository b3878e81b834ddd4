"""Products that may become part of an fma: what is told of them, beside what cubins have."""

import re
import subprocess

import pytest
import torch
import triton
import triton.language as tl
from lanes import first_of_each
from triton.backends.compiler import GPUTarget

from gemmproof.reference.simulator import run


@triton.jit
def load(x_ptr, row: tl.constexpr):
    return tl.load(x_ptr + 256 * row + tl.arange(0, 256))


@triton.jit
def store(y_ptr, y):
    tl.store(y_ptr + tl.arange(0, 256), y)


@triton.jit
def added(x_ptr, y_ptr, n):
    store(y_ptr, load(x_ptr, 0) * load(x_ptr, 1) + load(x_ptr, 2))


@triton.jit
def subtracted_from(x_ptr, y_ptr, n):
    store(y_ptr, load(x_ptr, 2) - load(x_ptr, 0) * load(x_ptr, 1))


@triton.jit
def moved(x_ptr, y_ptr, n):
    x = tl.reshape(tl.load(x_ptr) * load(x_ptr, 1), (1, 256))
    store(y_ptr, tl.reshape(x, (256,)) + load(x_ptr, 2))


@triton.jit
def chosen(x_ptr, y_ptr, n):
    x = tl.where(load(x_ptr, 3) > 0, load(x_ptr, 0) * load(x_ptr, 1), 0.0)
    store(y_ptr, x + load(x_ptr, 2))


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
def in_assembly(x_ptr, y_ptr, n):
    y = tl.inline_asm_elementwise(
        "{ .reg .f32 t; mul.f32 t, $1, $2; add.f32 $0, t, $2; }", "=r,r,r",
        [load(x_ptr, 0), load(x_ptr, 1)], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    store(y_ptr, y)


@triton.jit
def from_assembly(x_ptr, y_ptr, n):
    y = tl.inline_asm_elementwise(
        "mul.f32 $0, $1, $2;", "=r,r,r",
        [load(x_ptr, 0), load(x_ptr, 1)], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    store(y_ptr, y + load(x_ptr, 2))


@triton.jit
def written_as_fma(x_ptr, y_ptr, n):
    store(y_ptr, tl.fma(load(x_ptr, 0), load(x_ptr, 1), load(x_ptr, 2)) + load(x_ptr, 3))


@triton.jit
def into_a_factor(x_ptr, y_ptr, n):
    x = load(x_ptr, 0) * load(x_ptr, 1)
    store(y_ptr, tl.fma(x, load(x_ptr, 2), load(x_ptr, 3)))


@triton.jit
def sum_then_product(x_ptr, y_ptr, n):
    store(y_ptr, (load(x_ptr, 0) + load(x_ptr, 1)) * load(x_ptr, 2))


@triton.jit
def apart_in_a_loop(x_ptr, y_ptr, n):
    x, y = load(x_ptr, 0), load(x_ptr, 1)
    for _ in range(n):
        x = tl.sqrt(x * load(x_ptr, 2))
        y = load(x_ptr, 3) - tl.sqrt(tl.abs(y))
    store(y_ptr, tl.maximum(x, y))


@triton.jit
def rectified(x_ptr, y_ptr, n):
    x = tl.maximum(load(x_ptr, 0) * load(x_ptr, 1), 0.0)
    store(y_ptr, x + load(x_ptr, 2))


@triton.jit
def rounded_in_assembly(x_ptr, y_ptr, n):
    y = tl.inline_asm_elementwise(
        "mul.rn.f32 $0, $1, $2;", "=r,r,r",
        [load(x_ptr, 0), load(x_ptr, 1)], dtype=tl.float32, is_pure=True, pack=1,
    )  # fmt: skip
    store(y_ptr, y + load(x_ptr, 2))


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


@triton.jit
def multiply_add(a, b, c):
    return a * b + c


@triton.jit
def element_by_element(x_ptr, y_ptr, n):
    y = tl.map_elementwise(multiply_add, load(x_ptr, 0), load(x_ptr, 1), load(x_ptr, 2))
    store(y_ptr, y)


@triton.jit
def fma_with_one(a, b, c):
    return tl.fma(a * b, 1.0, c)


@triton.jit
def by_an_fma_with_one_each(x_ptr, y_ptr, n):
    y = tl.map_elementwise(fma_with_one, load(x_ptr, 0), load(x_ptr, 1), load(x_ptr, 2))
    store(y_ptr, y)


@triton.jit
def squares_summed(x_ptr, y_ptr, n):
    x = load(x_ptr, 0)
    store(y_ptr, tl.cumsum(x * x))


@triton.jit
def indices_summed(x_ptr, y_ptr, n):
    i = tl.sum(tl.load(x_ptr + tl.arange(0, 256)).to(tl.int32))
    store(y_ptr, tl.sqrt(load(x_ptr, 0) * load(x_ptr, 1)) + i)


@triton.jit
def by_an_fma_with_one(x_ptr, y_ptr, n):
    store(y_ptr, tl.fma(load(x_ptr, 0) * load(x_ptr, 1), 1.0, load(x_ptr, 2)))


@triton.jit
def by_an_fma_onto_zero(x_ptr, y_ptr, n):
    store(y_ptr, tl.fma(load(x_ptr, 0), load(x_ptr, 1), -0.0) + load(x_ptr, 2))


@triton.jit
def the_larger_of_the_same(x_ptr, y_ptr, n):
    x = load(x_ptr, 0) * load(x_ptr, 1)
    store(y_ptr, tl.maximum(x, x) + load(x_ptr, 2))


@triton.jit
def absolute_square(x_ptr, y_ptr, n):
    store(y_ptr, tl.abs(load(x_ptr, 0) * load(x_ptr, 0)) + load(x_ptr, 2))


@triton.jit
def instead_of_a_load(x_ptr, y_ptr, n):
    x = load(x_ptr, 0) * load(x_ptr, 1)
    y = tl.load(x_ptr + tl.arange(0, 256), mask=tl.arange(0, 256) < 0, other=x)
    store(y_ptr, y + load(x_ptr, 2))


FREE = (
    added, subtracted_from, moved, chosen, in_a_branch, carried, in_assembly, from_assembly,
    into_a_split_dot, onto_a_promoted_dot, element_by_element, by_an_fma_with_one,
    by_an_fma_with_one_each, squares_summed, by_an_fma_onto_zero, the_larger_of_the_same,
    absolute_square, instead_of_a_load,
)  # fmt: skip
FIXED = (
    written_as_fma, into_a_factor, sum_then_product, apart_in_a_loop, indices_summed,
    rectified,
    rounded_in_assembly, onto_a_dot,
)  # fmt: skip
#: Nothing forbids to fuse these either, though compilers so far do not.
UNFUSED = (chosen, in_a_branch, carried)


def name_of(kernel):
    return kernel.fn.__name__


@pytest.mark.parametrize("kernel", FREE + FIXED, ids=name_of)
def test_only_what_a_compiler_may_fuse_is_told(kernel):
    x, y = torch.ones(1024), torch.zeros(64 * 64)
    seen = run(lambda a: kernel[(1,)](a, y, 5), x, target="sm_90")
    assert ("fma" in seen.launches[0].rounds) == (kernel in FREE)


@pytest.mark.parametrize("kernel", first_of_each(FREE + FIXED), ids=name_of)
def test_a_cubin_has_fmas_of_the_compilers_own_only_there(kernel, tmp_path):
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
    source = triton.compiler.ASTSource(kernel, signature)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-sass", str(cubin)]
    sass = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count = {name: len(re.findall(rf"\b{name}\b", sass)) for name in ("FFMA", "FADD", "FMUL")}
    if kernel in FREE:
        assert count["FFMA"] > 0 or kernel in UNFUSED, count
    else:
        assert count["FADD"] + count["FMUL"] > 0, count
        assert (count["FFMA"] > 0) == ("fma" in made.asm["ttir"]), count

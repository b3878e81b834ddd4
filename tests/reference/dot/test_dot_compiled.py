"""The instruction, operand types and additions that Triton compiles for each target, offline."""

import re

import pytest
import triton
import triton.language as tl
from tests.support.lanes import first_of_each
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.reference.dot.triton_dot import triton_dot

POINTER = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp8e4m3": "fp8e4nv", "fp8e5m2": "fp8e5"}
POINTER |= {"int8": "i8", "fp64": "fp64", "int32": "i32"}
OUT = {"fp32": tl.float32, "fp16": tl.float16, "int32": tl.int32, "fp64": tl.float64}


@triton.jit
def gemm(
    a,
    b,
    c,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
    IMPRECISE: tl.constexpr,
    PASSED: tl.constexpr,
    OUT_TYPE: tl.constexpr,
):
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), OUT_TYPE)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * BLOCK_N + n[None, :])
        if PASSED:
            acc = tl.dot(x, y, acc, PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=OUT_TYPE)
        else:
            acc += tl.dot(
                x, y, None, PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=OUT_TYPE
            )
    tl.store(c + m[:, None] * BLOCK_N + n[None, :], acc)


CASES = [
    ("sm_80", "fp16", {}),
    ("sm_80", "fp8e5m2", {}),
    ("sm_80", "fp32", {"input_precision": "tf32x3"}),
    ("sm_75", "fp32", {"BLOCK_M": 16, "input_precision": "tf32x3"}),
    ("sm_75", "fp16", {"BLOCK_M": 16}),
    ("sm_89", "fp8e4m3", {}),
    ("sm_89", "fp8e4m3", {"acc_passed": False, "max_num_imprecise_acc": 32}),
    ("sm_89", "fp8e4m3", {"acc_passed": False}),
    ("sm_90", "bf16", {}),
    ("sm_90", "fp16", {"acc_format": "fp16"}),
    ("sm_90", "fp16", {"num_warps": 2}),
    ("sm_90", "fp32", {}),
    ("sm_90", "fp32", {"BLOCK_M": 16, "input_precision": "ieee"}),
    ("sm_90", "fp32", {"input_precision": "bf16x6"}),
    ("sm_90", "int8", {"acc_format": "int32"}),
    ("sm_90", "fp8e4m3", {}),
    ("sm_90", "fp8e4m3", {"acc_passed": False}),
    ("sm_90", "fp8e4m3", {"max_num_imprecise_acc": 32}),
    ("sm_90", "fp8e4m3", {"max_num_imprecise_acc": 16}),
    ("sm_90", "fp8e5m2", {"BLOCK_M": 32, "acc_passed": False}),
    ("sm_100", "fp16", {}),
    ("sm_100", "fp8e5m2", {}),
    ("sm_100", "fp8e5m2", {"BLOCK_M": 32}),
    ("sm_120", "fp8e4m3", {}),
]

PTX_NAME = {"wgmma": "wgmma.mma_async", "mma": "mma.sync", "tcgen05": "tcgen05.mma", "fma": None}
PTX_TYPE = {"fp8e4m3": "e4m3", "fp8e5m2": "e5m2", "fp16": "f16", "bf16": "bf16", "tf32": "tf32"}
PTX_TYPE |= {"int8": "s8"}


# Arguments of triton_dot, where a case does not give others.
GIVEN = {"BLOCK_M": 64, "BLOCK_N": 16, "BLOCK_K": 64, "num_warps": 4, "acc_format": "fp32"}
GIVEN |= {"input_precision": "tf32", "max_num_imprecise_acc": None, "acc_passed": True}


def compile_ptx(target, in_format, given):
    """The PTX that Triton compiles for a target without having it."""
    acc = given["acc_format"]
    constants = {name: given[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")} | {
        "PRECISION": given["input_precision"],
        "IMPRECISE": given["max_num_imprecise_acc"],
        "PASSED": given["acc_passed"],
        "OUT_TYPE": OUT[acc],
    }
    pointers = {"a": in_format, "b": in_format, "c": acc}
    signature = {name: "*" + POINTER[f] for name, f in pointers.items()} | {"K": "i32"}
    names = list(signature | constants)
    source = ASTSource(
        fn=gemm,
        signature=signature | dict.fromkeys(constants, "constexpr"),
        constexprs={(names.index(k),): v for k, v in constants.items()},
        attrs={(names.index(k),): [["tt.divisibility", 16]] for k in ("a", "b", "K")},
    )
    target = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    options = {"num_warps": given["num_warps"]}
    return triton.compile(source, target=target, options=options).asm["ptx"]


def label(case):
    return "-".join([*case[:2], *(f"{name}={value}" for name, value in case[2].items())])


@pytest.mark.parametrize("case", first_of_each([(case,) for case in CASES]), ids=label)
def test_the_model_is_what_triton_compiles(case, tmp_path, monkeypatch):
    target, in_format, options = case
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns where it is unset
    given = GIVEN | options
    ptx = compile_ptx(target, in_format, given)
    model = triton_dot(target, in_format, **given)
    instructions = set(re.findall(r"(wgmma\.mma_async|mma\.sync|tcgen05\.mma)\.([\w.:]*)", ptx))
    name = PTX_NAME[model.instruction]
    assert {kind for kind, _ in instructions} == ({name} if name else set())
    operand = PTX_TYPE.get(model.as_format or ("tf32" if in_format == "fp32" else in_format))
    for kind, suffix in instructions:
        types = suffix.replace("::", ".").split(".")
        if kind == "tcgen05.mma":
            assert {"fp16": "f16", "fp8e5m2": "f8f6f4"}[in_format] in types
        else:
            assert operand in types
    adds = len(re.findall(r"\badd\.(?:rn\.)?f32", ptx))
    assert (adds > 0) == bool(model.part or model.from_zero)

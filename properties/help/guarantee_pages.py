"""Pages on guarantees of compiled code."""

from __future__ import annotations

from gemmproof.properties.help import Example, FaultPage, Page, state

_DOCS = ("docs/how-to/see-what-was-compiled.md", "docs/contract.md")
_GPUS = "--fits: the GPUs that it is compiled for, or else --target, or else sm_90"
_HOW = (
    "By compiling every launch for each GPU, in each configuration that a tuner's own pruning"
    " leaves, at usual sizes, at the smallest, with few rows and at sizes that 16 does not divide"
)

PAGES = (
    Page(
        name="uses_tensor_cores",
        claim="every dot is compiled to instructions of the tensor cores",
        judged=f"{_HOW}, where --tensor-cores promises it, and reading what became of each dot. A"
        " launch without a dot is right where another one of its call has one, and where K is 1"
        " or 0.",
        finding="k.py:23: got 1024 fma.rn.f32 for the dot 32x64x32 of f32 x f32 on sm_90, expected"
        " tensor cores: fp32 ieee has no tensor core",
        causes=(
            ("fp32 operands in full", 'input_precision="tf32", or "tf32x3"'),
            ("sums of products in place of a dot", "tl.dot"),
            ("on AMD, a tile below that of the matrix cores", "a larger BLOCK_M, BLOCK_N, BLOCK_K"),
        ),
        example=Example(
            wrong='acc = tl.dot(a, b, acc, input_precision="ieee")',
            right="acc = tl.dot(a, b, acc)",
            options=("--dtype", "tf32", "--tensor-cores"),
        ),
        options=("--tensor-cores: promises it; without it nothing is compiled", _GPUS),
        docs=_DOCS,
    ),
    Page(
        name="spills_no_more",
        claim="no thread has more bytes of registers in memory than promised",
        judged=f"{_HOW}, where --spills promises it, and reading the stack of a thread in the"
        " binary, without what the program itself puts there.",
        finding="k.py:8: got 128 bytes of a thread spilled, with 32 registers on sm_90, expected"
        " none",
        causes=(
            ("an accumulator that takes all registers", "more warps, or a smaller tile"),
            ("maxnreg below what the loop holds", "a larger one, or none"),
        ),
        example=Example(
            wrong="strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, maxnreg=32)",
            right="strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32)",
            options=("--spills", "0"),
        ),
        options=("--spills: promises it, in bytes; without it nothing is compiled", _GPUS),
        docs=_DOCS,
    ),
    Page(
        name="fits_on_its_gpus",
        claim="every launch compiles for the promised GPUs, and a block has room there",
        judged=f"{_HOW}: shared memory, threads, registers and tensor memory of a block against"
        " those of the GPU. A tuner passes over a configuration without room, after it compiled"
        " it; here it is a finding.",
        finding="k.py:19: got 122880 bytes of shared memory for a block of kernel on sm_86,"
        " expected at most 101376: buffers of 5x32x128 f16 and 5x128x64 f16 with num_stages=6",
        causes=(
            ("stages for a GPU with more shared memory", "a smaller num_stages, or BLOCK_K"),
            ("configurations of another GPU", "prune_configs_by={'early_config_prune': ...}"),
            ("a format that the GPU does not have", "--fits without that GPU"),
        ),
        example=Example(
            wrong="strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=128, num_stages=6)",
            right="strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32)",
            options=("--fits", "sm_86"),
        ),
        options=("--fits: promises it of these GPUs; without it nothing is compiled",),
        docs=_DOCS,
    ),
)

FAULTS: tuple[FaultPage, ...] = (
    state("no_tensor_core", ("uses_tensor_cores",), "a dot is compiled to fused multiply-adds",
          "a format or a precision that the tensor cores do not have",
          "tf32 in place of fp32, or a GPU that has it"),
    state("no_dot", ("uses_tensor_cores",), "no launch of a call multiplies by a dot",
          "tl.sum(a * b), as for one row", "tl.dot, or sizes without that one"),
    state("spilled", ("spills_no_more",), "registers of a thread lie in memory",
          "an accumulator for too few threads", "a larger num_warps, or a smaller tile"),
    state("too_large", ("fits_on_its_gpus",), "a block needs more than the GPU has",
          "stages and tiles of a larger GPU", "fewer stages, or a smaller tile, there"),
    state("refused", ("fits_on_its_gpus",), "the compiler refuses a launch for the GPU",
          "a format, a tile or an option that the GPU does not have",
          "what its message names, or --fits without that GPU"),
)  # fmt: skip

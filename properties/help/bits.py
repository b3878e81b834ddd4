"""Pages on equal bits: again, after other calls, at other M, as predicted, as a mirror states."""

from __future__ import annotations

from gemmproof.properties.help.accesses import SHARES
from gemmproof.properties.help.page import Example, Page

_CONTRACT = "docs/contract.md"

PAGES = (
    Page(
        name="same_bits_on_dirty_outputs",
        claim="three calls over different uninitialised memory give the same bits",
        judged="Bitwise: the same call three times, over memory of NaN, of ones and of zeros"
        " wherever nothing has been written.",
        finding="c[0, 0], stored at k.py:27: got -3.3692358 (0xc057a18f) in call 2 over ones bytes,"
        " expected -3.3692355 (0xc057a18e) as in call 1 over nan bytes",
        causes=(
            ("what was there before is read", "torch.zeros, or store before adding"),
            ("another split or order from call to call", "choose by shapes alone"),
        ),
        example=Example(
            wrong="calls[0] += 1\n    a, b = (a.flip(1), b.flip(0)) if calls[0] % 2 else (a, b)\n"
            "    M, K = a.shape",
            right="M, K = a.shape",
            given=(
                ("import torch\n", "import torch\n\ncalls = [0]\n"),
                ("device=a.device, dtype=a.dtype", "device=a.device, dtype=torch.float32"),
            ),
            given_words="where c is fp32, and calls = [0] stands at the top of the file",
        ),
        options=("--any-order: on a device, atomics may add in any order",),
        docs=(_CONTRACT,),
    ),
    Page(
        name="call_order",
        claim="a call after others, with other shapes, strides and formats, gives the bits of a"
        " first call",
        judged="Bitwise: the same call once more, in the same process, after calls with larger and"
        " smaller shapes, other strides, another format and other elements in the same tensors.",
        finding="the call after 3 with other shapes, strides, formats or elements: got c[0, 0] ="
        " nan (0x7fff) after them, expected -1050.0 (0xe41a) as in a call of its own",
        causes=(
            ("strides, grids or workspaces kept from the first call", "key caches by all of them"),
            ("counters or flags that are not reset", "zero them before each launch"),
            ("a copy of b kept by its address", "key by what cannot change, or do not keep it"),
        ),
        example=Example(
            wrong='strides = kept.setdefault("strides", (*a.stride(), *b.stride(), *c.stride()))',
            right="strides = (*a.stride(), *b.stride(), *c.stride())",
            given=(("import torch\n", "import torch\n\nkept = {}\n"),),
            given_words="where kept = {} stands at the top of the file",
        ),
        options=("--dtype, --layouts: what other calls may be given",),
        docs=(_CONTRACT,),
    ),
    Page(
        name="row_bits_at_any_m",
        claim="the bits of a row of c are the same at every M",
        judged="Bitwise, where --batch-invariant promises it: the same rows of a and the same b at"
        " M = 1, 2, 17, 33, 128 and 257, as far as the contract admits them.",
        finding="c[0, 5], updated at k.py:25: got 0.80379623 (0x3f4dc597) at M=1, expected"
        " 0.8037963 (0x3f4dc598) as at M=17",
        causes=(
            ("split-K, tiles or a kernel chosen by M", "choose by N and K alone"),
            ("a tuner whose key has M", "leave M out of the key"),
        ),
        example=Example(
            wrong="kernel[(*grid[:2], 2 if M < 16 else 1)](",
            right="kernel[(*grid[:2], 2)](",
            given=(
                *SHARES,
                (
                    "range(tl.program_id(2) * BLOCK_K, K, 2 * BLOCK_K)",
                    "range(tl.program_id(2) * BLOCK_K, K, tl.num_programs(2) * BLOCK_K)",
                ),
                ("kernel[grid](", "kernel[(*grid[:2], 2)]("),
            ),
            given_words="where programs share K, and c begins as zeros in fp32",
            options=("--batch-invariant",),
        ),
        options=("--batch-invariant: promises it; without it nothing is judged",),
        docs=(_CONTRACT, "docs/how-to/state-a-contract.md"),
    ),
    Page(
        name="equals_prediction",
        claim="a launch gives the bits that the simulator predicts for the device",
        judged="Bitwise, with --device cuda: each launch against the simulated tensor cores of that"
        " GPU. Where the device decides the bits (atomics, reductions, a product and a sum that"
        " may be fused), on data whose sums are exact.",
        finding="c[0, 0]: got 1.2 (0x3f99999a), expected 1.2 (0x3f999999) as predicted for sm_90;"
        " 1 of 64 elements differ on the NVIDIA H200",
        causes=(
            ("a product and a sum that the compiler may fuse, or not", "tl.fma(x, y, z)"),
            ("a barrier that is missing, a race in shared memory", "compute-sanitizer says where"),
            ("a fault of the compiler or the machine", "report it with the line to reproduce"),
        ),
        example=Example(
            wrong="acc = acc * scale + bias",
            right="acc = tl.fma(acc, scale, bias)",
            unjudged="it takes a GPU",
        ),
        options=("--device cuda: launches; the target is that of the device",),
        docs=("docs/what-your-tensor-core-computes.md", _CONTRACT),
    ),
    Page(
        name="mirror_equals_source",
        claim="the kernel's own body touches the offsets that its mirror states, under the same"
        " masks",
        judged="Exactly, for kernels that are registered with a mirror: a numpy program, written"
        " from the kernel's specification, states every access, which is compared with those of"
        " the source.",
        finding="store 1 of c by program (0, 0): got mask true at [0, 33], expected false",
        causes=(
            ("the kernel does more or less than it was specified to do", "mend the kernel"),
            ("the kernel was changed on purpose", "state the change in the mirror"),
        ),
        example=Example(
            wrong="a = tl.load(a_ptrs, mask=offs_m <= M, other=0.0)",
            right="a = tl.load(a_ptrs, mask=offs_m < M, other=0.0)",
            unjudged="it takes a mirror",
        ),
        options=("KernelUnderTest(..., mirror=...): without a mirror nothing is judged",),
        docs=("docs/kernels.md",),
    ),
)

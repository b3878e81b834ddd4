"""Pages on how calls end, and on the values that they give."""

from __future__ import annotations

from gemmproof.properties.help.page import Example, Page

_CONTRACT, _DRIFT = "docs/contract.md", "docs/how-to/measure-drift.md"
_ACCUMULATOR = "--accumulator: the format that sums are promised to be kept in (default fp32)"

PAGES = (
    Page(
        name="compiles",
        claim="every specialisation and configuration that the contract admits is one that Triton"
        " compiles",
        judged="By Triton's own frontend, for each format, each stride that is 1, each size that is"
        " 1 or divisible by 16, and each configuration of a tuner: its words are reported.",
        finding="k.py:18: got \"arange's range must be a power of 2\" from Triton's compiler,"
        " expected kernel to compile",
        causes=(
            ("a variable of a loop changes its type", "make it that type before the loop"),
            ("a tile side that is no power of 2", "the next power of 2, and a mask"),
            ("a stride of 1 becomes a constant without methods", "tl.cast(stride, tl.int64)"),
        ),
        example=Example(
            wrong="strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=24)",
            right="strides, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32)",
        ),
        options=("--dtype: the formats that are compiled for", "--target: the GPU's dots"),
        docs=("docs/tutorial.md",),
    ),
    Page(
        name="runs_to_completion",
        claim="every call that the contract admits returns a new tensor of the product's shape",
        judged="By calling it, in a process of its own: what it raises, whether it ends, hangs,"
        " crashes or fills memory; the type, shape, dtype, device and memory of what it returns,"
        " and that a kernel was launched.",
        finding="the result: got shape (), expected (1, 1)",
        causes=(
            ("a size of 1 or 0 is squeezed, or divided by", "keep both axes; return zeros early"),
            ("an assertion that the contract does not say", "--sizes or --where say it"),
            ("a loop that waits for a flag nobody sets", "count the programs that arrive"),
        ),
        example=Example(wrong="return c.squeeze()", right="return c"),
        options=(
            "--sizes, --where: sizes that it refuses are not promised",
            "--out-dtype: what c must be; --call: how it is called",
        ),
        docs=(_CONTRACT, "docs/how-to/run-in-ci.md"),
    ),
    Page(
        name="exact_on_integers",
        claim="the product of integers whose sums are exact is exact",
        judged="Bitwise: small integers whose sums every accumulator holds, in any order (fp32 up"
        " to 2**24, fp16 to 2**11, bf16 and formats of 8 bits to 2**8), so that one rounding to the"
        " result's format is all that is allowed. The class of the fault is claimed only where it"
        " explains every wrong element.",
        finding="c[0, 0], stored at k.py:25: got 0, expected -840; the only element wrong: k 0..0"
        " is left out, the last K block",
        causes=(
            ("the last K block is left out, or added twice", "range(0, K, BLOCK_K), and a mask"),
            ("strides of a or b swapped, or ignored", "a.stride(0), a.stride(1), ..."),
            ("other= is not zero", "other=0.0"),
        ),
        example=Example(
            wrong="for k in range(0, K - BLOCK_K + 1, BLOCK_K):",
            right="for k in range(0, K, BLOCK_K):",
        ),
        options=("--spec: what c is, where it is no plain product", "--accumulator"),
        docs=(_CONTRACT, "docs/acceptance-rules.md"),
    ),
    Page(
        name="within_bound",
        claim="|c - a b| is within what the declared accumulator and one rounding allow",
        judged="Against a bound derived for each element: what sums of these very terms can lose in"
        " the declared accumulator, in any order, and one rounding to the result's format. No"
        " tolerance is typed; the inequalities stand in reference/bounds.py. It is a share of that"
        " bound that `worst error` shows.",
        finding="c[1, 1], stored at k.py:25: got 4.9140625, expected 4.9111879472620785, allowed"
        " error 0.00244; 1 of 4 elements wrong: no more than sums kept in fp16 can lose",
        causes=(
            ("sums kept in fp16 or bf16", "acc = tl.zeros(..., dtype=tl.float32)"),
            ("fp32 operands that tensor cores read as tf32", 'input_precision="ieee"'),
            ("fp8 sums that never leave the unit", "add each part to an fp32 sum"),
        ),
        example=Example(
            wrong="acc = tl.dot(a, b, acc).to(tl.float16).to(tl.float32)",
            right="acc = tl.dot(a, b, acc)",
        ),
        options=(_ACCUMULATOR, "--out-dtype: the rounding", "--target: that GPU's tensor cores"),
        docs=("docs/acceptance-rules.md", _DRIFT),
    ),
    Page(
        name="special_values",
        claim="whatever is not finite (NaN, Inf, overflow) is where the product has it, and only"
        " there",
        judged="By what each element meets: one NaN in a row of a makes that row of c NaN and no"
        " other, Inf times 0 is NaN, sums beyond the format overflow; all else is a number within"
        " its bound. Signs of zeros are not judged.",
        finding="c[1, 4], stored at k.py:25: got 0.0, expected nan (a[1, *] is -inf; b[*, 4] is"
        " -inf); 3 of 30 elements wrong",
        causes=(
            ("NaN replaced: tl.maximum, tl.where(acc == acc, ...)", "propagate it"),
            ("tiles of zeros skipped, though 0 * NaN is NaN", "skip none, or say so in --spec"),
            ("masked lanes that are read and multiplied by 0", "a mask, and other=0.0"),
        ),
        example=Example(
            wrong="acc = tl.where(acc == acc, tl.dot(a, b, acc), 0.0)",
            right="acc = tl.dot(a, b, acc)",
        ),
        options=("--spec: a formula of its own has other special values; they are not judged",),
        docs=(_CONTRACT,),
    ),
    Page(
        name="symmetries",
        claim="metamorphic relations: operands negated, scaled, permuted, padded or transposed"
        " change c likewise",
        judged="By a second call on operands that were changed so. Bitwise where every right kernel"
        " gives the same bits (negation, powers of two, rows exchanged within a tile, exact sums),"
        " within the sum of both bounds elsewhere (properties/metamorphic.py).",
        finding="c[0, 0]: got 1.5 (0x3fc00001), expected 1.5 (0x3fc00000) as for a negated",
        causes=(
            ("rounding that depends on the sign", "rounding to nearest, or toward zero"),
            ("something that depends on the row or column", "the same for all of a tile"),
        ),
        example=Example(
            wrong="up = tl.where((acc > 0) & (acc != tl.floor(acc)), acc * 2**-23, 0.0)\n"
            "        acc = tl.dot(a, b, acc + up)",
            right="acc = tl.dot(a, b, acc)",
            given=(("device=a.device, dtype=a.dtype", "device=a.device, dtype=torch.float32"),),
            given_words="where c is fp32",
        ),
        options=("--spec: a formula of its own is not held to them",),
        docs=(_CONTRACT,),
    ),
    Page(
        name="accumulator_as_declared",
        claim="sums keep what the declared accumulator keeps, and stay within its bound at every K",
        judged="`gemmproof drift`: probes whose results tell apart how many bits are kept, how they"
        " are rounded and in which order terms are added; then errors at growing K against the"
        " bound of what was declared.",
        finding="the sum over k: got 11 bits (fp16), expected 24 bits (fp32)",
        causes=(
            ("sums in fp16", "acc = tl.zeros(..., dtype=tl.float32)"),
            ("fp8 units of 13 bits, never promoted", "acc += tl.dot(a, b) at least every 128 k"),
            ("partial sums of split-K in the format of c", "partials in fp32"),
        ),
        example=Example(
            wrong="acc = tl.dot(a, b, acc).to(tl.float16).to(tl.float32)",
            right="acc = tl.dot(a, b, acc)",
        ),
        options=(_ACCUMULATOR, "--target: whose tensor cores sum"),
        docs=(_DRIFT, "docs/what-your-tensor-core-computes.md"),
    ),
)

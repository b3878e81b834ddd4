"""Pages on properties that a case can break."""

from __future__ import annotations

from gemmproof.properties.help import Example, Page

# -- addresses and memory ------------------------------------------------------------------------
_CONTRACT, _EXPLAIN = "docs/contract.md", "docs/how-to/explain.md"
_LAYOUTS = "--layouts any: views with padding, steps, stride 0 and other origins are drawn too"

# c in fp32, of two shares of K that are added up in memory
SHARES = (
    (
        "c = torch.empty((M, N), device=a.device, dtype=a.dtype)",
        "c = torch.zeros((M, N), device=a.device, dtype=torch.float32)",
    ),
    ("triton.cdiv(N, 64))", "triton.cdiv(N, 64), 2)"),
    ("range(0, K, BLOCK_K)", "range(tl.program_id(2) * BLOCK_K, K, 2 * BLOCK_K)"),
    (
        "tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))",
        "tl.atomic_add(c_ptrs, acc, mask=(offs_m < M) & (offs_n < N))",
    ),
)

ACCESS_PAGES = (
    Page(
        name="stays_in_bounds",
        claim="every unmasked lane addresses an element of its operand",
        judged="Exactly: the simulator compares the address of every unmasked lane of every program"
        " with the elements of the view that the operand is, gaps between its rows excluded. A"
        " solver also tries to prove it for every size (proved for every M, N, K).",
        finding="load of a at k.py:21: columns 1..31 of a (K=1) are read by 1 program; the mask"
        " tests m only; missing: & (offs_k[None, :] < K)",
        causes=(
            ("the mask tests one axis of a block that has two", "test each axis that a lane has"),
            ("the last K block is taken to be whole", "mask k too, or promise K in whole blocks"),
            ("strides swapped, or taken for those of dense rows", "pass and use a.stride(0), (1)"),
            ("`<=` for `<`", "an index is below its size"),
        ),
        example=Example(
            wrong="a = tl.load(a_ptrs, mask=offs_m < M, other=0.0)",
            right="a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)",
        ),
        options=(
            "--sizes K=32..:32: K in whole blocks only, where the kernel does not take others",
            _LAYOUTS,
        ),
        docs=(_EXPLAIN, _CONTRACT, "docs/proofs.md"),
    ),
    Page(
        name="offsets_fit",
        claim="no offset overflows its integer type, in large results and views of huge parents"
        " either",
        judged="Exactly: each offset is made in the kernel's own integers and in 64 bits, and both"
        " must agree. No memory is needed for it: addresses are reserved, and single programs run"
        " where results are large.",
        finding="store of c at k.py:25: got element offset -2147469616, expected 2147497680, beyond"
        " the offset's integer type; the offset along M needs 64 bits",
        causes=(
            (
                "program_id, arange and sizes are int32, and so is their product",
                "cast one factor: tl.program_id(0).to(tl.int64)",
            ),
            ("a stride is int32 where Triton specialises it so", "cast the index, not the sum"),
            ("a pointer advanced in steps of int32", "advance by BLOCK_K * stride.to(tl.int64)"),
        ),
        example=Example(
            wrong="offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]",
            right="offs_m = tl.program_id(0) * BLOCK_M"
            " + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)",
            options=("--huge",),
        ),
        options=(
            "--huge: offsets from 2**31 are promised; without it they are tried, and are limits",
            "--layouts any --huge: narrow views of huge parents too",
        ),
        docs=(_CONTRACT, "docs/how-to/state-a-contract.md"),
    ),
    Page(
        name="every_hint_holds",
        claim="every hint to the compiler is true, and every descriptor keeps the copy engine's"
        " rules",
        judged="Exactly: tl.multiple_of, tl.max_contiguous, tl.max_constancy and tl.assume are"
        " compared with the values that they speak of; descriptors and their accesses with CUDA's"
        " rules (bases of 16 bytes, strides that are multiples of 16 bytes, blocks that begin so).",
        finding="hint at k.py:17: got tl.assume of a condition that is false, expected a true"
        " condition",
        causes=(
            ("true of the shapes that were tried, not of all", "promise it: --where, or drop it"),
            ("a descriptor of rows that are no multiple of 16 bytes", "choose by stride % 16"),
        ),
        example=Example(
            wrong="tl.assume(K % BLOCK_K == 0)\n    for k in range(0, K, BLOCK_K):",
            right="for k in range(0, K, BLOCK_K):",
        ),
        options=("--sizes, --where: sizes for which the hint is true", _LAYOUTS),
        docs=(_CONTRACT, "docs/kernels.md"),
    ),
    Page(
        name="no_races",
        claim="no program reads or overwrites what another program stores in the same launch",
        judged="Exactly, whatever the order in which programs ran: elements that one program"
        " stores and another reads or stores, unless by atomics or ordered by a flag that is"
        " waited for.",
        finding="store of c at k.py:25: got a program stores what another program reads in the same"
        " launch, expected an order between the two",
        causes=(
            ("shares of K are read, added and stored", "tl.atomic_add, or partials of their own"),
            ("a lock or counter that not all programs wait for", "wait before the first read"),
        ),
        example=Example(
            wrong="tl.store(c_ptrs, tl.load(c_ptrs, mask=(offs_m < M) & (offs_n < N)) + acc,"
            " mask=(offs_m < M) & (offs_n < N))",
            right="tl.atomic_add(c_ptrs, acc, mask=(offs_m < M) & (offs_n < N))",
            given=SHARES,
            given_words="where two programs share K, and c begins as zeros in fp32",
        ),
        options=("--any-order: the bits of sums by atomics may differ, not which elements",),
        docs=(_CONTRACT,),
    ),
    Page(
        name="stores_each_element_once",
        claim="every element of the result is stored exactly once, or accumulated onto a defined"
        " value",
        judged="Exactly: stores are counted for each element of the result. A solver also tries to"
        " prove that tiles and grid fit together for every size.",
        finding="store of c at k.py:25: got row 32, column 0 of c never stored, expected every"
        " element of c stored",
        causes=(
            ("the grid is rounded down", "triton.cdiv(M, BLOCK_M)"),
            ("the last group of tiles is not clamped", "min(num_pid_m - first, GROUP_M)"),
            ("rows wrapped by % M are stored too", "wrap what is loaded, mask what is stored"),
            ("no store where K is 0, or where a program leaves early", "store zeros there"),
        ),
        example=Example(
            wrong="grid = (M // 32, triton.cdiv(N, 64))",
            right="grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))",
            options=("--sizes", "M=32.."),
        ),
        options=("--sizes: K=0.. admits an empty K, whose c is zeros",),
        docs=(_CONTRACT, "docs/proofs.md"),
    ),
    Page(
        name="undefined_lanes_never_stored",
        claim="no undefined lane decides an address, a mask or a branch, or reaches the result",
        judged="Exactly: lanes of a masked load without `other`, and memory that nothing wrote, are"
        " poison that every operation hands on. It is found where it is stored or decides, however"
        " harmless the value that happened to be there.",
        finding="load of a at k.py:21: got row 0, column 0 of c depends on lanes of a that the"
        " load's mask disables, with no `other`, expected defined lanes only",
        causes=(
            ("a masked load without `other`", "other=0.0"),
            ("c = torch.empty, and sums are added to it", "torch.zeros, or store the first"),
            (
                "partials of a share of K that is empty",
                "store zeros for it, or skip it",
            ),
        ),
        example=Example(
            wrong="a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K))",
            right="a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)",
        ),
        options=("--sizes K=32..:32: where no lane is masked along K",),
        docs=(_CONTRACT,),
    ),
    Page(
        name="leaves_inputs_untouched",
        claim="operands, the gaps between their rows and the memory around them are left unchanged",
        judged="Bitwise: every operand, the gaps of its view and guards around it are compared with"
        " what they were before the calls.",
        finding="operand a: got element a[0, 0] changed, expected none changed",
        causes=(
            ("an operation in place: mul_, clamp_, +=", "write to a new tensor"),
            ("a workspace that is a view of an operand", "torch.empty of its own"),
        ),
        example=Example(wrong="M, K = a.clamp_(-1, 1).shape", right="M, K = a.shape"),
        options=("--operand out='fp16[M, N] written': an operand that is written on purpose",),
        docs=(_CONTRACT, "docs/how-to/state-operands.md"),
    ),
)


# -- equal bits ----------------------------------------------------------------------------------
BIT_PAGES = (
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


# -- calls and values ----------------------------------------------------------------------------
_DRIFT = "docs/how-to/measure-drift.md"
_ACCUMULATOR = "--accumulator: the format that sums are promised to be kept in (default fp32)"

CALL_PAGES = (
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
        " within the sum of both bounds elsewhere (properties/judges/metamorphic.py).",
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

"""Pages on what a kernel reads and writes: addresses, hints, stores, undefined lanes."""

from __future__ import annotations

from gemmproof.properties.help.page import Example, Page

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

PAGES = (
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

"""Pages on faults and on classes of wrong values."""

from __future__ import annotations

from gemmproof.properties.help import Example, FaultPage, state
from gemmproof.reference.simulation import KINDS

# -- faults --------------------------------------------------------------------------------------
_ENDS = ("runs_to_completion",)
_INPUTS = ("leaves_inputs_untouched",)

_TWICE = Example(
    wrong="c_ptrs = c_ptr + offs_m * stride_cm + offs_n % N * stride_cn\n"
    "    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs_m < M)",
    right="c_ptrs = c_ptr + offs_m * stride_cm + offs_n * stride_cn\n"
    "    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))",
)
_USED = Example(
    wrong="a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K))",
    right="a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)",
    given=(
        (
            "acc = tl.dot(a, b, acc)",
            "if tl.sum(tl.sum((a == a).to(tl.int32), axis=1), axis=0) >= 0:\n"
            "            acc = tl.dot(a, b, acc)",
        ),
    ),
    given_words="where a branch depends on what was loaded",
)
_DESCRIPTOR = Example(
    wrong="desc = tl.make_tensor_descriptor(\n"
    "            a_ptr, [M, K], [stride_am, 1], [BLOCK_M, BLOCK_K])\n"
    "        a = desc.load([tl.program_id(0) * BLOCK_M, k])",
    right="a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)",
    given=(
        (
            "M, K = a.shape",
            "triton.set_allocator(lambda size, *_: torch.empty(size, device=a.device))\n"
            "    M, K = a.shape",
        ),
    ),
    given_words="where the wrapper has set an allocator",
    options=("--sizes", "K=2.."),
)
_ASSERT = Example(
    wrong="tl.device_assert(K % BLOCK_K == 0)\n    for k in range(0, K, BLOCK_K):",
    right="for k in range(0, K, BLOCK_K):",
)


def _kind(
    name: str, property_name: str, *causes: tuple[str, str], example: Example | None = None
) -> FaultPage:
    return FaultPage(name, (property_name,), KINDS[name], causes, example)


# faults seen by an observer of a launch
_SEEN = (
    _kind(
        "out_of_bounds",
        "stays_in_bounds",
        ("the mask tests one axis of a block that has two", "test each axis that a lane has"),
        ("strides swapped, or taken for those of dense rows", "pass and use a.stride(0), (1)"),
    ),
    _kind(
        "stored_twice",
        "stores_each_element_once",
        ("rows or columns wrapped by % are stored too", "wrap what is loaded, mask what is stored"),
        (
            "two programs come to one tile",
            "a tile of its own for each: divide by the clamped group",
        ),
        example=_TWICE,
    ),
    _kind(
        "never_stored",
        "stores_each_element_once",
        ("the grid is rounded down", "triton.cdiv(M, BLOCK_M)"),
        ("no store where K is 0, or where a program leaves early", "store zeros there"),
    ),
    _kind(
        "undefined_stored",
        "undefined_lanes_never_stored",
        ("a masked load without `other`", "other=0.0"),
        ("c = torch.empty, and sums are added to it", "torch.zeros, or store the first"),
    ),
    _kind(
        "undefined_used",
        "undefined_lanes_never_stored",
        ("lanes of a masked load without `other` decide", "other=0.0, or a mask of their own"),
        ("a workspace or counter that nothing set", "torch.zeros"),
        example=_USED,
    ),
    _kind(
        "wrapped_offset",
        "offsets_fit",
        (
            "program_id, arange and sizes are int32",
            "cast one factor to tl.int64",
        ),
    ),
    _kind(
        "false_hint",
        "every_hint_holds",
        ("true of the shapes that were tried, not of all", "promise it: --where, or drop it"),
    ),
    _kind(
        "bad_descriptor",
        "every_hint_holds",
        ("rows that are no multiple of 16 bytes", "choose by stride, or --sizes K=8..:8 says so"),
        ("a base that is not aligned to 16 bytes", "copy it, or load through pointers"),
        example=_DESCRIPTOR,
    ),
    _kind(
        "race",
        "no_races",
        ("shares of K are read, added and stored", "tl.atomic_add, or partials of their own"),
    ),
    _kind(
        "failed_assert",
        "runs_to_completion",
        ("the kernel asserts more than the contract says", "--sizes or --where promise it"),
        example=_ASSERT,
    ),
)
# how calls end, and the results and memory that they leave
_ENDED = (
    state("compile_error", ("compiles",), "Triton's frontend refuses the kernel, in its own words",
          "a variable of a loop changes its type", "make it that type before the loop"),
    state("raised", _ENDS, "the wrapper raises", "an assertion that the contract does not say",
          "--sizes, --where or --layouts say it"),
    state("kernel_error", _ENDS, "a launch that Triton or the device would refuse",
          "an argument, grid or option that no launch takes", "what the message names"),
    state("limit", _ENDS, "a kernel that repeats itself without end",
          "a loop that waits for a flag nobody sets", "count the programs that arrive"),
    state("cuda_error", _ENDS, "the launch left the device unusable, with --device cuda",
          "an illegal address that the simulator did not see", "compute-sanitizer says where"),
    state("wrong_type", _ENDS, "what is returned is no tensor", "no return", "return c",
          ("a tuple", "--spec with as many results")),
    state("wrong_shape", _ENDS, "a result of another shape", "squeeze() where a size is 1",
          "keep both axes"),
    state("wrong_dtype", _ENDS, "a result of another dtype than promised, or of none that is known",
          "c is made in a dtype of its own", "dtype=a.dtype, or --out-dtype"),
    state("wrong_device", _ENDS, "a result on another device", "torch.empty without device=",
          "device=a.device"),
    state("returned_input", _ENDS, "the result shares memory with an operand", "return a",
          "a new tensor"),
    state("other_result", _ENDS, "a launch returns another type, shape or format than simulated",
          "the wrapper asks the device, and goes another way", "the same result on each way"),
    state("no_launch", _ENDS, "no case launched a kernel", "the wrapper leaves all to torch",
          "name the wrapper that launches"),
    state("crash", _ENDS, "the process died of it", "native code of the wrapper's",
          "--case repeats it, with its last output"),
    state("hang", _ENDS, "the wrapper did not come back", "a loop or lock in its Python",
          "the line that ran is named; --time-limit allows more"),
    state("memory", _ENDS, "the wrapper filled memory", "workspaces that grow with each call",
          "free them; --memory-limit allows more"),
    state("exit", _ENDS, "the wrapper ended the process", "sys.exit", "raise, or return"),
    state("element_changed", _INPUTS, "an element of an operand was written",
          "an operation in place",
          "write to a new tensor"),
    state("gap_changed", _INPUTS, "memory between an operand's rows was written",
          "rows taken to be dense", "strides, and a mask"),
    state("guard_changed", _INPUTS, "memory around an operand was written",
          "stores beyond an end", "a mask on each axis"),
    state("view_changed", _INPUTS, "the tensor itself was changed: its shape or strides",
          "t_(), resize_(), squeeze_()", "t(), reshape(): a view of its own"),
    state("access_differs", ("mirror_equals_source",), "an access is not what the mirror states",
          "the kernel was changed", "mend it, or state the change in the mirror"),
)  # fmt: skip

FAULTS = (*_SEEN, *_ENDED)


# -- wrong values --------------------------------------------------------------------------------
_VALUES = ("exact_on_integers", "within_bound")
_SPECIAL, _SUMS = ("special_values",), ("accumulator_as_declared",)

# classes of wrong values
_WRONG = (
    state("wrong_value", (*_VALUES, *_SPECIAL), "elements are wrong; no class explains them all",
          "another finding of the same case", "mend what is listed first"),
    state("not_finite", _VALUES, "NaN or Inf from finite operands", "other= is not finite",
          "other=0.0", ("sums beyond fp16", "sums in fp32")),
    state("wrapped", _VALUES, "integers modulo the width of the result", "no saturation on the way",
          "tl.clamp before the cast"),
    state("rounded_twice", _VALUES, "sums rounded to another format first",
          "acc.to(tl.float16) on the way",
          "one cast, from the sums to the result"),
    state("rounding", _VALUES, "no more than a narrower format loses",
          "sums or operands in fp16 or tf32",
          "fp32 sums; --accumulator says that they are narrower"),
    state("wrong_strides", _VALUES, "as if an operand had other strides",
          "strides swapped or assumed",
          "a.stride(0), a.stride(1)"),
    state("wrong_indices", _VALUES, "as if an operand were read one index further, or wrapped",
          "an offset that is off by one", "k + arange(0, BLOCK_K)"),
    state("k_tail", _VALUES, "as if lanes beyond K held products", "other= is not zero, or no mask",
          "mask k in both loads, other=0.0"),
    state("last_k_block", _VALUES, "the last K block is left out, or added twice",
          "range(0, K - BLOCK_K + 1, ...), K // BLOCK_K", "range(0, K, BLOCK_K), and a mask"),
    state("k_block", _VALUES, "a K block is left out, or added twice",
          "pointers that do not advance",
          "a_ptrs += BLOCK_K * stride_ak once a block"),
    state("later_block", _VALUES, "seen where an axis has more than one block",
          "an offset that lacks the block's number", "pid * BLOCK + arange(0, BLOCK)"),
    state("batch", _VALUES, "only in some of the batch", "a batch stride forgotten",
          "batch * a.stride(0)"),
    state("tile_edge", _VALUES, "all in the last, partial tile", "a mask or index of the last tile",
          "arange < M - pid * BLOCK_M, or indices below M"),
    state("everywhere", _VALUES, "every element is wrong", "another formula",
          "--spec says what c is"),
    state("row", _VALUES, "all in one row", "an entry a row that is misread",
          "offs_m, and its mask"),
    state("column", _VALUES, "all in one column", "an entry a column that is misread",
          "offs_n, and its mask"),
    state("whole_tile", _VALUES, "whole tiles are wrong", "pids mapped to other tiles",
          "pid_m and pid_n from one pid, each once"),
    state("scattered", _VALUES, "here and there, in no pattern that is known",
          "values that some data alone make wrong", "--case repeats the smallest case"),
    state("nan_lost", _SPECIAL, "NaN of the product is a number",
          "NaN replaced, or tiles of zeros skipped",
          "propagate it"),
    state("inf_lost", _SPECIAL, "Inf of the product is a number", "a clamp", "no clamp, or --spec"),
    state("special_spread", _SPECIAL, "NaN or Inf where nothing that is met has any",
          "lanes beyond the view are multiplied", "a mask, and other=0.0"),
    state("overflow", _SPECIAL, "a sum beyond the format is a number", "a clamp before the cast",
          "no clamp, or --spec"),
    state("bits_differ", ("same_bits_on_dirty_outputs", "row_bits_at_any_m"),
          "other bits in another call", "another split or order of the sum",
          "choose by shapes alone; for rows, by N and K alone"),
    state("stale", ("call_order",), "an earlier call changes a later one",
          "strides, grids or copies kept from the first call",
          "key caches by all that they depend on"),
    state("not_as_predicted", ("equals_prediction",), "a launch has other bits than predicted",
          "a product and a sum that may be fused, or not", "tl.fma(x, y, z)"),
)  # fmt: skip
# relations between calls, and sums
_RELATED = tuple(
    state(f"not_{name}", ("symmetries",), f"c of operands {text} is not c {text}", cause, fix)
    for name, text, cause, fix in (
        ("negated", "negated", "rounding that depends on the sign", "to nearest, or toward zero"),
        ("scaled", "scaled", "numbers added or clamped on the way", "state them: --spec"),
        ("permuted_rows", "permuted by rows", "something depends on the row", "the same for all"),
        ("permuted_columns", "permuted by columns", "something depends on the column",
         "the same for all"),
        ("padded_k", "padded with zeros along K", "lanes beyond K count", "other=0.0"),
        ("transposed", "transposed", "a and b are treated otherwise", "the same for both"),
    )
)  # fmt: skip
_SUMMED = (
    state("narrow_accumulator", _SUMS, "sums keep fewer bits than declared",
          "sums in fp16, or fp8 units",
          "fp32 sums, or --accumulator"),
    state("downcast_in_loop", _SUMS, "sums are rounded between blocks of K",
          "acc.to(tl.float16) in the loop",
          "cast once, after it"),
    state("narrow_split", _SUMS, "shares of K are added in fewer bits",
          "partials in the format of c",
          "partials in fp32"),
    state("narrow_operands", _SUMS, "fewer bits of the operands are read", "tf32 for fp32",
          'input_precision="ieee"'),
    state("truncated_output", _SUMS, "results are truncated", 'fp_downcast_rounding="rtz"',
          "to nearest, which is the default"),
    state("beyond_bound", _SUMS, "errors grow beyond the bound of what was declared",
          "a sum of another kind", "--accumulator says which"),
    state("no_product", _SUMS, "results are no product of a and b", "another formula, or a fault",
          "gemmproof check says which"),
)  # fmt: skip
# custom formulas: the misuse of an operand
_MISREAD = tuple(
    state(f"operand_{name}", _VALUES, f"as if an operand {text}", cause, fix)
    for name, text, cause, fix in (
        ("strides", "had other strides", "strides swapped or assumed", "x.stride(0), x.stride(1)"),
        ("transposed", "were transposed, or of the other axis", "rows for columns",
         "scale[:, None] for an entry a row"),
        ("broadcast", "had one entry everywhere", "no index", "load it by offs_m or offs_n"),
        ("shifted", "were one entry ahead or behind", "an index off by one", "as it is stated"),
        ("groups", "had groups of another size", "k // GROUP with another GROUP", "its own size"),
        ("wrapped", "were read modulo a block", "an index that lacks the block's number",
         "pid * BLOCK + arange(0, BLOCK)"),
        ("cut", "ended too early", "a mask or loop that stops early", "up to its size"),
        ("forgotten", "were 1 or 0", "it is never applied", "apply it once"),
        ("applied_twice", "were applied twice", "in the loop and after it", "apply it once"),
        ("multiplied", "were halved or doubled", "a factor too many", "as it is stated"),
        ("inverted", "were inverted", "divided for multiplied", "as --spec says"),
        ("off_by_one", "were one more or less", "zeros of packed weights off by one",
         "as --spec says"),
        ("negated", "were negated", "subtracted for added", "as --spec says"),
        ("replaced", "were another operand", "arguments in another order", "by name"),
        ("exchanged", "and another were exchanged", "arguments in another order", "by name"),
        ("sign", "were of the other signedness", "uint8 for int8", "a cast that keeps the sign"),
        ("nibbles", "had its nibbles in another order", "AWQ's order for GPTQ's", "its own order"),
        ("read", "were read where the formula does not", "no condition around its use",
         "read it only where it counts"),
    )
)  # fmt: skip
_MISUSED = state(
    "operands_misused", _VALUES, "two operands were forgotten or applied twice",
    "one takes the other's place", "each once, by name",
)  # fmt: skip

MISFITS = (*_WRONG, *_RELATED, *_SUMMED, *_MISREAD, _MISUSED)

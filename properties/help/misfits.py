"""Pages on classes of wrong values: what explains every element that is wrong."""

from __future__ import annotations

from gemmproof.properties.help.page import state

_VALUES = ("exact_on_integers", "within_bound")
_SPECIAL, _SUMS = ("special_values",), ("accumulator_as_declared",)

# what explains wrong values
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
    state(f"not_{name}", ("symmetries",), f"c of operands {words} is not c {words}", cause, fix)
    for name, words, cause, fix in (
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
# a formula of its own: what was done with an operand in its place
_MISREAD = tuple(
    state(f"operand_{name}", _VALUES, f"as if an operand {words}", cause, fix)
    for name, words, cause, fix in (
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

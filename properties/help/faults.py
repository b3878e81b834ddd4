"""Pages on faults that are seen as such: in launches, in how calls end, in what they leave."""

from __future__ import annotations

from gemmproof.properties.help.page import Example, FaultPage, state
from gemmproof.reference.simulation import KINDS

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
    name: str, holder: str, *causes: tuple[str, str], example: Example | None = None
) -> FaultPage:
    return FaultPage(name, (holder,), KINDS[name], causes, example)


# what an observer of a launch sees
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
# how calls end, and what they leave
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

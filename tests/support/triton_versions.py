"""The differences between the supported versions of Triton that tests depend on.

A test that holds for some of them only is marked with the name of a difference,
`@pytest.mark.triton("block_pointers")`, and deselected elsewhere; a table omits its row, or an
expected value follows `holds("block_pointers")`. No test compares versions itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton

Version = tuple[int, int]


@dataclass(frozen=True)
class Difference:
    """The behaviour of a library from version `first` to version `last`, in one sentence.

    Versions before `first` do it too with a numpy before `numpy`.
    """

    text: str
    first: Version = (0, 0)
    last: Version = (99, 99)
    library: str = "triton"
    numpy: Version | None = None


DIFFERENCES = {
    # -- Triton's language
    "block_pointers": Difference("tl.make_block_ptr is compiled.", last=(3, 8)),
    "approximate_division": Difference("tl.fdiv takes approx=True.", first=(3, 9)),
    "atomic_poll": Difference("tl.atomic_poll, atomic_load and atomic_store exist.", first=(3, 9)),
    "negation": Difference("-x of a float is arith.negf, not a subtraction.", first=(3, 8)),
    "ordered_cat": Difference("tl.cat keeps the order without can_reorder.", first=(3, 7)),
    "batches_of_scales": Difference("tl.dot_scaled takes scales of 3 axes.", first=(3, 7)),
    "leading_zeros_on_amd": Difference("libdevice has clz for AMD's GPUs.", first=(3, 8)),
    "line_of_a_call": Difference(
        "What is stored has the first line of its call, not that of the last argument.",
        first=(3, 8),
    ),
    # -- Triton's compiler
    "nvfp4_on_sm_90": Difference(
        "tl.dot_scaled of e2m1 with scales of 16 in e4m3 is compiled for sm_90.", first=(3, 8)
    ),
    "fp32_by_fma_on_gfx942": Difference(
        "Dots of fp32 that are too small for mfma are compiled for gfx942.", first=(3, 7)
    ),
    "int8_by_tcgen05": Difference("int8 on sm_100 is tcgen05.mma, not mma.sync.", first=(3, 8)),
    "wide_tiles_on_sm_100": Difference(
        "Tiles of 128x256 in two parts, of tf32 or int8, fit into the shared memory of sm_100.",
        first=(3, 9),
    ),
    "narrow_tiles_by_tcgen05": Difference(
        "Tiles of 64x64 of fp8, by pointers of 64 bits, are multiplied by tcgen05.mma on sm_100.",
        first=(3, 8),
    ),
    "conversions_of_the_target": Difference(
        "fp8 e5m2 is converted as its target does, not as the first target of the process.",
        first=(3, 7),
    ),
    "stack_of_grouped": Difference(
        "matmul_grouped of fp32 on sm_90 keeps 8 bytes of a thread in memory.", (3, 7), (3, 7)
    ),
    # -- Triton's interpreter
    "interpreter": Difference(
        "The interpreter runs kernels; that of 3.6 does so with an older numpy alone.",
        first=(3, 7),
        numpy=(2, 4),
    ),
    # -- pages and evidence
    "instructions_page": Difference(
        "docs/reference/instructions.md was measured with this version.", (3, 9), (3, 9)
    ),
    "compiled_in_readme": Difference("README.md shows what this version compiles.", (3, 7), (3, 7)),
    "record": Difference("tests/verdicts/record was made with this version.", (3, 7), (3, 7)),
    # -- torch
    "scales_of_rows_on_the_cpu": Difference(
        "torch._scaled_mm takes scales of rows on the CPU.", first=(2, 13), library="torch"
    ),
}


def version_of(text: str) -> Version:
    """Return the first two numbers of a version, which are all that differences depend on."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


INSTALLED = {x.__name__: version_of(x.__version__) for x in (np, torch, triton)}


def holds(name: str, version: Version | None = None) -> bool:
    """Return whether a difference holds with `version`, or with what is installed."""
    difference = DIFFERENCES[name]
    first = difference.first
    if version is None:
        version = INSTALLED[difference.library]
        if difference.numpy is not None and INSTALLED["numpy"] < difference.numpy:
            first = (0, 0)
    return first <= version <= difference.last

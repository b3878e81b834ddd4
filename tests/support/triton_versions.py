"""What the supported versions of Triton do differently, as far as tests depend on it.

A test that holds for some of them only is marked with the name of a difference,
`@pytest.mark.triton("block_pointers")`, and deselected elsewhere; a table leaves its row out, or
an expected value follows `holds("block_pointers")`. No test compares versions by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton

Version = tuple[int, int]

OLDEST, NEWEST = (3, 6), (3, 9)


@dataclass(frozen=True)
class Difference:
    """What Triton does from version `first` to version `last`, in one sentence."""

    words: str
    first: Version = OLDEST
    last: Version = NEWEST


DIFFERENCES = {
    "block_pointers": Difference("tl.make_block_ptr is compiled.", last=(3, 8)),
    "approximate_division": Difference("tl.fdiv takes approx=True.", first=(3, 9)),
    "atomic_poll": Difference("tl.atomic_poll, atomic_load and atomic_store exist.", first=(3, 9)),
    "negation": Difference("-x of a float is arith.negf, not a subtraction.", first=(3, 8)),
    "batches_of_scales": Difference("tl.dot_scaled takes scales of 3 axes.", first=(3, 7)),
    "nvfp4_on_sm_90": Difference(
        "tl.dot_scaled of e2m1 with scales of 16 in e4m3 is compiled for sm_90.", first=(3, 8)
    ),
    "int8_by_tcgen05": Difference("int8 on sm_100 is tcgen05.mma, not mma.sync.", first=(3, 8)),
    "stack_of_grouped": Difference(
        "matmul_grouped of fp32 on sm_90 keeps 8 bytes of a thread in memory.", (3, 7), (3, 7)
    ),
    "leading_zeros_on_amd": Difference("libdevice has clz for AMD's GPUs.", first=(3, 8)),
    "instructions_page": Difference(
        "docs/instructions.md was measured with this version.", first=(3, 9)
    ),
}


def version_of(text: str) -> Version:
    """Return the first two numbers of a version, which are all that differences depend on."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


INSTALLED = version_of(triton.__version__)


def holds(name: str, version: Version | None = None) -> bool:
    """Return whether a difference holds with `version`, or with the installed Triton."""
    difference = DIFFERENCES[name]
    return difference.first <= (version or INSTALLED) <= difference.last

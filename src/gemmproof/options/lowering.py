"""The options of `gemmproof lowering`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.lowering.record import PRECISIONS, PREVIEWED, USUAL_WARPS, WARPS
from gemmproof.options.groups import add_calling, add_limits, add_progress, natural, positive
from gemmproof.options.registered import add_registered
from gemmproof.properties.cases.layouts import LAYOUTS
from gemmproof.reference.formats import OPERANDS
from gemmproof.reference.gpus import DEFAULT, GPUS
from gemmproof.spelling import format_of, one_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    lowering = commands.add_parser(
        "lowering",
        help="see what a kernel was compiled to, for GPUs that are not there",
        description="Compile what the wrapper f(a, b) -> c launches, and tell which instructions,"
        " registers and copies it became; no GPU is needed.",
        epilog="exit code: 0 told, 2 bad usage or target, 3 something could not be compiled",
        allow_abbrev=False,
    )
    add_registered(lowering)
    lowering.add_argument(
        "--target", dest="gpus", action="append", type=one_of(*GPUS), metavar="GPU", default=None,
        help=f"compile for it, repeatable (default {DEFAULT}): {' '.join(GPUS)}",
    )  # fmt: skip
    lowering.add_argument(
        "--dtype", action="append", type=format_of(*PREVIEWED), metavar="FORMAT", default=None,
        help=f"format of a and b, repeatable (default fp16): {' '.join(OPERANDS)}",
    )  # fmt: skip
    lowering.add_argument(
        "--sizes", type=_read_sizes, metavar="AXIS=N,...", default={},
        help="of M, N, K and batch (default 1024 each, batch 4): M=4096,K=64",
    )  # fmt: skip
    lowering.add_argument(
        "--layouts", type=_read_layouts, metavar="OPERAND=LAYOUT,...", default={},
        help=f"of a and b (default row): {' '.join(LAYOUTS)}",
    )  # fmt: skip
    lowering.add_argument("--case", metavar="JSON", help="sizes, format and layouts of this case")
    lowering.add_argument(
        "--batched", action="store_true", help="3-D operands (the default for a function bmm)"
    )
    lowering.add_argument(
        "--config", type=one_of("first", "all"), metavar="WHICH", default="first",
        help="of an autotuned kernel: first, or all that its own pruning leaves (default first)",
    )  # fmt: skip
    lowering.add_argument(
        "--sweep", action="store_true",
        help="change one size, layout or operand at a time, and tell what each costs",
    )  # fmt: skip
    add_calling(lowering)
    _add_dot(lowering)
    lowering.add_argument("--jobs", type=positive, metavar="N", help="workers (default: CPUs)")
    lowering.add_argument("--json", metavar="FILE", help="write all of it (- for stdout)")
    add_progress(lowering)
    add_limits(lowering, 120)


def _add_dot(lowering: argparse.ArgumentParser) -> None:
    dot = lowering.add_argument_group("a dot of its own, in place of TARGET")
    dot.add_argument(
        "--dot", nargs=3, type=positive, metavar=("M", "N", "K"),
        help="see what tl.dot of a tile becomes in a plain loop over K; --dtype may then be "
        f"{' '.join(name for name in PREVIEWED if name not in OPERANDS)} too",
    )  # fmt: skip
    dot.add_argument(
        "--warps", action="append", type=_read_warps, metavar="N",
        help=f"of a block, repeatable (default {USUAL_WARPS})",
    )  # fmt: skip
    dot.add_argument("--stages", type=positive, metavar="N", help="of the loop's pipeline")
    dot.add_argument(
        "--precision", type=one_of(*PRECISIONS), metavar="PRECISION",
        help=f"input_precision, how fp32 is multiplied: {' '.join(PRECISIONS)}",
    )  # fmt: skip
    dot.add_argument(
        "--acc", type=format_of("fp32", "fp16"), metavar="FORMAT", help="of the sums: fp32 fp16"
    )
    dot.add_argument(
        "--max-num-imprecise-acc", type=natural, metavar="N",
        help="after how many k a sum of fp8 products is added in fp32, on GPUs with wgmma",
    )  # fmt: skip


def _read_warps(text: str) -> int:
    known = " ".join(map(str, WARPS))
    if text not in known.split():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected one of: {known}")
    return int(text)


def _read_sizes(text: str) -> dict[str, int]:
    sizes = dict(word.partition("=")[::2] for word in text.split(","))
    for axis, size in sizes.items():
        is_size = size.isascii() and size.isdigit() and 0 < int(size) < 2**31
        if axis not in ("M", "N", "K", "batch") or not is_size:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected such as M=4096,N=4096,K=64")
    return {axis: int(size) for axis, size in sizes.items()}


def _read_layouts(text: str) -> dict[str, str]:
    layouts = dict(word.partition("=")[::2] for word in text.split(","))
    for name, layout in layouts.items():
        if name not in ("a", "b") or layout not in LAYOUTS:
            known = " ".join(LAYOUTS)
            raise argparse.ArgumentTypeError(
                f"got {text!r}, expected such as b=transposed, of: {known}"
            )
    return layouts

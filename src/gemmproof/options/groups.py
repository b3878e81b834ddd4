"""The options that commands share, by group, and the parsers of their values."""

from __future__ import annotations

import argparse

from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
from gemmproof.reference.gpus import GPUS, TARGETS, UNMODELLED
from gemmproof.settings import EXAMPLES, PROVES
from gemmproof.spelling import format_of, one_of

TARGET = "file.py:function or module:function"
MOST_SECONDS = 60.0


def add_stated(command: argparse.ArgumentParser, expects: bool = False) -> None:
    """Add the options for a kernel that no conftest.py registers."""
    _add_contract(command)
    if expects:
        _add_expected(command)
    add_calling(command)


def _add_contract(command: argparse.ArgumentParser) -> None:
    contract = command.add_argument_group("what the kernel promises")
    contract.add_argument(
        "--dtype", action="append", type=format_of(*OPERANDS), metavar="FORMAT", default=None,
        help=f"format of a and b, repeatable (default fp16): {' '.join(OPERANDS)}",
    )  # fmt: skip
    contract.add_argument(
        "--sizes", type=_read_sizes, default={}, metavar="AXIS=SIZES,...",
        help="of M, N, K and batch (default from 1): M=1..4096,K=16..:16,N=1",
    )  # fmt: skip
    contract.add_argument(
        "--where", metavar="CONDITION", help='on the sizes besides: "K %% 32 == 0 and M <= N"'
    )
    contract.add_argument(
        "--layouts", type=one_of("contiguous", "any"), metavar="LAYOUTS", default="contiguous",
        help="views of a and b: row-major and dense (default), or any with offsets below 2**31",
    )  # fmt: skip
    contract.add_argument(
        "--huge", action="store_true", help="offsets from 2**31 too, of c and of any views"
    )
    contract.add_argument(
        "--batched", action="store_true", help="3-D operands (the default for a function bmm)"
    )
    contract.add_argument(
        "--accumulator", type=format_of(*ACCUMULATORS), metavar="FORMAT", default="fp32",
        help="the format that sums are kept in (default fp32)",
    )  # fmt: skip
    contract.add_argument(
        "--out-dtype",
        type=format_of(*RESULTS),
        metavar="FORMAT",
        help="of c (default: whatever it is)",
    )
    contract.add_argument(
        "--any-order", action="store_true", help="bits may depend on the order of programs"
    )
    contract.add_argument(
        "--batch-invariant", action="store_true", help="the bits of a row do not depend on M"
    )
    contract.add_argument(
        "--tensor-cores", action="store_true", help="every dot is compiled to tensor cores"
    )
    contract.add_argument(
        "--spills", type=natural, metavar="BYTES", help="of a thread that are spilled, at most"
    )
    contract.add_argument(
        "--fits", action="extend", type=_read_gpus, metavar="GPU,...", default=None,
        help="compiled for these GPUs, it has room there; they are those of the two above too",
    )  # fmt: skip


def _add_expected(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--expect", action="append", type=_read_expected, metavar="PROPERTY=REASON", default=[],
        help="what is known not to hold, and why, repeatable; that it holds is a finding",
    )  # fmt: skip


def _read_expected(text: str) -> tuple[str, str]:
    name, _, reason = text.partition("=")
    if not name.strip() or not reason.strip():
        example = "stays_in_bounds=reads past K by one, issue 12"
        raise argparse.ArgumentTypeError(f"got {text!r}, expected such as {example!r}")
    return name.strip(), reason.strip()


def add_calling(command: argparse.ArgumentParser) -> None:
    calling = command.add_argument_group("how the wrapper is called, and what c is")
    calling.add_argument(
        "--operand", action="append", default=[], metavar="NAME=...",
        help="taken by name besides a and b, repeatable: scale=fp32[M], ids=int32[M] 0..7,"
        " bias=bf16[N] optional, out=bf16[M, N] written, alpha=1.0|0.5",
    )  # fmt: skip
    calling.add_argument(
        "--spec", metavar="FORMULA", help='what c is: "(a @ b) * scale[:, None] + bias"'
    )
    calling.add_argument(
        "--call", metavar="CALL", help='in the target\'s names: "linear(a, b.t(), bias)"'
    )


def _read_gpus(text: str) -> tuple[str, ...]:
    return tuple(map(one_of(*GPUS), text.split(",")))


def _read_sizes(text: str) -> dict[str, str]:
    sizes = dict(word.partition("=")[::2] for word in text.split(","))
    for axis in sizes:
        if axis not in ("M", "N", "K", "batch"):
            raise argparse.ArgumentTypeError(f"got {text!r}, expected such as M=1..4096,K=16..:16")
    return sizes


def add_search(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--max-examples", type=positive, default=EXAMPLES, metavar="N",
        help=f"cases (default {EXAMPLES})",
    )  # fmt: skip
    command.add_argument("--seed", type=natural, default=0, metavar="S", help="default 0")
    command.add_argument(
        "--target", dest="gpu", type=one_of(*TARGETS, *UNMODELLED), metavar="GPU",
        help=f"predict this GPU's dot products (default exact IEEE): {' '.join(TARGETS)};"
        f" compile for it, with IEEE ones: {' '.join(UNMODELLED)}",
    )  # fmt: skip


def add_common(command: argparse.ArgumentParser) -> None:
    add_search(command)
    command.add_argument(
        "--device", type=one_of("cpu", "cuda"), metavar="DEVICE", default="cpu",
        help="cuda: launch what held on the GPU as well (default cpu: simulate only)",
    )  # fmt: skip
    command.add_argument("--case", metavar="JSON", help="judge this case only")
    command.add_argument("--json", metavar="FILE", help="write the report (- for stdout)")
    command.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")
    command.add_argument(
        "--sarif", metavar="FILE", help="write the findings that have a line as SARIF 2.1.0"
    )
    command.add_argument(
        "--codequality", metavar="FILE", help="write them as GitLab's code quality report"
    )
    command.add_argument(
        "--annotations", type=one_of("auto", "github", "none"), metavar="HOW", default="auto",
        help="github: annotate lines, and append to the job's summary (default: within its jobs)",
    )  # fmt: skip
    command.add_argument(
        "--proof", action=argparse.BooleanOptionalAction, default=PROVES,
        help="first try to decide for every size what a solver can (default)",
    )  # fmt: skip
    command.add_argument(
        "--premise", action="store_true",
        help="compile each launch that --target predicts, and compare it with the prediction",
    )  # fmt: skip
    add_kept(command)
    add_limits(command, 30)


def add_progress(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="do not say on stderr how far it is")


def add_kept(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kept", metavar="DIR", default=None,
        help="where failing cases are kept, to be tried first the next time (default .gemmproof"
        " beside the nearest pyproject.toml or conftest.py)",
    )  # fmt: skip
    command.add_argument(
        "--no-kept", dest="kept", action="store_false", help="keep none, and try none first"
    )


def add_limits(command: argparse.ArgumentParser, seconds: int) -> None:
    limits = command.add_argument_group("limits of a worker")
    limits.add_argument(
        "--time-limit", type=positive, default=seconds, metavar="S",
        help=f"counted seconds a call, or without a sign of life (default {seconds})",
    )  # fmt: skip
    limits.add_argument(
        "--memory-limit", type=positive, default=8, metavar="GIB", help="GiB in all (default 8)"
    )


def positive(text: str) -> int:
    return _read_integer(text, 1)


def natural(text: str) -> int:
    return _read_integer(text, 0)


def _read_integer(text: str, least: int) -> int:
    most = 2**31 - 1
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer {least}..{most}")
    return int(text)


def read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:  # NaN is not within either
        raise argparse.ArgumentTypeError(f"got {text!r}, expected seconds of 0..{MOST_SECONDS:g}")
    return seconds

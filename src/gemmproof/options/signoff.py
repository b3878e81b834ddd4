"""The options of `gemmproof signoff`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gemmproof.options.groups import add_common, add_progress, positive
from gemmproof.report.text import clean
from gemmproof.spelling import one_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    signoff = commands.add_parser(
        "signoff",
        help="judge every kernel of a project",
        description="Judge every kernel that pytest_gemm_kernels() of a conftest.py registers.",
        epilog="exit code: 0 every property held, 1 findings, 2 bad usage or target, 3 incomplete",
        allow_abbrev=False,
    )
    signoff.add_argument("--conftest", default="conftest.py", metavar="FILE")
    signoff.add_argument(
        "--kernel", action="append", metavar="NAME", help="only this one, repeatable"
    )
    signoff.add_argument("--jobs", type=positive, metavar="N", help="workers (default: CPUs)")
    signoff.add_argument(
        "--fail-fast", action="store_true", help="stop at the first kernel with findings"
    )
    signoff.add_argument(
        "--watch", action="store_true", help="judge again whenever a file of the kernels changes"
    )
    add_progress(signoff)
    add_common(signoff)
    page = signoff.add_argument_group("the sign-off")
    page.add_argument("--html", metavar="FILE", help="write it as a page, one file")
    page.add_argument(
        "--markdown", metavar="FILE", help="write it as a comment for a merge request"
    )
    page.add_argument(
        "--baseline", type=_read_baseline, metavar="FILE",
        help="compare with the --json of an earlier run; what is lost since then is refused",
    )  # fmt: skip
    page.add_argument(
        "--accept", action="append", type=_read_accepted, default=[], metavar="KIND[:KERNEL]",
        help="sign in spite of what a baseline shows, repeatable: bits drift kernel limit"
        " mutation promise proof property",
    )  # fmt: skip
    page.add_argument(
        "--drift", action="store_true",
        help="measure what each format is summed in, as `gemmproof drift` does: seconds each",
    )  # fmt: skip
    page.add_argument(
        "--bench", type=_read_bench, metavar="FILE",
        help="ratios from the --json of `gemmproof bench`, of the same source",
    )  # fmt: skip
    page.add_argument(
        "--mutation", type=_read_mutation, metavar="FILE",
        help="scores from the --json of `gemmproof mutate`, of the same source",
    )  # fmt: skip


def _read_baseline(name: str) -> Any:
    # read immediately: --json may name the same file
    from gemmproof.signoff.verdict import read_baseline

    return _read(read_baseline, name)


def _read_bench(name: str) -> Any:
    from gemmproof.signoff.verdict import read_bench

    return _read(read_bench, name)


def _read_mutation(name: str) -> Any:
    from gemmproof.signoff.verdict import read_mutation

    return _read(read_mutation, name)


def _read_accepted(text: str) -> str:
    from gemmproof.signoff.rules import ACCEPTED

    one_of(*ACCEPTED)(text.partition(":")[0])
    return text


def _read(read: Callable[[str], Any], name: str) -> Any:
    try:
        return read(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(clean(str(error))) from None

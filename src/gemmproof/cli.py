"""The command `gemmproof`: its options, its answer and its exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from gemmproof import __version__
from gemmproof.cli_bench import add_bench, add_tune
from gemmproof.cli_drift import add_drift
from gemmproof.cli_explain import add_explain
from gemmproof.interrupts import Interrupted, heed_signals
from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.report.report import EXIT
from gemmproof.settings import PROVES, find_settings, list_words
from gemmproof.spelling import format_of, one_of, require_one, suggest
from gemmproof.streams import flush_streams, open_streams, say


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong; argparse itself prints the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT["error"], f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0 pass, 1 findings, 2 usage or target, 3 incomplete.

    128 and the number of a signal that ended it: 130 for Ctrl-C.
    """
    typed = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        with heed_signals():
            options = _parse(typed)
            command = import_module(f"gemmproof.commands.{options.command}")
            return int(command.run(options))
    except Interrupted as stop:
        say(f"{' '.join(['gemmproof', *typed[:1]])}: {stop}")
        return 128 + stop.number
    finally:
        flush_streams()


def _parse(typed: list[str]) -> argparse.Namespace:
    """The options: those of [tool.gemmproof] that the command has, replaced by those typed."""
    top = parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    words = {name: set(command._option_string_actions) for name, command in commands.items()}
    if typed and typed[0] not in words and not typed[0].startswith("-"):
        try:
            require_one(typed[0], words)
        except ValueError as mistake:
            top.error(f"command: {mistake}")
    if typed and typed[0] in words:
        where = ""
        try:
            where, settings = find_settings(Path.cwd())
            known = {word for options in words.values() for word in options if word[:2] == "--"}
            typed[1:1] = list_words(settings, known - {"--help"}, words[typed[0]], typed)
        except ValueError as mistake:
            place = f"{where} [tool.gemmproof]: " if where else ""
            top.exit(EXIT["error"], f"gemmproof {typed[0]}: {place}{mistake}\n")
    options, unknown = top.parse_known_args(typed)
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        close = suggest(word.partition("=")[0], sorted(words[options.command] - {"-h"}))
        got = f"got {word!r}, which is no option of {options.command}{close}"
        commands[options.command].error(got)
    return options


def parser() -> argparse.ArgumentParser:
    """The options of every command."""
    top = _Parser(prog="gemmproof", description="Says whether a Triton GEMM kernel is right.")
    top.add_argument("--version", action="version", version=f"gemmproof {__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)

    check = commands.add_parser(
        "check",
        help="judge one kernel",
        description="Judge the wrapper f(a, b) -> c of a Triton GEMM kernel; no GPU is needed.",
        epilog="exit code: 0 every property held, 1 findings, 2 bad usage or target, 3 incomplete",
        allow_abbrev=False,
    )
    check.add_argument("target", metavar="TARGET", help="file.py:function or module:function")
    _add_contract(check)
    _add_calling(check)
    _add_common(check)

    _add_widest(commands)
    add_explain(commands, (_add_contract, _add_calling), _natural, _add_limits)
    add_drift(commands, _add_limits)
    add_bench(commands, _add_calling, _positive, _add_limits)
    add_tune(commands, _positive, _add_limits)
    _add_init(commands)

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
    signoff.add_argument("--jobs", type=_positive, metavar="N", help="workers (default: CPUs)")
    _add_common(signoff)
    return top


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


def _add_calling(command: argparse.ArgumentParser) -> None:
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


def _read_sizes(text: str) -> dict[str, str]:
    words = dict(word.partition("=")[::2] for word in text.split(","))
    for axis in words:
        if axis not in ("M", "N", "K", "batch"):
            raise argparse.ArgumentTypeError(f"got {text!r}, expected such as M=1..4096,K=16..:16")
    return words


def _add_widest(commands: argparse._SubParsersAction[_Parser]) -> None:
    widest = commands.add_parser(
        "contract",
        help="find the widest contract that a kernel keeps",
        description="Find the widest contract that f(a, b) -> c keeps, from the stated one on.",
        epilog="exit code: 0 found, 1 findings within the stated one, 2 bad usage or target,"
        " 3 incomplete",
        allow_abbrev=False,
    )
    widest.add_argument("target", metavar="TARGET", help="file.py:function or module:function")
    _add_contract(widest)
    _add_calling(widest)
    _add_search(widest)
    widest.add_argument("--jobs", type=_positive, metavar="N", help="workers (default: CPUs)")
    _add_limits(widest, 30)
    widest.set_defaults(device="cpu", case=None, json=None, junit=None, proof=False)


def _add_init(commands: argparse._SubParsersAction[_Parser]) -> None:
    init = commands.add_parser(
        "init",
        help="write the files by which pytest judges a kernel",
        description="Write conftest.py and test_gemm.py for the wrapper f(a, b) -> c of a kernel.",
        epilog="exit code: 0 written, 2 bad usage or target, or a file in the way",
        allow_abbrev=False,
    )
    init.add_argument("target", metavar="TARGET", help="file.py:function or module:function")
    _add_contract(init)
    _add_calling(init)
    init.add_argument(
        "--directory", default=".", metavar="DIR", help="where to (default: the current folder)"
    )
    init.add_argument(
        "--force", action="store_true", help="overwrite either file where it is there already"
    )


def _add_search(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--max-examples", type=_positive, default=100, metavar="N", help="cases (default 100)"
    )
    command.add_argument("--seed", type=_natural, default=0, metavar="S", help="default 0")
    command.add_argument(
        "--target", dest="gpu", type=one_of(*TARGETS, *UNMODELLED), metavar="GPU",
        help=f"predict this GPU's dot products (default exact IEEE): {' '.join(TARGETS)};"
        f" compile for it, with IEEE ones: {' '.join(UNMODELLED)}",
    )  # fmt: skip


def _add_common(command: argparse.ArgumentParser) -> None:
    _add_search(command)
    command.add_argument(
        "--device", type=one_of("cpu", "cuda"), metavar="DEVICE", default="cpu",
        help="cuda: launch what held on the GPU as well (default cpu: simulate only)",
    )  # fmt: skip
    command.add_argument("--case", metavar="JSON", help="judge this case only")
    command.add_argument("--json", metavar="FILE", help="write the report (- for stdout)")
    command.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML")
    command.add_argument(
        "--proof", action=argparse.BooleanOptionalAction, default=PROVES,
        help="first try to decide for every size what a solver can (default)",
    )  # fmt: skip
    _add_limits(command, 30)


def _add_limits(command: argparse.ArgumentParser, seconds: int) -> None:
    limits = command.add_argument_group("limits of a worker")
    limits.add_argument(
        "--time-limit", type=_positive, default=seconds, metavar="S",
        help=f"CPU seconds a call, seconds without a sign of life (default {seconds})",
    )  # fmt: skip
    limits.add_argument(
        "--memory-limit", type=_positive, default=8, metavar="GIB", help="GiB in all (default 8)"
    )


def _positive(text: str) -> int:
    return _integer(text, 1)


def _natural(text: str) -> int:
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    most = 2**31 - 1
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer {least}..{most}")
    return int(text)

"""A kernel that a conftest.py registers, in place of TARGET: its options, and their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gemmproof.options.groups import TARGET

# the options that a conftest.py replaces: how its kernels are called,
CALLING: Mapping[str, Any] = MappingProxyType(
    {"batched": False, "operand": [], "spec": None, "call": None}
)
# and their contracts as well
STATED: Mapping[str, Any] = MappingProxyType(
    {
        "sizes": {},
        "where": None,
        "layouts": "contiguous",
        "huge": False,
        "accumulator": "fp32",
        "out_dtype": None,
        "any_order": False,
        "batch_invariant": False,
        "tensor_cores": False,
        "spills": None,
        "fits": None,
        **CALLING,
    }
)


def add_registered(command: argparse.ArgumentParser, several: bool = False) -> None:
    """Add TARGET, or --kernel in its place; of `several` it is repeatable."""
    command.add_argument("target", metavar="TARGET", nargs="?", help=f"{TARGET}, or --kernel")
    command.add_argument("--conftest", default="conftest.py", metavar="FILE")
    what = "one that the conftest.py registers, in place of TARGET"
    more: dict[str, Any] = {"action": "append", "default": []} if several else {}
    what += ", repeatable" * several
    command.add_argument("--kernel", metavar="NAME", help=what, **more)


def is_registered(options: argparse.Namespace, declared: Mapping[str, Any] = STATED) -> bool:
    """Return whether --kernel is given in place of TARGET.

    Raises ValueError, in one line, for both and for neither, for a missing conftest.py,
    for options that it replaces (`stated`, by their default values), and for several formats.
    """
    if (options.target is None) == (not options.kernel):
        got = "both" if options.target else "neither"
        raise ValueError(f"target: got {got} of TARGET and --kernel, expected one of them")
    if not options.kernel:
        return False
    if not Path(options.conftest).is_file():
        got = f"{options.conftest!r} (no such file)"
        raise ValueError(f"--conftest: got {got}, expected a conftest.py that registers kernels")
    for word, usual in declared.items():
        if getattr(options, word) != usual:
            option = word.replace("_", "-")
            raise ValueError(f"--{option}: got it with --kernel, expected it in {options.conftest}")
    if len(formats := options.dtype or ()) > 1:
        raise ValueError(f"--dtype: got {' '.join(formats)} with --kernel, expected one at most")
    return True


def ask_registered(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the fields of a worker's request that select the kernel, and one format of it."""
    return {"name": name, "conftest": options.conftest, "format": (options.dtype or [""])[0]}


def label_registered(options: argparse.Namespace, name: str) -> list[str]:
    """Return the arguments of a command line that select it."""
    # a separate argument that looks like an option is parsed as one
    arguments = [f"--kernel={name}"] if name.startswith("-") else ["--kernel", name]
    usual = options.conftest == "conftest.py"
    return arguments if usual else [*arguments, "--conftest", options.conftest]

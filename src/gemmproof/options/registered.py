"""A kernel that a conftest.py registers, named in place of TARGET: its options, and their words."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gemmproof.options.groups import TARGET

# what a conftest.py says of its kernels, where nobody types it: how they are called,
CALLING: Mapping[str, Any] = MappingProxyType(
    {"batched": False, "operand": [], "spec": None, "call": None}
)
# and all that they promise as well
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
    """TARGET, or --kernel in its place; of `several` it is repeatable."""
    command.add_argument("target", metavar="TARGET", nargs="?", help=f"{TARGET}, or --kernel")
    command.add_argument("--conftest", default="conftest.py", metavar="FILE")
    what = "one that the conftest.py registers, in place of TARGET"
    more: dict[str, Any] = {"action": "append", "default": []} if several else {}
    what += ", repeatable" * several
    command.add_argument("--kernel", metavar="NAME", help=what, **more)


def is_registered(options: argparse.Namespace, stated: Mapping[str, Any] = STATED) -> bool:
    """Whether --kernel stands in place of TARGET.

    Raises ValueError, in one line, for both and for neither, for a conftest.py that is not there,
    for what it says itself (`stated`, by the options' usual values), and for several formats.
    """
    if (options.target is None) == (not options.kernel):
        got = "both" if options.target else "neither"
        raise ValueError(f"target: got {got} of TARGET and --kernel, expected one of them")
    if not options.kernel:
        return False
    if not Path(options.conftest).is_file():
        got = f"{options.conftest!r} (no such file)"
        raise ValueError(f"--conftest: got {got}, expected a conftest.py that registers kernels")
    for word, usual in stated.items():
        if getattr(options, word) != usual:
            option = word.replace("_", "-")
            raise ValueError(f"--{option}: got it with --kernel, expected it in {options.conftest}")
    if len(formats := options.dtype or ()) > 1:
        raise ValueError(f"--dtype: got {' '.join(formats)} with --kernel, expected one at most")
    return True


def ask_registered(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The fields of a worker's request that say which kernel, and which format of it."""
    return {"name": name, "conftest": options.conftest, "format": (options.dtype or [""])[0]}


def label_registered(options: argparse.Namespace, name: str) -> list[str]:
    """The words of a command line that name it."""
    # a name that looks like an option is taken as one, where it stands alone
    words = [f"--kernel={name}"] if name.startswith("-") else ["--kernel", name]
    usual = options.conftest == "conftest.py"
    return words if usual else [*words, "--conftest", options.conftest]

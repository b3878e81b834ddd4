"""`gemmproof list`: what there is to judge, to judge by and to judge for."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmproof.commands.output import answer, limits_of, refuse, unwritable
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT
from gemmproof.report.text import Line, clean
from gemmproof.spelling import write_command
from gemmproof.target import TARGET_FORM
from gemmproof.wrappers import Wrapper, find_wrappers

HOOK = b"pytest_gemm_kernels"


def run(options: argparse.Namespace) -> int:
    """Print the lists, write them where that was asked for."""
    if problem := unwritable(options, ("json",)):
        return refuse(options, problem)
    try:
        if options.file is not None:
            found = find_wrappers(_require_file(options.file))
            data: Any = [asdict(wrapper) for wrapper in found]
            said = list_wrappers(options.file, found)
        else:
            data = _list_all(options)
            said = _write_all(data)
    except ValueError as mistake:
        return refuse(options, str(mistake))
    written: dict[str, Writer] = {"json": lambda place: write_json(place, data)}
    return answer(options, EXIT["pass"], said, written)


def list_wrappers(file: str, found: list[Wrapper]) -> list[Line]:
    """A line for each wrapper: the command that judges it, and what that lacks."""
    if not found:
        return [(clean(f"{file}: no function that takes two tensors and launches a kernel"), "")]
    said = []
    for one in found:
        line = write_command(["gemmproof", "check", f"{file}:{one.name}"])
        takes = f"  # takes {', '.join(one.needs)} too: --operand, --spec" if one.needs else ""
        unseen = "" if one.launches else "  # launches no kernel of this file"
        said.append((line + clean(takes or unseen), ""))
    return said


def find_only_wrapper(file: str) -> tuple[str, list[Line]]:
    """The target that is the only wrapper in a file; the file and all in it where it is not.

    Raises ValueError, in one line, for a file that cannot be read, or has none.
    """
    found = find_wrappers(_require_file(file, "target"))
    if not found:
        why = "which has no function that takes two tensors and launches a kernel"
        raise ValueError(f"target: got {file!r}, {why}, expected {TARGET_FORM}")
    if len(found) == 1 and found[0].launches:
        return f"{file}:{found[0].name}", []
    return file, list_wrappers(file, found)


def _require_file(name: str, label: str = "file") -> Path:
    if not Path(name).is_file():
        what = "a folder" if Path(name).is_dir() else "no such file"
        raise ValueError(f"{label}: got {name!r} ({what}), expected a Python file")
    return Path(name)


def _list_all(options: argparse.Namespace) -> dict[str, Any]:
    """Everything as plain data. Raises ValueError for a conftest.py that cannot be loaded."""
    from gemmproof.bench.problems import SUITES
    from gemmproof.properties.help.pages import CLAIMS
    from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
    from gemmproof.reference.gpus import GPUS

    return {
        "properties": [{"name": name, "claim": claim} for name, claim in CLAIMS.items()],
        "conftest": options.conftest,
        "kernels": _list_kernels(options),
        "targets": [
            {"name": gpu.name, "card": gpu.card, "predicted": bool(gpu.cores)}
            for gpu in GPUS.values()
        ],
        "formats": {"operands": OPERANDS, "accumulators": ACCUMULATORS, "results": RESULTS},
        "suites": {name: [p.sides for p in suite] for name, suite in SUITES.items()},
    }


def _list_kernels(options: argparse.Namespace) -> list[dict[str, Any]]:
    from gemmproof.worker.protocol import Request
    from gemmproof.worker.supervisor import watch

    path = Path(options.conftest)
    usual = options.conftest == "conftest.py"
    if not path.is_file() and usual:
        return []
    conftest = _require_file(options.conftest, "--conftest")
    if usual and HOOK not in conftest.read_bytes():
        return []
    worker = watch(Request(ask="list", conftest=options.conftest), limits_of(options))
    if failure := worker.explain_failure(options.conftest):
        raise ValueError(failure)
    told = worker.events["kernels"]
    return [
        {"name": name, "formats": formats, "device_only": name in told["alone"]}
        for name, formats in zip(told["names"], told["formats"], strict=True)
    ]


def _write_all(data: Mapping[str, Any]) -> list[Line]:
    kernels = (
        (one["name"], " ".join(one["formats"]) + " (on a GPU only)" * one["device_only"])
        for one in data["kernels"]
    )
    targets = (
        (one["name"], one["card"] + " (its bits are not predicted)" * (not one["predicted"]))
        for one in data["targets"]
    )
    formats = ((name, " ".join(names)) for name, names in data["formats"].items())
    suites = ((name, " ".join(sides)) for name, sides in data["suites"].items())
    properties = ((one["name"], one["claim"]) for one in data["properties"])
    none = f"{data['conftest']} registers none here; gemmproof init writes one"
    return [
        *_section("properties: gemmproof explain NAME", properties),
        *_section("kernels: gemmproof signoff --kernel NAME", kernels, none),
        *_section("targets: --target NAME", targets),
        *_section("formats: --dtype, --accumulator, --out-dtype", formats),
        *_section("suites of shapes: gemmproof bench TARGET --shapes NAME", suites),
    ][:-1]


def _section(title: str, rows: Iterable[tuple[str, str]], none: str = "") -> Iterable[Line]:
    yield title, "bold"
    listed = [(clean(name), clean(text)) for name, text in rows]
    wide = max((len(name) for name, _ in listed), default=0)
    room = max(40, shutil.get_terminal_size((100, 24)).columns - wide - 5)
    for name, text in listed:
        for part in textwrap.wrap(text, room) or [""]:
            yield f"  {name:<{wide}}  {part}".rstrip(), ""
            name = ""
    if not listed and none:
        yield clean(f"  {none}"), ""
    yield "", ""

"""`gemmproof list`: the properties, kernels, targets, formats and suites, or a file's wrappers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse, unwritable
from gemmproof.options import Command, argument, group
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT
from gemmproof.report.text import Line, clean, format_table
from gemmproof.spelling import write_command
from gemmproof.target import TARGET_FORM
from gemmproof.wrappers import Wrapper, find_wrappers

if TYPE_CHECKING:
    from gemmproof.worker.load_kernel import RegisteredKernel

HOOK = b"pytest_gemm_kernels"


@dataclass(frozen=True, slots=True)
class ListedProperty:
    """A property, and its claim."""

    name: str
    claim: str


@dataclass(frozen=True, slots=True)
class ListedTarget:
    """A GPU, the card that has it, and whether its bits are predicted."""

    name: str
    card: str
    predicted: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The document of a run without a file: the registered kernels, and the values of options.

    `formats` are those of operands, accumulators and results; `suites` have the sides of products.
    """

    properties: tuple[ListedProperty, ...]
    conftest: str
    kernels: tuple[RegisteredKernel, ...] = field(metadata={"late": "gemmproof.worker.load_kernel"})
    targets: tuple[ListedTarget, ...]
    formats: Mapping[str, tuple[str, ...]]
    suites: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of `gemmproof list`."""

    command: ClassVar = Command(
        "list",
        help="list properties, kernels, targets and formats, or the wrappers in a file",
        description="List the properties, the kernels that conftest.py registers, the"
        " targets, the formats and the suites of shapes. Given a file, list the wrappers in"
        " it instead; the file is parsed, not run.",
        examples=(
            "gemmproof list",
            "gemmproof list my_kernels.py",
        ),
        exits="0 listed, 2 bad usage, or a file that cannot be read",
    )

    file: str | None = argument("FILE", "list the wrappers in this file", default=None)
    conftest: str = groups.conftest_option()
    json: str | None = groups.output_file("also write the list as JSON (- for stdout)")
    worker: groups.WorkerOptions = group(groups.WorkerOptions())


def run(options: ListOptions) -> int:
    """Print the lists, write them if requested."""
    if problem := unwritable(options):
        return refuse(options, problem)
    try:
        if options.file is not None:
            wrappers = find_wrappers(_require_file(options.file))
            data: object = wrappers
            text = list_wrappers(options.file, wrappers)
        else:
            data = listing = _list_all(options)
            text = _write_all(listing)
    except ValueError as error:
        return refuse(options, str(error))
    written: dict[str, Writer] = {"json": lambda path: write_json(path, data)}
    return answer(options, EXIT["pass"], text, written)


def list_wrappers(file: str, wrappers: list[Wrapper]) -> list[Line]:
    """Return a line for each wrapper: the command that judges it, and what that lacks."""
    if not wrappers:
        return [(clean(f"{file}: no function that takes two tensors and launches a kernel"), "")]
    out = []
    for wrapper in wrappers:
        line = write_command(["gemmproof", "check", f"{file}:{wrapper.name}"])
        takes = (
            f"  # takes {', '.join(wrapper.needs)} too: --operand, --spec" if wrapper.needs else ""
        )
        unseen = "" if wrapper.launches else "  # launches no kernel in this file"
        out.append((line + clean(takes or unseen), ""))
    return out


def find_only_wrapper(file: str) -> tuple[str, list[Line]]:
    """Return the target that is the only wrapper in a file; else the file and all its wrappers.

    Raises ValueError, in one line, for a file that cannot be read, or has none.
    """
    wrappers = find_wrappers(_require_file(file, "target"))
    if not wrappers:
        reason = "which has no function that takes two tensors and launches a kernel"
        step = "write one, or name the function that launches"
        raise ValueError(f"target: got {file!r}, {reason}: {step}, as {TARGET_FORM}")
    if len(wrappers) == 1 and wrappers[0].launches:
        return f"{file}:{wrappers[0].name}", []
    return file, list_wrappers(file, wrappers)


def _require_file(name: str, label: str = "file") -> Path:
    if not Path(name).is_file():
        what = "a folder" if Path(name).is_dir() else "no such file"
        raise ValueError(f"{label}: got {name!r} ({what}), expected a Python file")
    return Path(name)


def _list_all(options: ListOptions) -> Listing:
    """Return everything. Raises ValueError if conftest.py cannot be loaded."""
    from gemmproof.bench.problems import SUITES
    from gemmproof.properties.help import read_properties
    from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
    from gemmproof.reference.gpus import GPUS

    pages = read_properties().values()
    return Listing(
        properties=tuple(ListedProperty(page.name, page.claim) for page in pages),
        conftest=options.conftest,
        kernels=_list_kernels(options),
        targets=tuple(ListedTarget(x.name, x.card, bool(x.cores)) for x in GPUS.values()),
        formats={"operands": OPERANDS, "accumulators": ACCUMULATORS, "results": RESULTS},
        suites={name: tuple(p.sides for p in suite) for name, suite in SUITES.items()},
    )


def _list_kernels(options: ListOptions) -> tuple[RegisteredKernel, ...]:
    path = Path(options.conftest)
    usual = options.conftest == "conftest.py"
    if not path.is_file() and usual:
        return ()
    conftest = _require_file(options.conftest, "--conftest")
    if usual and HOOK not in conftest.read_bytes():
        return ()
    return groups.list_registered(options.conftest, options.worker.limits)


def _write_all(listing: Listing) -> list[Line]:
    kernels = (
        (kernel.name, " ".join(kernel.formats) + " (on a GPU only)" * kernel.device_only)
        for kernel in listing.kernels
    )
    targets = (
        (gpu.name, gpu.card + " (bits not predicted)" * (not gpu.predicted))
        for gpu in listing.targets
    )
    formats = ((name, " ".join(names)) for name, names in listing.formats.items())
    suites = ((name, " ".join(sides)) for name, sides in listing.suites.items())
    properties = ((p.name, p.claim) for p in listing.properties)
    none = f"{listing.conftest} registers no kernel; gemmproof init writes one"
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
    width = max(72, shutil.get_terminal_size((100, 24)).columns) - 3
    for line in format_table(listed, "ll", width=width):
        yield f"  {line}", ""
    if not listed and none:
        yield clean(f"  {none}"), ""
    yield "", ""

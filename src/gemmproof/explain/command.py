"""`gemmproof explain`: a kernel's reads and writes, in closed form; or the page on a property."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from gemmproof.commands import groups
from gemmproof.commands.output import answer, answer_death, refuse, undrawable, unwritable
from gemmproof.options import Command, argument, group, option
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, clean
from gemmproof.spelling import one_of, suggest
from gemmproof.target import Calling, TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.supervisor import watch

if TYPE_CHECKING:
    from gemmproof.properties.address_map.picture import Picture

EXPLAIN = "gemmproof.explain.task:explain_addresses"


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """The options of `gemmproof explain`."""

    command: ClassVar = Command(
        "explain",
        help="print what a kernel reads and writes as formulas, or what a property means",
        description="Print the address map of f(a, b) -> c: for each load and store the index"
        " along each axis, the mask, the condition that the index must satisfy, and what the"
        " mask lacks. Given a property or a fault instead of a target, print its help page.",
        examples=(
            "gemmproof explain my_kernels.py:matmul --line 21",
            "gemmproof explain stays_in_bounds",
        ),
        exits="0 printed, 2 bad usage or target, 3 no launch could be analysed",
    )

    target: str = argument("TARGET|PROPERTY", f"{groups.TARGET}, or a property or fault: race")
    line: int | None = option("N", "show only the accesses of this line", groups.natural)
    config: int | None = option(
        "N", "index of the configuration of an autotuned kernel (default 0)", groups.natural
    )
    gpu: str | None = option(
        "GPU", "compile for this GPU (default: no particular GPU)", one_of(*TARGETS, *UNMODELLED),
        name="target"
    )  # fmt: skip
    case: str | None = option("JSON", "the case to draw")
    json: str | None = groups.output_file("write the address map (- for stdout)")
    svg: str | None = groups.output_file("draw the accesses of one case (needs matplotlib)")
    quiet: bool = groups.quiet_flag()
    contract: groups.ContractOptions = group(groups.ContractOptions())
    calling: Calling = group(Calling())
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=60))


def run(options: ExplainOptions) -> int:
    """Follow the target in a worker, print the address map, write the requested reports.

    A word that is no target is the name of a property or of a fault: its page is printed.
    """
    if is_word(options.target):
        return _explain_word(options)
    problem = unwritable(options) or undrawable(options.svg)
    if problem:
        return refuse(options, problem)
    try:
        search = groups.SearchOptions(max_examples=1, gpu=options.gpu)
        declared = (options.contract, options.calling, search, options.case)
        asked = groups.ask_check(parse(options.target), *declared)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    config = options.config
    if config is None:
        config = Case.from_json(options.case).config if options.case else 0
    from gemmproof.explain.record import ExplainRequest, Explanation
    from gemmproof.explain.text import lines, list_lines

    draws = options.svg is not None
    request = ExplainRequest(asked.kernel, asked.gpu, config, asked.case, draws)
    with progress(asked.name, options.quiet) as listener:
        worker = watch(EXPLAIN, request, options.worker.limits, listener)
    result = worker.read_result(Explanation)
    if result is None:
        return answer_death(options, worker, asked.name, "an address map")
    explanation = result.addresses
    known = list_lines(explanation)
    written: dict[str, Writer] = {"json": lambda path: write_json(path, encode(explanation))}
    if not known:
        reasons = [*explanation.open, *(k.failed for k in explanation.kernels if k.failed)]
        reason = "; ".join(dict.fromkeys(reasons)) or "the wrapper launches no Triton kernel"
        text = f"gemmproof explain: {asked.name}: no launch could be analysed: {reason}"
        style = STYLES["incomplete"]
        return answer(options, EXIT["incomplete"], [(clean(text), style)], written, to_stderr=True)
    if options.line is not None and options.line not in known:
        there = " ".join(map(str, known))
        text = f"--line: got {options.line}, expected a line that loads or stores: {there}"
        return refuse(options, text)

    def draw_svg(path: Path) -> None:
        from gemmproof.explain.plot import draw

        draw(cast("Picture", result.picture), path)

    written["svg"] = draw_svg
    return answer(options, EXIT["pass"], lines(explanation, options.line), written)


def is_word(text: str) -> bool:
    """Return whether the text names a property or a fault: a target has a path, colon or dot."""
    return not set(":./") & set(text)


def _explain_word(options: ExplainOptions) -> int:
    from gemmproof.explain.text import page_lines
    from gemmproof.properties.help import find_pages, read_faults, read_properties

    for name in ("svg", "case", "line", "config"):
        if getattr(options, name) is not None:
            got = f"--{name}: got the property or fault {options.target!r}"
            return refuse(options, f"{got}, expected a TARGET")
    if problem := unwritable(options):
        return refuse(options, problem)
    pages = find_pages(options.target)
    if len(pages) != 1:
        names = [page.name for page in pages] or list(read_properties())
        close = suggest(options.target, [*read_properties(), *read_faults()]) if not pages else ""
        expected = f"one of: {' '.join(names)}" + ("" if pages else ", a fault or a TARGET")
        return refuse(options, f"property: got {options.target!r}, expected {expected}{close}")
    (page,) = pages
    written: dict[str, Writer] = {"json": lambda path: write_json(path, encode(page))}
    return answer(options, EXIT["pass"], page_lines(page), written)

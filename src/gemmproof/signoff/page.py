"""The pages of a sign-off: its text, and the Markdown and HTML of the templates."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmproof.properties.contract import COMPILER
from gemmproof.properties.finding import UNEXPECTED, list_by_cause
from gemmproof.reference.provenance import format_count
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import (
    AXES,
    NOT_RUN,
    RESIDUES,
    UNJUDGED,
    UNKNOWN,
    Coverage,
    Regression,
    Report,
    split_residues,
)
from gemmproof.report.text import (
    STYLES,
    Line,
    Reproduce,
    clean,
    format_table,
    list_assumptions,
    proof_text,
)
from gemmproof.signoff.record import (
    GRAVEST,
    INCOMPLETE,
    NOT_MEASURED,
    REFUSED,
    SIGNED,
    DriftClass,
    Inputs,
    KernelRecord,
    Reason,
    Signoff,
    list_accepting,
    weigh,
)
from gemmproof.signoff.rules import GAPS, format_value, group_by_module

# -- text ----------------------------------------------------------------------------------------
PREDICTED = "equals_prediction"  # properties/judges/determinism.py imports torch
BESIDES = "Other changes since the baseline"
SHORT = 12  # digits of a hash
CHANGES_SHOWN = 20  # changes that the output shows: --json has all
_STYLES = {SIGNED: "", INCOMPLETE: STYLES["incomplete"], REFUSED: STYLES["fail"]}


def lines(signed: Signoff) -> list[Line]:
    """Return what a command prints after the table: the drift, and changes from a baseline."""
    drift = _list_drift(signed)
    if signed.baseline is None:
        return drift
    output: list[Line] = [*drift, ("against the baseline:", "bold")]
    if not signed.changes:
        output.append(("  nothing changed", ""))
    for change in _sort(signed.changes)[:CHANGES_SHOWN]:
        weight = format_weight(change)
        output.append(
            (
                clean(f"  {format_reason(change)}{weight and f'  [{weight}]'}"),
                _STYLES[weigh(change)],
            )
        )
    if len(signed.changes) > CHANGES_SHOWN:
        output.append((f"  and {len(signed.changes) - CHANGES_SHOWN} more: --json has all", ""))
    return [*output, ("", "")]


def list_unused(signed: Signoff, accepted: Iterable[str]) -> list[Line]:
    """Return notes on values of --accept that match nothing, such as a change that is undone.

    Nothing is known of the gaps of a kernel that --kernel leaves out.
    """
    reasons = (*signed.changes, *signed.reasons)
    used = {word for reason in reasons if reason.accepted for word in list_accepting(reason)}

    def explain(word: str) -> str:
        if word.partition(":")[0] in GAPS:
            return "no such gap"
        return "no --baseline" if signed.baseline is None else "no such change"

    def is_left_out(word: str) -> bool:
        kind, _, kernel = word.partition(":")
        judged = signed.inputs.kernels
        return kind in GAPS and bool(kernel and judged) and kernel not in judged

    unused = [w for w in dict.fromkeys(accepted) if w not in used and not is_left_out(w)]
    return [(clean(f"note: --accept {word}: {explain(word)} to accept"), "") for word in unused]


def list_gaps(signed: Signoff) -> Iterator[Line]:
    """Yield what was not judged of kernels without findings, with the option that accepts it."""
    for reason in signed.reasons:
        if reason.kind in GAPS:
            option = f"--accept {reason.kind}:{reason.kernel}"
            how = "accepted" if reason.accepted else option
            yield (clean(f"{format_reason(reason)}  [{how}]"), _STYLES[weigh(reason)])


def list_uncounted(signed: Signoff) -> Iterator[Line]:
    """Yield the given measurements that do not count, with the first reason."""
    for option, name in (("bench", "why_not_timed"), ("mutation", "why_not_mutated")):
        uncounted = [k for k in signed.kernels if getattr(k, name)]
        if uncounted:
            of = f"{len(uncounted)} of {format_count(len(signed.kernels), 'kernel')}"
            reason = f"{uncounted[0].report.target}: {getattr(uncounted[0], name)}"
            yield (clean(f"note: --{option} is ignored for {of}: {reason}"), "")


def _list_drift(signed: Signoff) -> list[Line]:
    measured = [kernel for kernel in signed.kernels if kernel.drift]
    cells = ((clean(k.report.target), clean(format_drift(k))) for k in measured)
    rows = [(f"  {line}", "") for line in format_table(cells, "ll")]
    return [("drift:", "bold"), *rows, ("", "")] if measured else []


def _sort(reasons: Iterable[Reason]) -> list[Reason]:
    """Sort by weight, the gravest first."""
    return sorted(reasons, key=lambda reason: GRAVEST.index(weigh(reason)))


def format_reason(reason: Reason) -> str:
    """Format a reason or a change in one line."""
    return f"{reason.kernel}: {reason.text}" if reason.kernel else reason.text


def format_weight(reason: Reason) -> str:
    """Return its effect on the verdict, "" if it has none."""
    return "accepted" if reason.accepted else "" if reason.weight == SIGNED else reason.weight


def format_head(signed: Signoff) -> str:
    """Return the heading of the reasons: without any weight they list what is not covered."""
    return "Reasons" if any(reason.weight != SIGNED for reason in signed.reasons) else "Not covered"


def format_unchanged(signed: Signoff) -> str:
    """Return the text for a baseline from which nothing changed, else ""."""
    return "" if signed.changes else "Nothing changed since the baseline."


def format_inputs(inputs: Inputs) -> str:
    """Format the inputs in one line."""
    target = f"bits of {inputs.target}" if inputs.target else "exact IEEE dots"
    device = "simulated and launched" if inputs.device == "cuda" else "simulated"
    parts = [device, target, f"seed {inputs.seed}", f"{inputs.max_examples} cases per format"]
    return ", ".join([*parts, "proofs tried" if inputs.proof else "no proofs tried"])


def format_versions(versions: dict[str, str]) -> str:
    """Format the versions in one line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def format_proofs(kernel: KernelRecord) -> str:
    """Format how many of the properties that a solver tried are proved."""
    tried = [p for p in kernel.report.properties if p.proof is not None]
    return f"{sum(p.is_proved for p in tried)} of {len(tried)}" if tried else "not tried"


def format_assumptions(report: Report) -> str:
    """Format the assumptions of a kernel's proofs, "" without a proof."""
    return "; ".join(list_assumptions(report.properties))


def find_worst(kernel: KernelRecord) -> float | None:
    """Return the worst error over its bound, None if there is none."""
    return max((p.ratio for p in kernel.report.properties if p.ratio is not None), default=None)


def format_worst(kernel: KernelRecord) -> str:
    """Format the worst error over its bound."""
    worst = find_worst(kernel)
    return NOT_MEASURED if worst is None else format_ratio(worst)


def format_ratio(ratio: float) -> str:
    """Format an error over its bound, with enough digits that one within it is not shown as 1."""
    if 0 < ratio < 0.0005:
        return "< 0.001"
    shown = (f"{ratio:.{digits}f}" for digits in range(3, 10))
    return next((x for x in shown if (float(x) == 1) == (ratio == 1)), f"{ratio!r}")


def format_cases(kernel: KernelRecord) -> str:
    """Format the number of cases of the property that judged the most."""
    judged = (p.examples for p in kernel.report.properties if p.backend != COMPILER)
    return str(max(judged, default=0))


def format_gpu(kernel: KernelRecord) -> str:
    """Format whether its bits were seen on a GPU, and in how many cases."""
    ran = [p for p in kernel.report.properties if p.backend == "cuda" and p.status not in UNJUDGED]
    if not ran:
        return NOT_RUN
    failed = [p.name for p in ran if p.status == "fail"]
    device = kernel.report.versions.get("device", "a GPU")
    cases = format_count(max(p.examples for p in ran), "case")
    predicted = next((p for p in ran if p.name == PREDICTED), None)
    outcome = (
        "as predicted" if predicted is not None and not failed else ", ".join(failed) or "held"
    )
    return f"{outcome} in {cases} on {device}"


def format_benchmark(kernel: KernelRecord) -> str:
    """Format the measured ratios, by format."""
    if kernel.benchmark is None:
        return NOT_MEASURED + (f" ({kernel.why_not_timed})" if kernel.why_not_timed else "")
    return "; ".join(
        f"{r.mean:.3f} of {r.peer} in {r.format} ({r.least:.3f}..{r.most:.3f},"
        f" {format_count(r.products, 'product')})"
        for r in kernel.benchmark.ratios
    )


def format_drift(kernel: KernelRecord) -> str:
    """Format the classes of its accumulators, each with its formats, or why there is none."""
    classes = sorted(kernel.drift, key=lambda drift: not drift.name)  # measured ones first
    gpu = classes[0].gpu if classes and classes[0].name else ""
    formats: dict[str, list[str]] = {}
    for drift in classes:
        formats.setdefault(format_class(drift), []).append(drift.format)
    of = "{}: ".format if len(formats) > 1 else "".format  # the same in all formats
    parts = [f"{of(', '.join(names))}{label}" for label, names in formats.items()]
    return "; ".join([*parts, *[f"on {gpu}"] * bool(gpu)]) or NOT_MEASURED


def format_class(drift: DriftClass) -> str:
    """Format the class of the sums in one format, and that it is worse than declared, if so."""
    if not drift.name:
        return f"{NOT_MEASURED} ({drift.why})"
    return drift.name + ("" if drift.is_kept else f", worse than the declared {drift.declared}")


def format_mutation(kernel: KernelRecord) -> str:
    """Format the mutation score."""
    score = kernel.mutation
    if score is None:
        return NOT_MEASURED + (f" ({kernel.why_not_mutated})" if kernel.why_not_mutated else "")
    text = f"{score.killed} of {format_count(score.killed + score.survivors, 'mutant')} killed"
    others = {"equivalent": score.equivalent, "with no difference seen": score.unseen}
    text += "".join(f", {count} {what}" for what, count in others.items() if count)
    sampled = f"; a sample of {score.tried} of {score.of}" if score.tried < score.of else ""
    return text + sampled


def format_contract(kernel: KernelRecord) -> list[tuple[str, str]]:
    """List the fields of the contract that are not the usual ones, and the operands."""
    facts = kernel.report.identity
    if facts is None:
        return []
    fields = []
    for name, value in facts.contract.items():
        if value is None or value is False or value in ({}, [], ()) or (name, value) in _USUAL:
            continue
        fields.append((name, format_value(value)))
    return [*fields, *facts.operands.items()]


_USUAL = (("batch", "1.."), ("deterministic", True), ("symmetric", True), ("accumulator", "fp32"))


def list_residues(kernel: KernelRecord) -> list[tuple[str, dict[str, int]]]:
    """Count the cases with each residue along each axis; none if nothing is known."""
    coverage = kernel.report.coverage or Coverage()
    counts = [(axis, coverage.count(axis)) for axis in AXES]
    return [(axis, count) for axis, count in counts if any(count[r] for r in RESIDUES)]


def format_residues(kernel: KernelRecord) -> str:
    """Format the residues in one line: cases with each of them along M, N and K."""
    rows = list_residues(kernel)
    if not rows:
        return UNKNOWN
    return "; ".join(f"{axis} {'/'.join(str(n[r]) for r in RESIDUES)}" for axis, n in rows)


# -- grid ----------------------------------------------------------------------------------------
# of a panel, in the units of its picture
CELL, LEFT, TOP, GAP = 34, 62, 40, 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One square: its position, its number of cases, and its shade, from 0 to 1."""

    x: int
    y: int
    count: int
    shade: float


@dataclass(frozen=True, slots=True)
class Panel:
    """The cases with one residue of K."""

    k: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def width(self) -> int:
        """The width of the picture."""
        return LEFT + CELL * len(self.columns)

    @property
    def height(self) -> int:
        """The height of the picture."""
        return TOP + CELL * len(self.rows)


def make_panels(coverage: Coverage | None) -> tuple[Panel, ...]:
    """Return the panels, none if no axis has a known tile."""
    counts = {split_residues(w): n for w, n in (coverage.residues if coverage else {}).items()}
    if all(set(where) == {UNKNOWN} for where in counts):
        return ()
    # unknown residues are shown only if there are any
    axes = [[r for r in (*RESIDUES, UNKNOWN) if _has(counts, axis, r)] for axis in range(3)]
    most = max(counts.values())
    panels = []
    for k in axes[2]:
        cells = tuple(
            Cell(
                LEFT + x * CELL,
                TOP + y * CELL,
                count := counts.get((m, n, k), 0),
                math.log1p(count) / math.log1p(most),
            )
            for y, m in enumerate(axes[0])
            for x, n in enumerate(axes[1])
        )
        panels.append(Panel(k, tuple(axes[0]), tuple(axes[1]), cells))
    return tuple(panels)


def _has(counts: dict[tuple[str, ...], int], axis: int, residue: str) -> bool:
    """Return whether an axis shows a residue: all known ones, with or without cases."""
    seen = {where[axis] for where in counts}
    return residue in seen if residue == UNKNOWN else seen != {UNKNOWN}


# -- templates -----------------------------------------------------------------------------------
HTML, MARKDOWN = "page.html.j2", "page.md.j2"
REASONS_SHOWN = 30  # reasons and changes in Markdown: a comment has a limit, --json has all
LONGEST = 400  # characters of each
# what Markdown, HTML in it, or a forge interprets: marks, references and mentions,
# emoji, and links that need no marks
_ACTIVE = re.compile(r"[\\`*\[\]<>&#|~@$!%^{}]|\b_\B|\B_\b|:(?=//|[\w+-]+:)|(?<=www)\.", re.ASCII)
_LEADING = re.compile(r"^[-+=\d]")  # what would begin a list within an item


def format_html(signed: Signoff, reproduce: dict[str, Reproduce]) -> str:
    """Return the page; `reproduce` is looked up by a kernel's name."""
    return _render(
        HTML,
        clean,
        signed=signed,
        list_by_cause=list_by_cause,
        UNEXPECTED=UNEXPECTED,
        group_by_module=group_by_module,
        proof_text=proof_text,
        reproduce=lambda kernel, case: reproduce[kernel.report.target](case),
    )


def format_markdown(signed: Signoff) -> str:
    """Return the comment."""
    from markupsafe import Markup

    return _render(
        MARKDOWN,
        lambda text: Markup(escape(text)),
        signed=signed,
        item=lambda text: Markup(_LEADING.sub(_label_character, escape(text))),
    )


def escape(text: str) -> str:
    """Escape text that Markdown must show unchanged, on one line, in a table or not."""
    return _ACTIVE.sub(_label_character, clean(text))


def _label_character(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"


def _render(template: str, show: Callable[[str], str], **values: Any) -> str:
    """Fill in a template; `show` makes text harmless, markup is ours."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: show(value) if type(value) is str else value,
    )
    return environment.get_template(template).render(page=sys.modules[__name__], **values)


# -- writers -------------------------------------------------------------------------------------
def list_lost(signed: Signoff) -> list[Regression]:
    """List the regressions from its baseline for CI reports, without accepted changes."""
    return [
        Regression(change.kernel, change.kind, change.text, change.weight == REFUSED)
        for change in signed.changes
        if weigh(change) != SIGNED
    ]


def list_writers(signed: Signoff, reproduce: Mapping[str, Reproduce]) -> dict[str, Writer]:
    """Return the writer of each form, by option."""
    commands = dict(reproduce)
    document = signed.to_dict(commands)

    def write_html(path: Path) -> None:
        path.write_text(format_html(signed.with_hash(document), commands), encoding="utf-8")

    def write_markdown(path: Path) -> None:
        path.write_text(format_markdown(signed.with_hash(document)), encoding="utf-8")

    return {
        "json": lambda path: write_json(path, document),
        "html": write_html,
        "markdown": write_markdown,
    }

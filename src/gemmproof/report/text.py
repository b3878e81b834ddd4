"""The text of a report."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Literal

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER
from gemmproof.properties.finding import UNEXPECTED, Finding, list_by_cause
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import (
    MEMORY_ONLY,
    NOT_APPLICABLE,
    NOT_EXERCISED,
    NOT_JUDGED,
    NOT_RUN,
    UNJUDGED,
    PropertyResult,
    Report,
)

# -- text ----------------------------------------------------------------------------------------
Line = tuple[str, str]  # text, and a style of rich
Reproduce = Callable[[Case], str]
STYLES = {
    "pass": "bold green",
    "fail": "bold red",
    "error": "bold red",
    "incomplete": "bold yellow",
    "draft": "bold yellow",
}
SHOWN_LIMIT = 88  # characters of a limit's message: --json has all
SHOWN_REASONS = 3  # why something is not decided
SHOWN_FINDINGS = 4  # one per fault: nobody reads more than a screen
SHOWN_FOLLOWERS = 4
SHOWN_NAMES = 4  # of limits
SHOWN_BRANCHES = 2  # of those that never ran, in the verdict line
# the verbs that names of properties begin with
_VERBS = ("compiles", "fits", "leaves", "runs", "stays", "stores", "uses")
# Cc control, Cf invisible formatting such as reversed text, Cs half a pair, Cn no character, Co
# private use, Zl and Zp ends of lines
_MOVING = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")


def is_moving(c: str) -> bool:
    """Return whether a character could move a terminal's cursor, end a line or break XML."""
    return unicodedata.category(c) in _MOVING


def clean(text: str) -> str:
    """Return one line of text, with every character for which `is_moving` escaped."""
    return "".join(
        c.encode("unicode_escape", "surrogatepass").decode("ascii") if is_moving(c) else c
        for c in text
    )


def add_commands(report: Report, reproduce: Reproduce) -> Report:
    """Return the report with the command of each finding."""

    def add(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        # no single case shows that a property holds
        return tuple(
            f if f.fault == UNEXPECTED else replace(f, reproduce=reproduce(f.case))
            for f in findings
        )

    return replace(report, findings=add(report.findings), expected=add(report.expected))


def lines(report: Report, reproduce: Reproduce, limits: bool = False) -> list[Line]:
    """Return what `check` prints: the findings, or how each property held, and the verdict last.

    The limits beyond the contract follow in one line, or all of them.
    """
    if report.verdict == "error" and not report.findings:
        return [(clean(f"{report.target}: error: {report.note}"), STYLES["error"])]
    name = kernel_name(report)
    claims = {p.name: p.claim for p in report.properties}
    out: list[Line] = []
    groups = list_by_cause(report.findings)
    for finding, followers in groups[:SHOWN_FINDINGS]:
        out += _finding(name, finding, claims.get(finding.property, ""), reproduce)
        out += _followers(followers)
        out.append(("", ""))
    if len(groups) > SHOWN_FINDINGS:
        more = len(groups) - SHOWN_FINDINGS
        out += [(f"and {format_count(more, 'more finding')}: --json has all", ""), ("", "")]
    if not report.findings:
        width = max([30, *(len(p.label) for p in report.properties)])
        out += [(clean(_describe(p, width)), "") for p in report.properties]
        out += _list_assumptions(report)
        out += _list_undecided(report)
        out += _list_unvisited(report)
    out += list_besides(report)
    out.append((clean(f"{name}: {_summarise(report)}"), STYLES[report.verdict]))
    return [*out, *(list_limits(report) if limits else summarise_limits(report))]


def list_besides(report: Report) -> Iterable[Line]:
    """Yield the lines for any verdict: expected failures, and the assumptions of predictions."""
    yield from list_expected(report)
    if report.model_check is not None:
        yield (clean(report.model_check.say()), "")
        for line in report.model_check.list_lines(SHOWN_REASONS):
            yield (clean(line), "")


def list_expected(report: Report) -> Iterable[Line]:
    """Yield expected failures with their reasons, and properties that held though expected to fail.

    Consequences of another property's failure are listed with that one.
    """
    with_it: dict[str, str] = {}
    for result in report.properties:
        for cause in (p.name for p in report.properties if result.status == "expected"):
            if (result.reason or "").startswith(f"follows from {cause}: "):
                with_it[result.name] = cause
    for result in report.properties:
        if result.reason is None or result.name in with_it:
            continue
        if result.status == "expected":
            yield (clean(f"{result.label} fails as expected: {result.reason}"), "")
            failures = (f for f in report.expected if f.property == result.name)
            yield from ((clean(f"  {f.message}"), "dim") for f in islice(failures, 1))
            if names := [name for name, cause in with_it.items() if cause == result.name]:
                yield (f"  which also causes: {', '.join(names)}", "dim")
        elif result.status in ("pass", *UNJUDGED):
            held = f"held in the {_format_examples(result)} that it was judged in"
            how = {"pass": held, NOT_APPLICABLE: NOT_APPLICABLE}.get(result.status)
            how = how or f"was {result.status}"
            yield (clean(f"{result.label}, expected to fail, {how}: {result.reason}"), "")


def summarise_limits(report: Report) -> Iterable[Line]:
    """Yield a narrower contract that is needed, and a line with the names of the limits."""
    yield from _list_needed(report)
    names = [limit.name for limit in report.limits if limit.status in ("limit", "not tried")]
    if names:
        more = f" and {len(names) - SHOWN_NAMES} more" * (len(names) > SHOWN_NAMES)
        shown = ", ".join(names[:SHOWN_NAMES])
        yield (clean(f"beyond the contract, not supported: {shown}{more} (--limits)"), "dim")


def _list_needed(report: Report) -> Iterable[Line]:
    for limit in report.limits:
        if limit.status == "needed":
            yield (clean(f"{limit.proof}: {limit.option}"), "")


def list_limits(report: Report) -> Iterable[Line]:
    """Yield what stops one step beyond the contract, and the option that would declare it.

    For a kernel that breaks its contract: the narrower one that it is proved to keep.
    """
    yield from _list_needed(report)
    shown = [limit for limit in report.limits if limit.status in ("limit", "not tried")]
    if shown:
        yield ("limits beyond the contract:", "")
    width = max((len(limit.name) for limit in shown), default=0)
    for limit in shown:
        text = limit.message if limit.status == "limit" else f"not tried: {limit.message}"
        yield (clean(f"  {limit.name:<{width}}  {_cut(text):<{SHOWN_LIMIT}}  {limit.option}"), "")
        if limit.proof:
            yield (clean(f"  {'':<{width}}  {limit.proof}"), "")


def kernel_name(report: Report) -> str:
    """Return the function's name without TARGET's module or file, or a registered name.

    A registered name may have a colon as well: "module:function" is a target only if it was
    judged. An item of pytest is without its file.
    """
    item = report.target.partition(".py::")[2]
    if item:
        return item
    module, _, function = report.target.rpartition(":")
    judged = report.identity is not None and report.target in report.identity.source
    return function if judged or module.endswith(".py") else report.target


def finding_text(name: str, finding: Finding, claim: str, reproduce: Reproduce) -> str:
    """Return one finding as plain text."""
    return "\n".join(text for text, _ in _finding(name, finding, claim, reproduce))


def _finding(name: str, finding: Finding, claim: str, reproduce: Reproduce) -> Iterable[Line]:
    head = f"{name} {_negate(finding.property)}: {claim}"
    # neither is shrunk: a smaller case that hangs takes as long
    is_drawn = finding.backend == COMPILER or finding.fault == "hang"
    follows = f"  follows from {finding.cause}: fix that first"
    if finding.fault == UNEXPECTED:
        head = f"{name} keeps {finding.property}, which its contract expects to fail"
        return [(clean(head), "bold"), (clean(f"  {finding.message}"), "")]
    return [
        (clean(head.rstrip(": ")), "bold"),
        (clean(f"  {finding.message}"), ""),
        *([(follows, "")] if finding.cause else []),
        (clean(f"  {'case' if is_drawn else 'smallest case'}: {finding.case}"), ""),
        (f"  reproduce:  {reproduce(finding.case)}", ""),
    ]


def _followers(findings: list[Finding]) -> Iterable[Line]:
    """Yield the consequences of a finding, a line each: fixing the cause resolves them."""
    if findings:
        yield ("  consequences:", "")
    for finding in findings[:SHOWN_FOLLOWERS]:
        yield (clean(f"    {finding.property}: {finding.message}"), "")
    if len(findings) > SHOWN_FOLLOWERS:
        yield (f"    and {len(findings) - SHOWN_FOLLOWERS} more: --json has all", "")


def _negate(property_name: str) -> str:
    """`stays_in_bounds`: "does not stay in bounds"; `within_bound`: "violates within_bound"."""
    verb, _, rest = property_name.partition("_")
    if verb not in _VERBS:
        return f"violates {property_name}"
    return f"does not {verb.removesuffix('s')} {rest.replace('_', ' ')}".rstrip()


def _describe(result: PropertyResult, width: int) -> str:
    proved = _scope(result)
    if result.status in UNJUDGED:
        how = f"{result.status}: {result.why}" if result.why else result.status
        return f"  {result.label:<{width}} {proved and f'{proved}; '}{how}"
    if result.status == "expected":
        return f"  {result.label:<{width}} fails as expected"
    worst = ""
    if result.ratio is not None:
        worst = f", worst error {format_ratio(result.ratio)} of its bound"
    held = f"{proved and f'{proved}; held in '}{_format_examples(result)}"
    return f"  {result.label:<{width}} {held}{worst}"


def format_ratio(ratio: float) -> str:
    """Format a share of a bound: with more digits where three would round it to 1."""
    digits = 3
    while (text := f"{ratio:.{digits}g}") == "1" and ratio != 1 and digits < 17:
        digits += 1
    return text


def _format_examples(result: PropertyResult) -> str:
    cases = format_count(result.examples, "launch" if result.backend == COMPILER else "case")
    return cases if result.pairs is None else f"{cases}, {format_count(result.pairs, 'pair')} of M"


def proof_text(result: PropertyResult) -> str:
    """Format what was decided for every size; "" if that was not tried."""
    if result.proof is None or result.is_proved:
        return _scope(result)
    reason = f": {result.proof.why}" if result.proof.why else ""
    return clean(f"{result.proof.status}{reason}")


def _scope(result: PropertyResult) -> str:
    if result.proof is None or not result.is_proved:
        return ""
    return f"proved for {result.proof.scope}" if result.proof.scope else "proved"


def list_assumptions(properties: Iterable[PropertyResult]) -> list[str]:
    """List the assumptions of all proofs, each once."""
    proofs = (p.proof for p in properties if p.proof is not None and p.is_proved)
    return list(dict.fromkeys(x for proof in proofs for x in proof.assumptions))


def _list_assumptions(report: Report) -> Iterable[Line]:
    if assumed := list_assumptions(report.properties):
        yield (clean(f"proofs assume {'; '.join(assumed)} (gemmproof explain proved)"), "dim")


def _list_undecided(report: Report) -> Iterable[Line]:
    """Yield why some properties are not decided for every size."""
    named: dict[str, list[str]] = {}
    for result in report.properties:
        if result.proof is not None and result.proof.status == "not decided" and result.proof.why:
            named.setdefault(result.proof.why, []).append(result.name)
    for reason, names in list(named.items())[:SHOWN_REASONS]:
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield (clean(f"not decided for every size: {_cut(reason)} ({names[0]}{others})"), "dim")
    if len(named) > SHOWN_REASONS:
        more = len(named) - SHOWN_REASONS
        yield (f"and for {format_count(more, 'more reason')}: --json has all", "dim")


def _list_unvisited(report: Report) -> Iterable[Line]:
    """Yield the branches that never ran, if the verdict line does not have them all."""
    is_short = len(report.unvisited) <= SHOWN_BRANCHES and report.verdict in ("pass", "fail")
    if report.unvisited and not is_short:
        yield ("branches that never ran:", "dim")
        yield from ((clean(f"  {branch}"), "dim") for branch in report.unvisited)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_LIMIT else f"{text[: SHOWN_LIMIT - 3]}..."


def list_gaps(report: Report) -> list[str]:
    """List what a report that passes left unjudged, as ends of its verdict line."""
    gaps = [_format_gap(result) for result in report.properties if result.is_gap]
    texts = [f"{NOT_EXERCISED}: {', '.join(gaps)}"] if gaps else []
    return texts + ([format_unvisited(report)] if report.unvisited else [])


def format_unvisited(report: Report) -> str:
    """Format the number of branches that never ran, and the first ones."""
    more = len(report.unvisited) - SHOWN_BRANCHES
    others = f" and {more} more" if more > 0 else ""
    count = format_count(len(report.unvisited), "branch")
    return f"{count} never ran: {', '.join(report.unvisited[:SHOWN_BRANCHES])}{others}"


def list_unexercised(report: Report) -> list[str]:
    """List the properties that a report left unjudged, each with the reason."""
    gaps = (result for result in report.properties if result.is_gap)
    return [f"{result.label} was not exercised: {result.why}" for result in gaps]


def _format_gap(result: PropertyResult) -> str:
    return f"{result.label} ({', '.join(result.missing)})" if result.missing else result.label


def _summarise(report: Report) -> str:
    """Return the verdict as one line."""
    required = [p for p in report.properties if p.status != NOT_JUDGED]
    total = format_count(len(required), "property")
    failed = sum(p.status == "fail" for p in report.properties)
    judged = sum(p.status not in ("expected", *UNJUDGED) for p in report.properties)
    expected = sum(p.status == "expected" for p in report.properties)
    cases = max((p.examples for p in report.properties if p.backend != COMPILER), default=0)
    fails = f"{failed} {'does' if failed == 1 else 'do'} not hold"
    gaps = list_gaps(report)
    every = "all " * (judged > 1 and not expected and not gaps)
    held = f"{every}{format_count(judged, 'property')} held"
    text = {
        "pass": f"pass: {held}",
        "fail": f"fail: {failed} of {total} {'does' if failed == 1 else 'do'} not hold",
        "error": f"error: {failed} of {total} {'does' if failed == 1 else 'do'} not hold",
        "incomplete": f"incomplete: {format_count(judged, 'property')} judged, {fails}",
        "draft": f"draft: {held}",
    }[report.verdict]
    note = f"; {report.note}" if report.note else ""
    if expected:
        text += f", {expected} {'fails' if expected == 1 else 'fail'} as expected"
    gaps = gaps if not failed and report.verdict in ("pass", "fail", "draft") else []
    if gaps or report.memory_only:
        # what was not judged comes before what held
        verdict = f"{report.verdict}, {MEMORY_ONLY}" if report.memory_only else report.verdict
        text = f"{'; '.join([verdict, *gaps])}; {text.partition(': ')[2]}"
    return f"{text} ({format_count(cases, 'case')}, {report.seconds:.1f} s){note}"


def format_table(
    rows: Iterable[Iterable[str]], justify: str, head: Sequence[str] = (), width: int = 100_000
) -> list[str]:
    """Format rows of cells below a head, if any, as lines without trailing spaces.

    `justify` has "l" or "r" for each column. Only a text in the last column is wrapped, to `width`.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    sides: dict[str, Literal["left", "right"]] = {"l": "left", "r": "right"}
    names = zip_longest(head, justify, fillvalue="")
    columns = [Column(name, justify=sides[side], no_wrap=True) for name, side in names]
    columns[-1].no_wrap = False
    form = box.SIMPLE_HEAD if head else None
    grid = Table(*columns, box=form, show_header=bool(head), show_edge=False, pad_edge=False)
    for row in rows:
        grid.add_row(*row)
    console = Console(width=width, color_system=None, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]


def table(reports: list[Report], width: int) -> list[str]:
    """Return property x kernel: cases and worst error over bound, FAIL, or a dash if not run.

    Kernels that do not fit the width begin a new block of rows.
    """
    names = list(dict.fromkeys(p.name for r in reports for p in r.properties))
    shown = [kernel_name(report) for report in reports]
    if len(set(shown)) < len(shown):
        shown = [report.target for report in reports]
    heads = ["", *names, "verdict", "seconds"]
    blocks: list[list[list[str]]] = []
    used = width  # by the columns of the last block
    for report, name in zip(reports, shown, strict=True):
        results = {p.name: p for p in report.properties}
        judged = (_cell(results.get(label)) for label in names)
        column = [clean(name), *judged, report.verdict, f"{report.seconds:.1f}"]
        wide = max(map(len, column)) + 2
        if used + wide > width:
            blocks.append([heads])
            used = max(map(len, heads))
        blocks[-1].append(column)
        used += wide
    tables = (format_table(zip(*x, strict=True), "l" + "r" * (len(x) - 1)) for x in blocks)
    return [row for rows in tables for row in ("", *rows)][1:]


def _cell(result: PropertyResult | None) -> str:
    if result is None or result.status == NOT_RUN:
        return "-"
    if result.status in UNJUDGED:
        return result.status
    if result.status == "fail":
        return "FAIL"
    if result.status == "expected":
        return "expected"
    ratio = "" if result.ratio is None else f"{result.ratio:.3f}  "
    return f"{ratio}{'proved  ' * result.is_proved}{result.examples}"

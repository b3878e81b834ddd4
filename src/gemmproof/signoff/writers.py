"""What `gemmproof signoff` asks of this room: the sign-off of its reports, and what writes it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmproof.report.ci.lost import LostSince
from gemmproof.report.files import Writer, write_json
from gemmproof.report.report import Report
from gemmproof.report.text import Reproduce
from gemmproof.signoff.record import REFUSED, SIGNED, DriftClass, Inputs, Signoff, weigh
from gemmproof.signoff.verdict import sign


def sign_off(
    options: argparse.Namespace,
    reports: Sequence[Report],
    left_out: Sequence[str],
    drifts: Mapping[str, tuple[DriftClass, ...]],
) -> Signoff:
    """The sign-off of the reports that the options of the command led to."""
    inputs = Inputs(
        target=options.gpu,
        device=options.device,
        seed=options.seed,
        max_examples=options.max_examples,
        proof=options.proof,
        case=options.case,
        kernels=tuple(options.kernel or ()),
    )
    read = (options.baseline, options.accept, options.bench, options.mutation)
    return sign(inputs, reports, left_out, *read, drifts)


def list_lost(signed: Signoff) -> list[LostSince]:
    """What its baseline has against it, as reports for CI tell it; what was accepted is none."""
    return [
        LostSince(one.kernel, one.kind, one.text, one.weight == REFUSED)
        for one in signed.changes
        if weigh(one) != SIGNED
    ]


def list_writers(signed: Signoff, reproduce: Mapping[str, Reproduce]) -> dict[str, Writer]:
    """What writes it in each form, by option."""
    known = dict(reproduce)
    document = signed.to_dict(known)

    def write_html(place: Path) -> None:
        from gemmproof.signoff.pages import html  # brings what few need

        place.write_text(html.write(signed.with_hash(document), known), encoding="utf-8")

    def write_markdown(place: Path) -> None:
        from gemmproof.signoff.pages import markdown

        place.write_text(markdown.write(signed.with_hash(document)), encoding="utf-8")

    return {
        "json": lambda place: write_json(place, document),
        "html": write_html,
        "markdown": write_markdown,
    }

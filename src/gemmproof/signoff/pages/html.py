"""A sign-off as a page: one file that needs no network and no script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gemmproof.properties.finding import UNEXPECTED, list_by_cause
from gemmproof.report.text import Reproduce, clean
from gemmproof.signoff import show
from gemmproof.signoff.changed_source import group_by_module
from gemmproof.signoff.pages import grid
from gemmproof.signoff.record import Signoff

TEMPLATE = "page.html.j2"


def write(signed: Signoff, reproduce: dict[str, Reproduce]) -> str:
    """The page; `reproduce` is looked up by a kernel's name."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_show,
    )
    return environment.get_template(TEMPLATE).render(
        signed=signed,
        show=show,
        grid=grid,
        list_by_cause=list_by_cause,
        UNEXPECTED=UNEXPECTED,
        group_by_module=group_by_module,
        reproduce=lambda kernel, case: reproduce[kernel.report.target](case),
    )


def _show(value: Any) -> Any:
    """What a page shows of a value: of text no character that moves others (markup is ours)."""
    return clean(value) if type(value) is str else value

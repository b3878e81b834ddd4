"""Sphinx's configuration of the documentation; `./run docs` builds it, without a network."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from gemmproof import __version__  # noqa: E402 - from this checkout

project, author, release = "gemmproof", "the gemmproof authors", __version__
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["examples", "evidence", "pictures", "schemas"]
smartquotes = False  # "--target" is an option, no dash

# Markdown: anchors as on GitHub, where these pages are read, too.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Docstrings mark code with single backticks.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"gemmproof {release}"
html_static_path = ["static"]
html_js_files = ["theme.js"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False

# Read from the built pages by their addresses: a Sphinx role cannot name a picture of <picture>.
COPIED = ("pictures", "schemas", "evidence")

logger = logging.getLogger(__name__)


def unlink_folders(app: Sphinx, page: str, source: list[str]) -> None:
    """Leave the text alone of a link to a folder of the repository, which is no page."""
    folder = (DOCS / page).parent

    def replace(link: re.Match[str]) -> str:
        return link[1] if (folder / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"\[([^\]]+)\]\(([^)#\s]+)\)", replace, source[0])


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """Copy the folders that pages link to by their paths."""
    if error is None:
        for name in COPIED:
            shutil.copytree(DOCS / name, Path(app.outdir) / name, dirs_exist_ok=True)


class ShortDefault:
    """The default of a parameter that is a record, shown by the name of its class alone."""

    def __init__(self, value: object) -> None:
        self.name = type(value).__name__

    def __repr__(self) -> str:
        return f"{self.name}()"


def shorten(default: Any) -> Any:
    """Return the default, or a stand-in if it is a record, whose fields would fill the page."""
    return ShortDefault(default) if is_dataclass(default) else default


def hide_private_parameters(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    """Return the signature without the parameters whose names start with an underscore."""
    if what not in ("function", "class", "method") or not callable(obj):
        return None
    try:
        full = inspect.signature(obj)
    except ValueError:
        return None
    shown = [p for p in full.parameters.values() if not p.name.startswith("_")]
    bare = [p.replace(annotation=p.empty, default=shorten(p.default)) for p in shown]
    return str(full.replace(parameters=bare, return_annotation=full.empty)), ""


def require_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Warn about a public name without a docstring, which fails the build."""
    if not any(map(str.strip, lines)):
        logger.warning("%s: got no docstring, expected one: it is a public name", name)


def check_generated_pages(app: Sphinx) -> None:
    """Warn about a page that is not what its command makes now, which fails the build."""
    from scripts.docs import references

    for page, text in references.iter_pages():
        if page.read_text(encoding="utf-8") != text:
            logger.warning(
                "%s: differs from the parsers: run `./run python scripts/pages.py references`",
                page.relative_to(ROOT),
            )


def setup(app: Sphinx) -> None:
    """Connect the functions above to the events of a build."""
    app.connect("source-read", unlink_folders)
    app.connect("builder-inited", check_generated_pages)
    app.connect("autodoc-process-signature", hide_private_parameters)
    app.connect("autodoc-process-docstring", require_docstring)
    app.connect("build-finished", copy_files)

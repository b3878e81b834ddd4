"""Links of the documentation lead to files and headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.docs.pages import ROOT, label_page, list_anchors, list_links, list_pages


def list_broken(page: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    text, name = page.read_text(encoding="utf-8"), label_page(page, root)
    for link in list_links(text):
        if re.match(r"[a-z]+:", link.target):  # a page of another site
            continue
        path, _, anchor = unquote(link.target).partition("#")
        target = (page.parent / path).resolve() if path else page
        where = f"{name}:{link.line}: got {link.target}"
        if path.startswith("/") or not target.is_relative_to(root):
            yield f"{where}, expected a path from the page to a file of this repository"
        elif not target.exists():
            yield f"{where}, expected a file that exists"
        elif anchor and target.suffix == ".md":
            if anchor not in list_anchors(target.read_text(encoding="utf-8")):
                yield f"{where}, expected a heading of that page"
        elif anchor:
            count = len(target.read_text(encoding="utf-8").split("\n")) if target.is_file() else 0
            line = re.fullmatch(r"L(\d+)(?:-L\d+)?", anchor)
            if line is None or int(line[1]) > count:
                yield f"{where}, expected a line of that file"


@pytest.mark.parametrize("page", list_pages(), ids=label_page)
def test_links_lead_to_files_and_headings(page):
    broken = list(list_broken(page))
    assert not broken, "\n".join(broken)


def test_links_are_seen():
    counts = [len(list_links(page.read_text(encoding="utf-8"))) for page in list_pages()]
    assert sum(counts) > 100


LINKS = {
    "[a](b.md)": [],
    "[a](b.md#a-heading-of-code-1)": [],
    '[a](b.md#twice) [a](b.md#twice-1) [a](#top) <a id="top"></a>': [],
    "[a](https://example.org/nothing)": [],
    "`[a](nothing.md)`": [],
    "```text\n[a](nothing.md)\n```": [],
    "[a\nb](nothing.md)": ["docs/page.md:2: got nothing.md, expected a file that exists"],
    "![a](nothing.svg)": ["docs/page.md:1: got nothing.svg, expected a file that exists"],
    '\n<img src="nothing.svg">': ["docs/page.md:2: got nothing.svg, expected a file that exists"],
    "[a]\n\n[a]: nothing.md": ["docs/page.md:3: got nothing.md, expected a file that exists"],
    "[a](b.md#thrice)": ["docs/page.md:1: got b.md#thrice, expected a heading of that page"],
    "[a](b.md#twice-2)": ["docs/page.md:1: got b.md#twice-2, expected a heading of that page"],
    "[a](b.md#comment)": ["docs/page.md:1: got b.md#comment, expected a heading of that page"],
    "[a](#nothing)": ["docs/page.md:1: got #nothing, expected a heading of that page"],
    "[a](c.py#L2)": [],
    "[a](c.py#L3)": ["docs/page.md:1: got c.py#L3, expected a line of that file"],
    "[a](/docs/b.md)": [
        "docs/page.md:1: got /docs/b.md, expected a path from the page to a file of this repository"
    ],
}


@pytest.mark.parametrize(("text", "broken"), LINKS.items(), ids=repr)
def test_broken_links_are_found(text, broken, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text(text)
    (docs / "c.py").write_text("x = 1\n")
    (docs / "b.md").write_text(
        "# A [heading](x.md), of `code_1`\n\n## Twice\n\n## Twice\n\n```sh\n# comment\n```\n"
        "\n# A heading of: code 1!\n"
    )
    assert list(list_broken(docs / "page.md", tmp_path)) == broken

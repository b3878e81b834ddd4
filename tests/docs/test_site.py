"""A build of the documentation fails, and names the cause, if a page is not as it has to be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts.docs import references
from sphinx.cmd.build import main

from gemmproof.options import iter_options, option

# MyST and napoleon call what a later Sphinx removes
pytestmark = pytest.mark.filterwarnings("ignore:.*(deprecated|removed in Sphinx)")

ROOT = Path(__file__).parents[2]
INDEX = "# Pages\n\n```{toctree}\npage\n```\n"
PAGE = "# A page\n\nText.\n"
API = "# API\n\n```{eval-rst}\n.. autofunction:: undocumented.f\n```\n"


@pytest.fixture
def build(tmp_path, monkeypatch, capsys):
    """Build pages with the repository's configuration; return the exit status and the warnings."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def build(**pages):
        source = tmp_path / "docs"
        source.mkdir()
        for name, text in {"index": INDEX, "page": PAGE, **pages}.items():
            (source / f"{name}.md").write_text(text)
        config = ["-c", str(ROOT / "docs"), "-d", str(tmp_path / "doctrees"), "-b", "html"]
        # the copies of the repository's pictures are not needed
        status = main(["-q", "-W", "--keep-going", *config, str(source), str(tmp_path / "built")])
        return status, capsys.readouterr().err

    return build


def test_the_pages_alone_build(build):
    assert build() == (0, "")


@pytest.mark.parametrize(
    ("pages", "named"),
    [
        ({"lost": "# Lost\n"}, "lost.md: WARNING: document isn't included in any toctree"),
        ({"page": "# A\n\n[b](gone.md)\n"}, "page.md:3: WARNING: 'myst' cross-reference target"),
        ({"page": "# A\n\n[b](index.md#gone)\n"}, "page.md:3: WARNING: local id not found"),
        ({"page": "# A\n\n![b](gone.svg)\n"}, "page.md:3: WARNING: image file not readable"),
        ({"page": "# A\n\n### C\n"}, "page.md:3: WARNING: Non-consecutive header level increase"),
        ({"page": API}, "undocumented.f: got no docstring, expected one"),
    ],
    ids=["navigation", "link", "anchor", "picture", "heading", "docstring"],
)
def test_a_wrong_page_fails_the_build_and_is_named(build, tmp_path, pages, named):
    (tmp_path / "undocumented.py").write_text("def f(x): return x\n")
    status, errors = build(**pages)
    sys.modules.pop("undocumented", None)
    assert status == 1
    assert named in errors


@pytest.mark.lane("full")
def test_this_documentation_builds(tmp_path, monkeypatch):
    """Without it a page that is in no navigation passes every test and fails `./run docs` only."""
    monkeypatch.chdir(ROOT)
    build = ["sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "doctrees"), "docs"]
    command = [sys.executable, "-m", *build, str(tmp_path / "built")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_generated_page_that_is_not_up_to_date_fails_the_build(build, monkeypatch):
    page = ROOT / "docs" / "reference" / "pytest.md"
    monkeypatch.setattr(references, "iter_pages", lambda: iter([(page, "other text")]))
    status, errors = build()
    assert status == 1
    assert "docs/reference/pytest.md: differs from the parsers" in errors


def test_an_option_without_help_is_named():
    @dataclass(frozen=True)
    class Options:
        depth: int = option("N", " ")

    with pytest.raises(ValueError, match=r"^gemmproof check --depth: got no help"):
        references.tabulate(iter_options(Options), "gemmproof check")


def test_a_fixture_without_a_docstring_is_named(monkeypatch):
    monkeypatch.setattr(references, "FIXTURES", ("gemm_report", "gemm_undocumented"))
    fixture = pytest.fixture(lambda: None)
    monkeypatch.setattr(references.plugin, "gemm_undocumented", fixture, raising=False)
    with pytest.raises(ValueError, match=r"^gemm_undocumented: got no docstring"):
        references.format_fixtures()


def test_every_fixture_of_the_plugin_is_in_the_table():
    fixtures = {
        name
        for name, value in vars(references.plugin).items()
        if hasattr(value, "_get_wrapped_function")
    }
    assert fixtures == set(references.FIXTURES)


def test_generated_pages_are_what_the_parsers_give():
    assert references.make_pages(check=True) == 0

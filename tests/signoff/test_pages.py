"""The page and the comment: all user input is shown as text, and nothing is fetched."""

import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.signoff.made_signoffs import FINDING, LIMITS, ODD, PROPERTIES, identity, report, signed
from tests.texts import line_with

from gemmproof.report.record import UNKNOWN, Coverage, Identity, ProofResult
from gemmproof.report.text import clean
from gemmproof.signoff import page as pages
from gemmproof.signoff.page import make_panels
from gemmproof.signoff.record import VERDICTS, Benchmark, MutationScore, Ratios

ROOT = Path(__file__).parents[2]
VOID = {"meta", "rect", "br"}


def odd_signoff():
    """Return a sign-off in which every user text is as odd as possible."""
    wrong = replace(FINDING, message=ODD)
    proof = ProofResult("not decided", why=ODD)
    odd = report(
        ODD,
        verdict="fail",
        note=ODD,
        findings=(wrong,),
        properties=(replace(PROPERTIES[0], proof=proof), *PROPERTIES[1:]),
        limits=(replace(LIMITS[0], status="limit", message=ODD, proof=ODD),),
        identity=Identity({f"{ODD}:{ODD}": "1"}, {}, identity().contract, {ODD: ODD}),
    )
    signoff = signed(odd, baseline=signed(report("gone " + ODD)), left_out=(ODD,))
    benchmark = Benchmark(ODD, ODD, (Ratios("fp16", ODD, 3, 1.0, 0.9, 1.1),))
    kernel = replace(signoff.kernels[0], benchmark=benchmark, mutation=MutationScore(60, 2, 1))
    return replace(signoff, kernels=(kernel,), versions={ODD: ODD})


def page(signoff):
    reproduce = {k.report.target: lambda case: f"say {ODD}" for k in signoff.kernels}
    return pages.format_html(signoff, reproduce)


class Reader(HTMLParser):
    """A parser that raises if tags do not match; keeps the text, the tags and the attributes."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.attributes, self.open = "", set(), [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_shows_what_users_write_as_text():
    read = Reader(page(odd_signoff()))
    assert read.text.count(clean(ODD)) > 10
    assert "script" not in read.tags
    assert "\x1b" not in read.text
    page(odd_signoff()).encode()  # a lone surrogate cannot be encoded


def test_what_holds_after_all_has_no_command_and_its_contract_is_in_words():
    held = replace(FINDING, fault="unexpected_pass", message="all cases: got 5 that held")
    reasons = {"no_races": "issue 12", "symmetries": "<b>"}
    facts = identity(expected=reasons)
    signoff = signed(report(verdict="fail", findings=(held,), identity=facts))
    text = Reader(page(signoff)).text
    assert held.message in text
    assert "say " not in text  # the command
    assert "; ".join(f"{name}: {why}" for name, why in reasons.items()) in text
    spilled = signed(report(identity=identity(spills=0)))
    terms = dict(pages.format_contract(spilled.kernels[0]))
    assert (terms["spills"], "fits" in terms) == ("0", False)
    assert "say " in Reader(page(signed(report(verdict="fail", findings=(FINDING,))))).text


def test_what_is_refused_stands_first_among_reasons_that_have_no_room(texts):
    unjudged = [report(f"k{i}", verdict="incomplete", note="no time") for i in range(40)]
    signoff = signed(*unjudged, report(verdict="fail", findings=(FINDING,)))
    assert [reason.weight for reason in signoff.reasons[:2]] == ["refused", "incomplete"]
    lines = pages.format_markdown(signoff).splitlines()
    texts("a refusal on a page", next(line for line in lines if "**refused**" in line))


def test_the_page_fetches_and_runs_nothing():
    read = Reader(page(odd_signoff()))
    assert not read.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    names = {name for name, _ in read.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "srcset", "style"}
    assert all(value.startswith("#") for name, value in read.attributes if name == "href")
    attributes = dict(pairwise(value for _, value in read.attributes))
    policy = dict(part.split() for part in attributes["Content-Security-Policy"].split(";"))
    assert policy == {"default-src": "'none'", "style-src": "'unsafe-inline'"}
    assert "url(" not in page(signed())
    assert "prefers-color-scheme: dark" in page(signed())


def test_the_pictures_are_drawings():
    drawn = re.findall(r"<svg.*?</svg>", page(odd_signoff()), re.DOTALL)
    assert len(drawn) > 3
    for picture in drawn:
        ElementTree.fromstring(picture)


def test_the_comment_has_one_line_for_each_thing_and_no_marks_of_users():
    text = pages.format_markdown(odd_signoff())
    assert not re.search(r"[<>]|(?<!`)`code|\[link|@all|#1\b|\x1b", text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {12}
    assert len(rows) == 3
    assert [line for line in text.splitlines() if line and line[0] not in "|-*`#"] != []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("matmul_w4 at M=1: 0.5", "matmul_w4 at M=1: 0.5"),
        ("a|b", "a&#124;b"),
        ("_x_ **y**", "&#95;x&#95; &#42;&#42;y&#42;&#42;"),
        ("see http://x and www.x", "see http&#58;//x and www&#46;x"),
        (":tada: @me #3", "&#58;tada: &#64;me &#35;3"),
        ("two\nlines", "two&#92;nlines"),
    ],
)
def test_marks_are_escaped_and_words_are_left(text, shown):
    assert pages.escape(text) == shown


def test_both_say_what_was_not_measured(texts):
    comment, shown = pages.format_markdown(signed()), Reader(page(signed())).text
    for text in ("not run", "not measured", VERDICTS[0]):
        assert text in comment
        assert text in shown
    signoff = odd_signoff()
    row = line_with(pages.format_markdown(signoff), "60 of 61")
    texts("a mutation score on a page", row.split("|")[-2].strip())
    assert "1.000 of " in Reader(page(signoff)).text


def test_the_grid_has_a_place_for_every_residue():
    panels = make_panels(Coverage({"0, 1, 1": 3, "other, BLOCK-1, 0": 1, "not known, 0, 0": 2}))
    assert [panel.k for panel in panels] == ["0", "1", "BLOCK-1", "other"]
    assert panels[0].rows == ("0", "1", "BLOCK-1", "other", "not known")
    assert sum(cell.count for panel in panels for cell in panel.cells) == 6
    assert max(cell.shade for panel in panels for cell in panel.cells) == 1
    unknown = ", ".join([UNKNOWN] * 3)
    assert make_panels(Coverage({unknown: 3})) == ()
    assert make_panels(None) == ()


def test_the_templates_are_in_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["gemmproof"]
    package = ROOT / "src" / "gemmproof"
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    templates = {package / "signoff" / "templates" / name for name in (pages.HTML, pages.MARKDOWN)}
    assert templates <= shipped


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        *((0.9995, "0.9995"), (0.99, "0.990"), (1.0, "1.000")),
        *((1.00001, "1.00001"), (4e-5, "< 0.001"), (0, "0.000")),
    ],
)
def test_an_error_within_its_bound_does_not_look_like_one_at_it(ratio, shown):
    assert pages.format_ratio(ratio) == shown


def test_what_weighs_nothing_is_no_reason():
    assert "**Not covered**" in pages.format_markdown(signed(left_out=("ws",)))
    assert "**Reasons**" in pages.format_markdown(signed(report(verdict="error", note="no")))

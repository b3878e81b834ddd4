"""A baseline is read back only if it is complete, of this schema, and unmodified."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.signoff.made_signoffs import INPUTS, PROPERTIES, identity, report, signed
from tests.support.cli_project import project_folder, refuse, register  # noqa: F401

from gemmproof.bench.record import BenchReport, Interval, TimedRow
from gemmproof.cli import EXIT, main
from gemmproof.mutate.record import MutantResult, MutationReport, Score
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import dump, encode
from gemmproof.properties.finding import Finding
from gemmproof.signoff.page import format_mutation
from gemmproof.signoff.record import (
    SIGNOFF_SCHEMA,
    MutationScore,
    Ratios,
    Signoff,
    find_hash,
    is_sealed,
    seal,
)
from gemmproof.signoff.verdict import SOURCE, read_baseline, read_bench, read_mutation

COMMAND = ["signoff", "--max-examples", "2"]


@pytest.fixture
def baseline(tmp_path, monkeypatch):
    """Write a handwritten sign-off of one kernel to base.json."""
    monkeypatch.chdir(tmp_path)
    document = signed().to_dict({"matmul": lambda case: "line"})
    Path("base.json").write_text(json.dumps(document))
    return document


def test_a_baseline_is_compared_and_may_be_replaced(project, capsys, texts):
    register("matmul", "star")
    command = [*COMMAND, "--json", "base.json"]
    assert main(command) == EXIT["pass"]
    first = json.loads(Path("base.json").read_text())
    text = Path("my_kernels.py").read_text()
    Path("my_kernels.py").write_text(text.replace("a, b):\n    pass", "a, b):\n    return 1"))
    register("matmul")
    capsys.readouterr()
    command += ["--baseline", "base.json", "--html", "page.html", "--markdown", "page.md"]
    assert main(command) == EXIT["fail"]
    out = capsys.readouterr().out.splitlines()
    start = out.index("against the baseline:")
    texts("what changed against the baseline", "\n".join([*out[start : start + 3], out[-1]]))
    assert Path("page.html").read_text().startswith("<!doctype html>")
    page = Path("page.md").read_text()
    texts("the heading of a refused sign-off", page.splitlines()[0])
    again = json.loads(Path("base.json").read_text())
    assert (again["signoff"], again["baseline"]) == ("refused", first["hash"])
    assert again["hash"] in page
    assert read_baseline("base.json").kernels[0].source


@pytest.fixture(name="refuse_baseline")
def refuse_baseline_in_one_line(baseline, capsys):
    """Return a function that gives the command's refusal of a baseline or an option."""
    return lambda *args: refuse([*COMMAND, "--baseline", "base.json", *args], capsys)


EDITS = {
    "examples": lambda d: d["kernels"][0]["properties"][0].update(examples=999),
    "verdict": lambda d: d.update(signoff="refused"),
    "seed": lambda d: d["inputs"].update(seed=9),
    "kernel": lambda d: d["kernels"].pop(),
    "hash": lambda d: d.update(hash="sha256:0"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_baseline_that_was_edited_is_refused(baseline, refuse_baseline, edit, texts):
    EDITS[edit](baseline)
    Path("base.json").write_text(json.dumps(baseline))
    texts("a baseline that was edited", refuse_baseline("--json", "new.json"))
    assert not Path("new.json").exists()


def test_a_baseline_that_was_only_laid_out_anew_is_taken(baseline):
    baseline["kernels"][0]["seconds"] = 99.0  # no result
    Path("base.json").write_text(json.dumps(baseline, sort_keys=True))
    read = read_baseline("base.json")
    assert read.kernels[0].report.properties == report().properties
    assert read.to_dict({"matmul": lambda case: "line"})["hash"] == baseline["hash"]


BROKEN = {
    "{": "got broken JSON: ",
    "[]": "got [], expected an object",
    '{"schema": 2, "kernels": []}': f"schema 2, not {SIGNOFF_SCHEMA}: sign off again",
    f'{{"schema": {SIGNOFF_SCHEMA}, "kernels": []}}': "it has no hash",
    json.dumps(seal({"schema": SIGNOFF_SCHEMA, "kernels": [{}]})): "malformed: KeyError",
    "[" * 100_000: "got JSON nested too deep",
    # deeper than Python's recursion limit; which function reaches it differs by version
    f'{{"schema": {SIGNOFF_SCHEMA}, "kernels": [], "hash": "",'
    f' "x": {"[" * 2000 + "]" * 2000}}}': "",
}
FORGED = {
    "source": lambda k: k["identity"].update(source=[1]),
    "formats": lambda k: k["identity"]["contract"].update(formats=None),
    "sizes": lambda k: k["identity"]["contract"].update(M="a..b\n"),
    "name": lambda k: k.update(target=["matmul"]),
    "bits": lambda k: k["coverage"].update(bits={"fp16": [{"case": {}, "digest": 2}]}),
}


@pytest.mark.parametrize("text", BROKEN, ids=BROKEN.values())
def test_what_is_no_baseline_is_one_line(refuse_baseline, text):
    Path("base.json").write_text(text)
    assert f"got 'base.json' ({BROKEN[text]}" in refuse_baseline()


@pytest.mark.parametrize("edit", FORGED)
def test_what_was_edited_and_sealed_again_is_one_line(baseline, refuse_baseline, edit, texts):
    FORGED[edit](baseline["kernels"][0])
    Path("base.json").write_text(json.dumps(seal(baseline)))
    message = re.sub(r"(malformed: ).*(\), expected )", r"\1<error>\2", refuse_baseline())
    texts("a baseline with a value that is not as it is written", message)


def test_a_file_that_is_not_there_is_one_line(refuse_baseline, texts):
    Path("base.json").unlink()
    texts("a baseline that is not there", refuse_baseline())


def test_one_case_is_no_sign_off_and_no_baseline(refuse_baseline):
    signoff = signed(inputs=replace(INPUTS, case='{"M":1}'))
    assert (signoff.verdict, signoff.code) == ("incomplete", "pass")
    text = json.dumps(signoff.to_dict({"matmul": lambda case: "line"}))
    Path("base.json").write_text(text)
    assert "(of one case only)" in refuse_baseline()


def test_times_are_no_part_of_the_hash():
    document = {"a": [{"seconds": 1.0, "b": 0.1}], "hash": "x"}
    assert find_hash(document) == find_hash({"a": [{"b": 0.1, "seconds": 2.0}]})
    assert find_hash(document) != find_hash({"a": [{"b": 0.2}]})


def timed(*sources, name="matmul", device="a card"):
    ratio = Interval(1.1, 1.0, 1.2)
    rows = [
        TimedRow(name, "torch", "fp16", "fp16", "s", 1, 1, 1, None, "faster", ratio=ratio),
        TimedRow(name, "torch", "fp16", "fp16", "t", 2, 2, 2, None, "wrong"),
    ]
    facts = {"device": device, "date": "today", f"{SOURCE}matmul": " ".join(sources)}
    Path("bench.json").write_text(dump(BenchReport(facts, (), tuple(rows))))


def test_a_benchmark_counts_only_of_the_same_source(refuse_baseline, texts):
    timed("1", "2")
    benchmark, why = read_bench("bench.json").find("matmul", identity())
    assert (benchmark.ratios, why) == ((Ratios("fp16", "torch", 1, 1.1, 1.1, 1.1),), "")
    assert signed(timed=read_bench("bench.json")).kernels[0].benchmark == benchmark
    timed("2")  # the timed function may be called by the registered one
    assert read_bench("bench.json").find("matmul", identity())[1] == ""
    for reason, sources, name in (
        ("bench.json measured a different source", ("1", "3"), "matmul"),
        ("bench.json does not name the source it measured", (), "matmul"),
        ("bench.json has no ratio for it", ("1",), "bmm"),
    ):
        timed(*sources, name=name)
        assert read_bench("bench.json").find("matmul", identity()) == (None, reason)
    Path("bench.json").write_text('{"schema": 1}')
    texts("a benchmark without facts", refuse_baseline("--bench", "bench.json"))


def test_two_reports_have_two_places(project, capsys, texts):
    register("matmul")
    message = refuse([*COMMAND, "--html", "a", "--json", "b", "--markdown", "a"], capsys)
    texts("two reports with one file", message)


def test_what_cannot_be_accepted_is_refused(refuse_baseline):
    assert "argument --accept: " in refuse_baseline("--accept", "finding")


# -- a mutation score counts only if the mutated source is the judged one --------------------------
NAME = "mutants.json"
MANY = 9
OUTCOMES = ["killed"] * 5 + ["survived", "equivalent", "no difference seen", "invalid"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(source=None, asked=MANY, reached=20, **changes):
    """Write the record of mutate for a kernel named matmul."""
    judged = tuple(
        MutantResult(str(i), "k.py", i, "a mask", "kernel", "", x) for i, x in enumerate(OUTCOMES)
    )
    source = identity().digest if source is None else source
    score = Score("matmul", judged, asked, 1.0, reached=reached, source=source)
    document = encode(MutationReport((replace(score, **changes),)))
    Path(NAME).write_text(json.dumps(document))


def test_the_score_of_the_same_source_stands_in_the_sign_off(texts):
    write()
    signoff = signed(mutated=read_mutation(NAME))
    assert signoff.kernels[0].mutation == MutationScore(5, 1, 1, unseen=1, tried=9, of=20)
    texts("a mutation score", format_mutation(signoff.kernels[0]))
    document = signoff.to_dict({"matmul": lambda case: "line"})
    assert is_sealed(document)
    assert Signoff.from_dict(document).kernels[0].mutation == signoff.kernels[0].mutation


@pytest.mark.parametrize(
    ("why", "given"),
    [
        (f"{NAME} measured a different source", {"source": "of another"}),
        (f"{NAME} does not name the source it measured", {"source": ""}),
        (f"{NAME} was cut short", {"asked": MANY + 1}),
        (f"{NAME} has no mutants for it", {"target": "bmm"}),
    ],
)
def test_another_score_does_not_and_it_is_said_why(why, given):
    write(**given)
    (kernel,) = signed(mutated=read_mutation(NAME)).kernels
    assert (kernel.mutation, kernel.why_not_mutated) == (None, why)
    assert format_mutation(kernel) == f"not measured ({why})"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "broken JSON"),
        ('{"schema": 9, "kernels": []}', "schema: got 9, expected 1"),
        ('{"schema": 1, "kernels": [{"target": "x"}]}', r"kernels\[0\]: got no mutants, expected"),
        ('{"kernels": [], "drops": [5]}', r"drops\[0\]: got 5, expected a text"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(text, why):
    Path(NAME).write_text(text)
    with pytest.raises(ValueError, match=why) as refused:
        read_mutation(NAME)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "--mutation was left out"),
        ({"source": "of another"}, f"{NAME} measured a different source"),
    ],
)
def test_a_score_that_the_baseline_had_is_not_lost_in_silence(given, why):
    write()
    before = signed(mutated=read_mutation(NAME))
    now = None
    if given is not None:
        write(**given)
        now = read_mutation(NAME)
    signoff = signed(baseline=before, mutated=now)
    lost = f"the mutation score is missing now: {why}"
    assert (signoff.verdict, signoff.code) == ("incomplete", "incomplete")
    assert [(change.kind, change.text) for change in signoff.changes] == [("mutation", lost)]
    assert [change.text for change in signoff.reasons] == [lost]
    accepted = signed(baseline=before, mutated=now, accepted=("mutation:matmul",))
    assert (accepted.verdict, accepted.code) == ("signed off", "pass")
    # a baseline without a score has none to lose
    assert signed(baseline=signed(), mutated=now).changes == ()
    wrong = signed(report(verdict="error", note="tl.what"), baseline=before, mutated=now)
    assert [change.text for change in wrong.reasons] == ["tl.what"]


def test_a_known_failure_is_told_with_its_reason_and_signed(texts):
    known = Finding("no_races", "race", "store of c: got two, expected one", Case(1, 1, 1))
    held, bound, races = PROPERTIES
    excused = replace(races, status="expected", reason="issue 12")
    signoff = signed(report(properties=(held, bound, excused), expected=(known,)))
    assert signoff.verdict == "signed off"
    (reason,) = signoff.reasons
    texts("the reason of a known failure", reason.text)
    document = signoff.to_dict({"matmul": lambda case: "line"})
    assert Signoff.from_dict(document).kernels[0].report.expected == (known,)

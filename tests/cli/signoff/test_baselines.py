"""A baseline is read back only if it is whole, of this schema, and as it was written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli_project import project_folder  # noqa: F401
from made_signoffs import INPUTS, identity, report, signed

from gemmproof.bench.records import BenchReport, Interval, TimedRow
from gemmproof.cli import EXIT, main
from gemmproof.signoff.baseline import read_baseline
from gemmproof.signoff.record import SCHEMA, Ratios
from gemmproof.signoff.seal import find_hash, seal
from gemmproof.signoff.timed import SOURCE, read_bench

CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import leaves, matmul, star

def pytest_gemm_kernels():
    return [KernelUnderTest(f.__name__, f, Contract()) for f in ({},)]
"""
COMMAND = ["signoff", "--max-examples", "2"]


@pytest.fixture
def baseline(tmp_path, monkeypatch):
    """A sign-off of one kernel in base.json, which no process made."""
    monkeypatch.chdir(tmp_path)
    made = signed().to_dict({"matmul": lambda case: "line"})
    Path("base.json").write_text(json.dumps(made))
    return made


def test_a_baseline_is_compared_and_may_be_replaced(project, capsys):
    Path("conftest.py").write_text(CONFTEST.format("matmul, star"))
    command = [*COMMAND, "--json", "base.json"]
    assert main(command) == EXIT["pass"]
    first = json.loads(Path("base.json").read_text())
    text = Path("my_kernels.py").read_text()
    Path("my_kernels.py").write_text(text.replace("a, b):\n    pass", "a, b):\n    return 1"))
    Path("conftest.py").write_text(CONFTEST.format("matmul"))
    capsys.readouterr()
    command += ["--baseline", "base.json", "--html", "page.html", "--markdown", "page.md"]
    assert main(command) == EXIT["fail"]
    out = capsys.readouterr().out.splitlines()
    start = out.index("against the baseline:")
    assert out[start + 1 : start + 3] == [
        "  star: gone: the baseline has it, and it is not registered  [refused]",
        "  matmul: source changed: my_kernels:matmul",
    ]
    assert out[-1] == "signoff: fail (1 pass; against the baseline: 1 refused)"
    assert Path("page.html").read_text().startswith("<!doctype html>")
    said = Path("page.md").read_text()
    assert said.startswith("## gemmproof sign-off: refused\n")
    again = json.loads(Path("base.json").read_text())
    assert (again["signoff"], again["baseline"]) == ("refused", first["hash"])
    assert again["hash"] in said
    assert read_baseline("base.json").kernels[0].source


@pytest.fixture
def refuse(baseline, capsys):
    """What the command says of a baseline or an option that it does not take, in one line."""

    def say(*words):
        with pytest.raises(SystemExit) as stop:
            main([*COMMAND, "--baseline", "base.json", *words])
        told = capsys.readouterr()
        assert (stop.value.code, told.out, told.err.count("\n")) == (EXIT["error"], "", 1)
        return told.err

    return say


EDITS = {
    "examples": lambda d: d["kernels"][0]["properties"][0].update(examples=999),
    "verdict": lambda d: d.update(signoff="refused"),
    "seed": lambda d: d["inputs"].update(seed=9),
    "kernel": lambda d: d["kernels"].pop(),
    "hash": lambda d: d.update(hash="sha256:0"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_baseline_that_was_edited_is_refused(baseline, refuse, edit):
    EDITS[edit](baseline)
    Path("base.json").write_text(json.dumps(baseline))
    why = "edited: its hash is not that of what it says"
    assert f"--baseline: got 'base.json' ({why})" in refuse("--json", "new.json")
    assert not Path("new.json").exists()


def test_a_baseline_that_was_only_laid_out_anew_is_taken(baseline):
    baseline["kernels"][0]["seconds"] = 99.0  # no result
    Path("base.json").write_text(json.dumps(baseline, sort_keys=True))
    read = read_baseline("base.json")
    assert read.kernels[0].report.properties == report().properties
    assert read.to_dict({"matmul": lambda case: "line"})["hash"] == baseline["hash"]


BROKEN = {
    "{": "broken JSON: ",
    "[]": "no sign-off",
    '{"schema": 2, "kernels": []}': f"schema 2, not {SCHEMA}: sign off again",
    f'{{"schema": {SCHEMA}, "kernels": []}}': "it has no hash",
    json.dumps(seal({"schema": SCHEMA, "kernels": [{}]})): "not as it is written: KeyError",
    "[" * 100_000: "nested too deep",
    # deeper than Python's functions call each other, which of them meets it differs by version
    f'{{"schema": {SCHEMA}, "kernels": [], "hash": "", "x": {"[" * 2000 + "]" * 2000}}}': "nested",
}
FORGED = {
    "source": lambda k: k["facts"].update(source=[1]),
    "formats": lambda k: k["facts"]["contract"].update(formats=None),
    "sizes": lambda k: k["facts"]["contract"].update(M="a..b\n"),
    "name": lambda k: k.update(target=["matmul"]),
    "bits": lambda k: k["coverage"].update(bits={"fp16": [{"case": {}, "digest": 2}]}),
}


@pytest.mark.parametrize("text", BROKEN, ids=BROKEN.values())
def test_what_is_no_baseline_is_one_line(refuse, text):
    Path("base.json").write_text(text)
    assert f"got 'base.json' ({BROKEN[text]}" in refuse()


@pytest.mark.parametrize("edit", FORGED)
def test_what_was_edited_and_sealed_again_is_one_line(baseline, refuse, edit):
    FORGED[edit](baseline["kernels"][0])
    Path("base.json").write_text(json.dumps(seal(baseline)))
    assert "got 'base.json' (not as it is written: " in refuse()


def test_a_file_that_is_not_there_is_one_line(refuse):
    Path("base.json").unlink()
    assert "got 'base.json' (No such file or directory)" in refuse()


def test_one_case_is_no_sign_off_and_no_baseline(refuse):
    one = signed(inputs=replace(INPUTS, case='{"M":1}'))
    assert (one.verdict, one.code) == ("incomplete", "pass")
    text = json.dumps(one.to_dict({"matmul": lambda case: "line"}))
    Path("base.json").write_text(text)
    assert "(of one case only)" in refuse()


def test_times_are_no_part_of_the_hash():
    one = {"a": [{"seconds": 1.0, "b": 0.1}], "hash": "x"}
    assert find_hash(one) == find_hash({"a": [{"b": 0.1, "seconds": 2.0}]})
    assert find_hash(one) != find_hash({"a": [{"b": 0.2}]})


def timed(*sources, name="matmul", device="a card"):
    ratio = Interval(1.1, 1.0, 1.2)
    rows = [
        TimedRow(name, "torch", "fp16", "fp16", "s", 1, 1, 1, None, "faster", ratio=ratio),
        TimedRow(name, "torch", "fp16", "fp16", "t", 2, 2, 2, None, "wrong"),
    ]
    facts = {"device": device, "date": "today", f"{SOURCE}matmul": " ".join(sources)}
    Path("bench.json").write_text(json.dumps(BenchReport(facts, (), tuple(rows)).to_dict()))


def test_a_benchmark_counts_only_of_the_same_source(refuse):
    timed("1", "2")
    found, why = read_bench("bench.json").find("matmul", identity())
    assert (found.ratios, why) == ((Ratios("fp16", "torch", 1, 1.1, 1.1, 1.1),), "")
    assert signed(timed=read_bench("bench.json")).kernels[0].benchmark == found
    timed("2")  # what was timed may be called by what is registered
    assert read_bench("bench.json").find("matmul", identity())[1] == ""
    for said, sources, name in (
        ("bench.json is of another source", ("1", "3"), "matmul"),
        ("bench.json does not say of which source", (), "matmul"),
        ("bench.json has no ratio of it", ("1",), "bmm"),
    ):
        timed(*sources, name=name)
        assert read_bench("bench.json").find("matmul", identity()) == (None, said)
    Path("bench.json").write_text('{"schema": 1}')
    assert "got 'bench.json' (no benchmark)" in refuse("--bench", "bench.json")


def test_two_reports_have_two_places(project, capsys):
    Path("conftest.py").write_text(CONFTEST.format("matmul"))
    assert main([*COMMAND, "--html", "a", "--json", "b", "--markdown", "a"]) == EXIT["error"]
    assert "--markdown: got 'a' as for --html, expected another" in capsys.readouterr().err


def test_what_cannot_be_accepted_is_refused(refuse):
    assert "argument --accept: " in refuse("--accept", "finding")

"""A proof may end its process: the check still gives its verdict, and reports what is open."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.cli_project import project_folder  # noqa: F401
from tests.support.supervised import each_way, judging  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.worker import entry_points

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{ROOT}", prepend=os.pathsep)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("engine", "how"),
    [
        ("hangs", "it timed out after 1.6 s"),
        ("crashes", "the process sent itself SIGSEGV"),
        ("leaves", "os._exit(0) was called"),
        ("killed", "the process sent itself SIGKILL"),
        ("fills", "GiB of memory (0.25 allowed by --memory-limit; "),
    ],
)
def test_a_proof_that_ends_its_process_loses_no_verdict(run, engine, how):
    report, outcome = run("returns", engine=f"dying_engine:{engine}", proof=True)
    assert (report.verdict, report.note, report.findings, outcome.cases) == ("pass", None, (), 6)
    bounds = next(p for p in report.properties if p.name == "stays_in_bounds")
    summary = (bounds.status, bounds.examples, bounds.proof.status, bounds.proof.cut)
    assert summary == ("pass", 6, "not decided", "death")
    assert bounds.proof.why.startswith("the proof ended early: ")
    assert how in bounds.proof.why
    assert all(p.proof is None for p in report.properties if p is not bounds)


def test_a_fault_is_found_after_such_a_proof_and_also_where_the_kernel_dies(run, texts):
    report, _ = run("faults", engine="dying_engine:crashes", proof=True)
    assert (report.verdict, [f.fault for f in report.findings]) == ("fail", ["crash"])
    bounds = next(p for p in report.properties if p.name == "stays_in_bounds")
    texts("a proof that died", bounds.proof.why)


def test_without_a_proof_a_worker_runs_once(run):
    report, outcome = run("returns", engine="dying_engine:crashes", proof=False)
    assert (report.verdict, outcome.cases, outcome.undecided) == ("pass", 6, {})
    assert all(p.proof is None for p in report.properties)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.chdir(ROOT / "docs" / "examples")

    def judge(engine, *options):
        monkeypatch.setattr(entry_points, "ENGINE", f"proving_engine:{engine}")
        return main(["check", "right.py:matmul", "--max-examples", "8", "--proof", *options])

    return judge


@pytest.mark.lane("full")
def test_what_is_proved_is_shown_on_one_line_in_every_form(example, tmp_path, capsys, texts):
    json_, junit = str(tmp_path / "r.json"), str(tmp_path / "r.xml")
    assert example("says", "--json", json_, "--junit", junit) == EXIT["pass"]
    out = capsys.readouterr().out.splitlines()
    scope = "every M, N, K, in 10 s"
    named = [line for line in out if line.startswith(("  stays_in_bounds", "  offsets_fit"))]
    texts("properties that are proved and not decided", "\n".join(named), scope=scope)
    reason = "load of a: its address hangs on data"
    assert f"not decided for every size: {reason} (offsets_fit)" in out
    branch = "right.py:9 needs M >= 1025"
    (verdict,) = (line for line in out if line.startswith("matmul: pass"))
    assert "1 branch never ran: " + branch in verdict
    report = json.loads(Path(json_).read_text())
    proofs = {p["name"]: p["proof"] for p in report["properties"]}
    nothing = {"scope": "", "why": "", "cut": "", "assumptions": []}
    assert proofs.pop("stays_in_bounds") == {**nothing, "status": "proved", "scope": scope}
    assert proofs.pop("offsets_fit") == {**nothing, "status": "not decided", "why": reason}
    assert set(proofs.values()) == {None}
    assert report["unvisited"] == [branch]
    suite = ElementTree.parse(junit).iter("property")
    assert {p.get("name"): p.get("value") for p in suite} == {
        "proof of stays_in_bounds": f"proved for {scope}",
        "proof of offsets_fit": f"not decided: {reason}",
    }


def test_a_proof_and_the_case_that_contradicts_it_are_both_shown(monkeypatch, tmp_path, capsys):
    """The exit code is that of an error, and the report calls nothing proved."""
    monkeypatch.chdir(ROOT / "docs" / "examples")
    monkeypatch.setattr(entry_points, "ENGINE", "proving_engine:says")
    json_ = str(tmp_path / "r.json")
    options = ["--max-examples", "4", "--proof", "--json", json_]
    assert main(["check", "no_k_mask.py:matmul", *options]) == EXIT["error"]
    out = capsys.readouterr().out
    assert "gemmproof contradicts itself: stays_in_bounds is proved for every M, N, K" in out
    assert "smallest case: M=1 N=1 K=1" in out
    report = json.loads(Path(json_).read_text())
    assert report["verdict"] == "error"
    assert any(f["property"] == "stays_in_bounds" for f in report["findings"])
    (proof,) = (p["proof"] for p in report["properties"] if p["name"] == "stays_in_bounds")
    assert proof["status"] == "contradicted"


def test_a_refutation_that_the_simulation_does_not_show_is_our_error(example, tmp_path, capsys):
    json_, junit = str(tmp_path / "r.json"), str(tmp_path / "r.xml")
    assert example("doubts", "--json", json_, "--junit", junit) == EXIT["error"]
    proof = "the proof says row < M is lacking at M=3 N=2 K=1 fp16, a row, b row"
    message = f"gemmproof contradicts itself: {proof}, the simulation does not; please report it"
    assert capsys.readouterr() == ("", f"gemmproof check: {message}\n")
    report = json.loads(Path(json_).read_text())
    assert (report["verdict"], report["findings"]) == ("error", [])
    assert report["properties"][2]["proof"]["status"] == "contradicted"
    cases = ElementTree.parse(junit).iterfind(".//testcase[error]")
    assert [case.get("name") for case in cases] == ["check", "stays_in_bounds"]


@pytest.mark.lane("full")
@pytest.mark.parametrize("options", [["--no-proof"], ["--case", '{"M":1,"N":1,"K":1}']])
def test_with_no_proof_or_a_case_that_is_replayed_nothing_is_proved_nor_said(
    example, options, capsys
):
    assert example("doubts", *options) == EXIT["pass"]
    assert "decided" not in capsys.readouterr().out


@pytest.mark.lane("full")
@pytest.mark.parametrize("engine", ["dies", "fills"])
def test_the_engine_survives_its_prover(example, capsys, engine, texts):
    assert example(engine, "--memory-limit", "1") == EXIT["pass"]
    out = capsys.readouterr().out
    (line,) = (x for x in out.splitlines() if x.startswith("not decided for every size: "))
    end = line.partition("early: ")[2].rpartition(" (")[0]
    texts("a proof that ended early", line, end=end)


@pytest.mark.lane("full")
def test_without_a_proof_no_solver_is_loaded():
    code = (
        "import sys; from gemmproof import KernelUnderTest, check; import right;"
        "report = check(KernelUnderTest('right', right.matmul), max_examples=2, proof={0});"
        "print(report.verdict, *sys.modules)"
    )
    for proof in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", code.format(proof)],
            env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'docs' / 'examples'}"},
            capture_output=True,
            text=True,
            check=True,
        )
        verdict, *loaded = done.stdout.split()
        assert verdict == "pass"
        assert ("gemmproof.properties.proof.prove" in loaded) == proof
        assert proof or "z3" not in loaded


@pytest.mark.lane("full")
@pytest.mark.proves
def test_a_project_may_always_say_no(tmp_path, monkeypatch, capsys):
    from gemmproof.cli import parse_options

    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "docs" / "examples" / "right.py", tmp_path)
    line = "  stays_in_bounds                proved for every M, N, K; held in 3 cases\n"

    assert parse_options(["check", "x.py:f"]).judge.proof
    assert parse_options(["signoff"]).judge.proof
    assert not parse_options(["signoff", "--no-proof"]).judge.proof
    assert main(["check", "right.py:matmul", "--max-examples", "3"]) == EXIT["pass"]
    assert line in capsys.readouterr().out
    Path("pyproject.toml").write_text("[tool.gemmproof]\nproof = false\n")
    assert not parse_options(["check", "x.py:f"]).judge.proof
    assert not parse_options(["signoff"]).judge.proof
    assert parse_options(["signoff", "--proof"]).judge.proof
    assert main(["check", "right.py:matmul", "--max-examples", "3"]) == EXIT["pass"]
    assert "proved" not in capsys.readouterr().out

"""Reports of assumptions: the line, the sign-off's pages, the plugin, the end of a worker."""

import json
import os
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from tests.support.warm_process import run_module
from tests.texts import line_with

from gemmproof.cli import EXIT, main
from gemmproof.engine.assemble import make_report
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import decode, dump, encode, parse
from gemmproof.report.record import SCHEMA, ModelCheck, Report
from gemmproof.terminal import _Part
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import CaseStarted, ModelCheckStarted, PartialReport, Started
from gemmproof.worker.supervisor import Limits, find_broken

ROOT = Path(__file__).parents[2]
CASE = Case(17, 16, 16).to_json()
CONFTEST = """
def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest
    import right
    return [KernelUnderTest("right", right.matmul, Contract())]
"""
KEPT = ModelCheck("sm_90", 14, 20, 20, 0)
BROKEN = replace(KEPT, agreed=17, differ=1, contradicted=("file.py:70: predicted as ...",))
BROKEN = replace(BROKEN, unknown=("file.py:90: no instruction",), failed=("f: got no end",))


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copy(ROOT / "docs" / "examples" / "right.py", tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_kernels.py").write_text("from gemmproof.suite import *\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_line_says_it(texts):
    texts("launches that are compiled as predicted", KEPT.say())
    assert KEPT.is_kept
    texts("launches that are not all compiled as predicted", BROKEN.say())
    assert not BROKEN.is_kept
    every = (*BROKEN.contradicted, *BROKEN.failed, *BROKEN.unknown)
    assert list(BROKEN.list_lines(1)) == [f"  {line}" for line in every]
    several = replace(KEPT, unknown=("one", "two", "three"))
    texts("more lines than are shown", "\n".join(several.list_lines(1)))
    none = replace(KEPT, target="", launches=0)
    texts("no dot that was predicted", none.say())


def test_the_record_is_what_its_json_says():
    for model_check in (KEPT, BROKEN, replace(KEPT, not_compared={"promotion": 3})):
        assert parse(ModelCheck, dump(model_check), "model_check") == model_check
    with pytest.raises(ValueError, match="model_check: got no launches, expected fields target la"):
        decode(ModelCheck, {"target": "sm_90"}, "model_check")


@pytest.mark.lane("full")
def test_a_sign_off_and_its_pages_say_it(project, capsys, texts):
    command = ["signoff", "--target", "sm_80", "--check-model", "--case", CASE, "--quiet"]
    pages = ["--markdown", "signed.md", "--html", "signed.html", "--json", "signed.json"]
    main([*command, *pages])
    line = "model check: 1 launch compiled for sm_80, all as predicted"
    assert f"right: {line}" in capsys.readouterr().out
    assert f"\nright: {line}\n" in unescape(Path("signed.md").read_text())
    assert line in Path("signed.html").read_text()
    record = json.loads(Path("signed.json").read_text())["kernels"][0]["model_check"]
    assert (record["launches"], record["dots"], record["agreed"]) == (1, 1, 1)
    assert main(["signoff", "--check-model"]) == EXIT["error"]
    texts("a sign-off without a target checks no model", capsys.readouterr().err)


@pytest.mark.lane("full")
def test_the_plugin_takes_it(project, texts):
    def run(*options):
        path = f"{ROOT / 'src'}:{project}:{os.environ.get('PYTHONPATH', '')}"
        args = ["-p", "gemmproof.plugin", "-p", "no:cacheprovider", "-q", *options]
        env = {
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": "/usr/bin",
        }
        return run_module("pytest", *args, cwd=Path.cwd(), env=env)

    code, out = run("--gemm-check-model", "--gemm-target", "sm_80", "--gemm-case", CASE)
    assert code == 0, out
    code, out = run("--gemm-check-model")
    assert code == pytest.ExitCode.USAGE_ERROR
    texts("pytest without a target checks no model", line_with(out, "gemm_check_model"))


def test_a_worker_that_dies_while_it_compiles_leaves_what_was_judged(texts):
    worker = WorkerExit("time", "9 cases took 601 s")
    worker.take(CaseStarted(CASE, "draw", 8))
    report = Report(SCHEMA, "right", (), (), 1.0, {})
    worker.take(PartialReport(encode(report), judged=True))
    worker.take(ModelCheckStarted("f BM=16", 2, 3))
    worker_report = make_report(worker, "file.py:right", None)
    assert (worker_report.target, worker_report.verdict) == ("file.py:right", "incomplete")
    texts("a worker that dies while it compiles", worker_report.note)
    # the report was sent again with its assumptions, before the search beyond the contract
    worker.take(PartialReport(encode(replace(report, model_check=KEPT)), judged=True))
    assert make_report(worker, "file.py:right", None).verdict == "pass"


def test_launches_that_are_compiled_have_time_of_their_own():
    limits, worker = Limits(total=10, each=3), WorkerExit()
    worker.take(Started(2))
    assert find_broken(limits, worker, 0, 0, 11) == "time"
    worker.take(ModelCheckStarted("f", 1, 4))
    assert find_broken(limits, worker, 0, 0, 11) is None


def test_progress_names_the_launch(texts):
    part = _Part()
    part.take(ModelCheckStarted("f BM=16", 2, 3), 0.0)
    texts("progress of a model check", part.tell())

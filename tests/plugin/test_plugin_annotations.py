"""Where a job of GitHub's runs pytest, the lines of findings are annotated at the end."""

from __future__ import annotations

import shutil

import pytest
from test_plugin import HEAD, ROOT, run


@pytest.fixture
def project(tmp_path):
    shutil.copy(ROOT / "docs" / "examples" / "no_k_mask.py", tmp_path)
    (tmp_path / ".git").mkdir()
    body = "import no_k_mask\n    return [K('stray', no_k_mask.matmul)]\n"
    (tmp_path / "conftest.py").write_text(HEAD + body)
    (tmp_path / "test_kernels.py").write_text(
        "from gemmproof.suite import *\n\ndef test_other():\n    assert False\n"
    )
    return tmp_path


def list_commands(out):
    return [line for line in out.splitlines() if line.startswith("::")]


FEW = ("--gemm-in-process", "--gemm-max-examples", "1", "-k", "bounds or exact or other")


@pytest.mark.lane("full")
@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_the_lines_of_findings_are_annotated(project, processes):
    status, out = run(project, *FEW, "--gemm-annotations", "github", *processes)
    assert status == 1
    line, other = list_commands(out)
    item = "test_gemm[stray-fp16-stays_in_bounds]"
    assert line.startswith(
        f"::error file=no_k_mask.py,line=21,title={item}%3A stays_in_bounds::load of a at"
    )
    assert ",line=22,title=" in other
    assert "\nnot annotated: 1 that follow from others\n" in out
    assert f"%0Areproduce: pytest 'test_kernels.py::{item}' --gemm-case " in line


def test_elsewhere_none_are(project):
    status, out = run(project, *FEW)
    assert (status, list_commands(out)) == (1, [])


def test_another_word_is_refused(project):
    status, out = run(project, "--gemm-annotations", "gitlab")
    assert status == 4
    assert "gemm_annotations: got 'gitlab', expected auto, github or none" in out

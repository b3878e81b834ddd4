"""A proof in a project's pytest run and in its sign-off."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.pytest_project import list_failed, run_pytest, write_project
from tests.texts import line_with

from gemmproof.cli import EXIT, main
from gemmproof.worker import entry_points

# few cases do not exercise every property
FEW = ("--max-examples", "3", "--accept", "exercise", "--accept", "branch")
CONFTEST = """
def pytest_gemm_kernels():
    from gemmproof.properties.proof import prove
    from gemmproof.properties.proof import Proof, Proofs
    proofs = Proofs((
        Proof("stays_in_bounds", "proved", "every M"),
        Proof("offsets_fit", "refuted", why="it wraps", case='{"M":3,"N":2,"K":1}'),
    ))
    prove.prove = lambda kernel, target, seconds: proofs

    from gemmproof import KernelUnderTest
    import right
    return [KernelUnderTest("right", right.matmul)]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_project(tmp_path, CONFTEST, "right")


def run(project, *options):
    return run_pytest(project, "--gemm-max-examples", "3", *options)[1]


@pytest.mark.lane("full")
def test_an_item_says_what_is_proved_and_fails_where_gemmproof_contradicts_itself(project, texts):
    out = run(project, "--gemm-proof", "--junit-xml", "report.xml", "-k", "bounds or fit")
    assert list_failed(out) == ["test_kernels.py::test_gemm[right-fp16-offsets_fit]"]
    assert "1 failed, 1 passed" in out
    shown = next(line for line in out.splitlines() if "contradicts itself" in line)
    texts("an item of a proof that is contradicted", shown)
    properties = {
        case.get("name"): [p.get("value") for p in case.iter("property")]
        for case in ElementTree.parse(project / "report.xml").iter("testcase")
    }
    assert properties == {
        "test_gemm[right-fp16-stays_in_bounds]": ["proved for every M"],
        "test_gemm[right-fp16-offsets_fit]": [
            "contradicted: the proof says it wraps at M=3 N=2 K=1 fp16, a row, b row, the"
            " simulation does not"
        ],
    }


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--gemm-no-proof"], "[tool.gemmproof]\nproof = true\n"),
        (["-o", "gemm_proof=no"], "[tool.gemmproof]\nproof = true\n"),
        ([], "[tool.gemmproof]\nproof = false\n"),
    ],
)
def test_it_can_be_left_out(project, options, settings):
    (project / "pyproject.toml").write_text(f"[project]\nname = 'p'\n{settings}")
    assert "1 passed" in run(project, "-k", "fit", *options)


@pytest.mark.lane("full")
def test_a_word_that_is_no_truth_is_refused(project, texts):
    out = run(project, "-o", "gemm_proof=maybe")
    texts("an option of pytest that is neither true nor false", out.strip())


@pytest.mark.lane("full")
def test_sign_off_marks_what_is_proved_and_says_so(project, monkeypatch, capsys, texts):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(entry_points, "ENGINE", "proving_engine:says")
    assert main(["signoff", *FEW, "--proof"]) == EXIT["pass"]
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["stays_in_bounds", "proved", "3"] in rows
    texts("the note below a table with proofs", line_with(out, "every size"))
    assert main(["signoff", *FEW, "--no-proof"]) == EXIT["pass"]
    assert "proved" not in capsys.readouterr().out

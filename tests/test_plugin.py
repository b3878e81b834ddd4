"""A stranger's project: a hook in its conftest.py, one import line, and an item per property."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
PYTEST = ("-p", "gemmproof.plugin", "-p", "no:cacheprovider")
CONFTEST = """
def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest
    import right, unmasked_row
    return [
        KernelUnderTest("right", right.matmul, Contract(formats=("fp16", "bf16"))),
        KernelUnderTest("unmasked_row", unmasked_row.matmul),
    ]
"""


@pytest.fixture
def project(tmp_path):
    """A folder with two kernels, a conftest.py and a test file of one line."""
    for name in ("right", "unmasked_row"):
        shutil.copy(ROOT / "docs" / "examples" / f"{name}.py", tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_kernels.py").write_text("from gemmproof.suite import *\n")
    return tmp_path


def run(project: Path, *options: str) -> tuple[int, str]:
    """Run pytest there as a user would; its exit status, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PYTEST, "--rootdir", str(project), *options],
        cwd=project,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{project}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_every_property_is_an_item_and_a_failure_reads_like_check(project):
    status, out = run(project, "--gemm-max-examples", "10", "--junit-xml", "report.xml")
    assert status == 1
    failed = re.findall(r"^FAILED (\S+)", out, re.MULTILINE)
    assert failed == ["test_kernels.py::test_gemm[unmasked_row-fp16-stays_in_bounds]"]
    assert "unmasked_row does not stay in bounds: every unmasked lane addresses" in out
    assert "load of a at unmasked_row.py:" in out
    assert "smallest case: M=1 N=1 K=1 fp16, a row, b row" in out
    names = [
        case.get("name") for case in ElementTree.parse(project / "report.xml").iter("testcase")
    ]
    kinds = {name.removeprefix("test_gemm[").rpartition("-")[0] for name in names}
    assert kinds == {"right-fp16", "right-bf16", "unmasked_row-fp16"}
    assert not any("mirror_equals_source" in name for name in names)
    line = re.search(r"reproduce:  (.*)$", out, re.MULTILINE).group(1)
    words = shlex.split(line)
    assert words[0] == "pytest"
    status, out = run(project, *words[1:])
    assert status == 1
    assert "unmasked_row does not stay in bounds" in out


def test_items_can_be_spread_over_workers(project):
    status, out = run(
        project, "--gemm-max-examples", "8", "-n", "2", "-k", "right-bf16", "-m", "gemm"
    )
    assert status == 0, out
    assert re.search(r"\d+ passed", out)


def test_a_run_without_our_items_loads_nothing_heavy(project):
    (project / "test_kernels.py").write_text(
        "import sys\n"
        "def test_modules():\n"
        "    heavy = {'torch', 'triton', 'hypothesis', 'numpy', 'ml_dtypes', 'rich'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    status, out = run(project, "-p", "no:hypothesispytest")
    assert status == 0, out


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--gemm-max-examples", "0"], "gemm_max_examples: got '0', expected an integer from 1"),
        (["-o", "gemm_seed=x"], "gemm_seed: got 'x', expected an integer from 0"),
        (["--gemm-case", "{"], "--gemm-case: case: got broken JSON"),
    ],
)
def test_a_bad_option_is_one_line(project, option, said):
    status, out = run(project, *option)
    assert (status, out.strip()) == (4, f"ERROR: {out.strip().removeprefix('ERROR: ')}")
    assert said in out


def test_a_hook_that_returns_nonsense_is_a_usage_error(project):
    (project / "conftest.py").write_text("def pytest_gemm_kernels():\n    return [1]\n")
    status, out = run(project)
    assert status != 0
    assert "pytest_gemm_kernels: got 1, expected a list of KernelUnderTest" in out

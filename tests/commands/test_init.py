"""`gemmproof init`: the two files it writes, its refusals, and pytest on these files."""

from __future__ import annotations

import ast
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support.cli_project import refuse
from tests.support.lanes import first_of_each
from tests.support.pytest_project import run_pytest

from gemmproof.cli import main
from gemmproof.reference.spec import Rules, evaluate

ROOT = Path(__file__).parents[2]
KERNELS = """
def matmul(a, b): pass
def bmm(a, b): pass
def Contract(a, b): pass
class Ops:
    @staticmethod
    def mm(a, b): pass
number = 3
"""

WITHOUT_GEMMPROOF = """
import sys, pytest

class Missing:
    def pytest_configure(self):
        sys.meta_path.insert(0, self)  # before pytest's own, which finds all that it rewrites

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gemmproof":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.exit(pytest.main(plugins=[Missing()]))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Create the current folder, with wrappers that are never run and one right kernel."""
    monkeypatch.chdir(tmp_path)
    Path("wrappers.py").write_text(KERNELS)
    Path("needs.py").write_text("import no_such_library\n")
    Path("dies.py").write_text("import os\nos._exit(3)\n")
    shutil.copy(ROOT / "docs" / "examples" / "right.py", tmp_path)
    return tmp_path


def load_registered(conftest: Path) -> list:
    """Return the result of a written conftest.py's hook, in a fresh process in another folder."""
    code = (
        "import runpy, sys\n"
        f"for k in runpy.run_path({str(conftest)!r})['pytest_gemm_kernels']():\n"
        "    print([k.name, k.launch.__qualname__, k.contract.formats, k.contract.layouts,"
        " k.contract.batched, k.contract.batch_invariant])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    return [eval(line) for line in done.stdout.splitlines()]


@pytest.mark.lane("full")
def test_what_is_written_runs_under_pytest_and_signoff(project, capsys, texts):
    assert main(["init", "right.py:matmul", "--directory", "."]) == 0
    texts("the files that are written", capsys.readouterr().out)
    status, out = run_pytest(project, "-k", "bounds or exact", "--gemm-max-examples", "8")
    assert status == 0, out
    assert "2 passed" in out
    assert main(["signoff", "--max-examples", "40"]) == 0


@pytest.mark.lane("full")
@pytest.mark.parametrize("command", ["right.py:matmul", "it-is.py:matmul", "json.tool:main"])
def test_other_tests_run_where_gemmproof_is_not_installed(project, command):
    shutil.copy("right.py", "it-is.py")
    target = [command, "--call", "main(a, b)"] if command.startswith("json") else [command]
    assert main(["init", *target]) == 0
    Path("test_other.py").write_text("def test_other(): pass\n")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GEMMPROOF],
        env={**os.environ, "PYTEST_ADDOPTS": "-p no:gemmproof.plugin -p no:cacheprovider -rs"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    why = "SKIPPED [1] test_gemm.py:5: gemmproof is not installed: no kernel is checked\n"
    assert done.stdout.count(why) == 1


USUAL = [("fp16",), "contiguous", False, False]


@pytest.mark.parametrize(
    ("command", "launch", "contract"),
    first_of_each(
        [
            ("wrappers.py:matmul", "matmul", USUAL),
            ("wrappers:matmul", "matmul", USUAL),
            ("wrappers.py:bmm", "bmm", [("fp16",), "contiguous", True, False]),
            ("wrappers.py:Contract", "Contract", USUAL),
            ("wrappers.py:Ops.mm", "Ops.mm", USUAL),
            (
                "wrappers.py:matmul --dtype bf16 --dtype int8 --layouts contiguous"
                " --batch-invariant",
                "matmul",
                [("bf16", "int8"), "contiguous", False, True],
            ),
            ("package/inner.py:matmul", "matmul", USUAL),
            ("package.inner:matmul", "matmul", USUAL),
            (""" "it's \\"odd\\" {x}.py:matmul" """, "matmul", USUAL),
            ("colorsys.py:matmul", "matmul", USUAL),
            ("junitparser.py:matmul", "matmul", USUAL),
        ]
    ),
)
def test_the_hook_finds_the_kernel_from_any_folder(project, command, launch, contract):
    folder = "." if "--dtype" in command else "tests of 'mine'"
    Path("package").mkdir()
    Path("package/__init__.py").touch()
    target = shlex.split(command)[0].partition(":")[0]
    written = {"package.inner": "package/inner.py", "wrappers": "wrappers.py"}.get(target, target)
    Path(written).write_text(KERNELS)
    Path(folder).mkdir(exist_ok=True)
    assert main(["init", *shlex.split(command), "--directory", folder]) == 0
    nodes = list(ast.walk(ast.parse((Path(folder) / "conftest.py").read_text())))
    imports = (x for x in nodes if isinstance(x, ast.Import | ast.ImportFrom))
    imported = {alias.asname or alias.name for x in imports for alias in x.names}
    assert imported == imported & {x.id for x in nodes if isinstance(x, ast.Name)}
    name = launch.rpartition(".")[2]
    assert load_registered(project / folder / "conftest.py") == [[name, launch, *contract]]


def test_a_formula_gets_its_names_from_a_module_of_its_own(project, monkeypatch):
    spec = "acc = a @ b; where(arange(M)[:, None] >= 1, relu(acc), 0) + bf16(s) * abs(float(1))"
    command = ["init", "right.py:matmul", "--operand", "s=fp32[N]", "--spec", spec]
    assert main([*command, "--call", "matmul(a, b)"]) == 0
    text = Path("conftest.py").read_text()
    assert "    from gemmproof.formulas import arange, bf16, relu, where\n" in text
    assert "import numpy" not in text
    monkeypatch.setattr(sys, "path", [*sys.path])
    (kernel,) = runpy.run_path("conftest.py")["pytest_gemm_kernels"]()
    sys.modules.pop("wrappers", None)  # other tests have a module of this name
    a = b = np.ones((2, 2), np.float16), "fp16"
    given = {"a": a, "b": b, "s": (np.full(2, 1 + 2.0**-9, np.float32), "fp32")}
    sizes = {"M": 2, "N": 2, "K": 2}
    (c,) = evaluate(lambda **named: kernel.calculate(named, sizes), given, Rules())
    assert c.value.tolist() == [[1, 1], [3, 3]]


def test_files_that_are_there_stay_without_force(project, capsys):
    Path("test_gemm.py").write_text("mine\n")
    message = "test_gemm.py: the file exists; use --force to overwrite it"
    assert refuse(["init", "wrappers.py:matmul"], capsys) == f"gemmproof init: {message}\n"
    assert Path("test_gemm.py").read_text() == "mine\n"
    assert not Path("conftest.py").exists()
    Path("conftest.py").write_text("theirs = 1\n")
    assert main(["init", "wrappers.py:matmul", "--force"]) == 0
    assert "theirs" not in Path("conftest.py").read_text()
    assert "mine" not in Path("test_gemm.py").read_text()


def test_a_conftest_that_is_there_gets_lines_to_add(project, capsys, texts):
    Path("conftest.py").write_text("theirs = 1\n")
    assert main(["init", "wrappers.py:matmul", "--dtype", "bf16"]) == 0
    out = capsys.readouterr().out
    texts("what a conftest.py that is there gets", out)
    assert Path("conftest.py").read_text() == "theirs = 1\n"
    Path("conftest.py").write_text(out.split("add:\n\n")[1])
    (kernel,) = load_registered(project / "conftest.py")
    assert kernel[:3] == ["matmul", "matmul", ("bf16",)]
    assert main(["init", "wrappers.py:bmm"]) == 0
    texts("what a hook that is there gets", capsys.readouterr().out)


def test_a_second_time_changes_nothing(project, capsys, texts):
    assert main(["init", "wrappers.py:matmul"]) == 0
    before = Path("conftest.py").read_text()
    assert main(["init", "wrappers.py:matmul"]) == 0
    texts("a kernel that is registered already", capsys.readouterr().out)
    assert Path("conftest.py").read_text() == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("wrappers.py", "target: got 'wrappers.py', expected path/to/file.py:function or"),
        ("absent.py:f", "target: got 'absent.py' (no such file), expected a Python file"),
        ("wrappers.py:matmull", "got 'matmull', which is not there, expected perhaps 'matmul'"),
        ("wrappers.py:number", "wrappers.py:number: got int, expected a function f(a, b) -> c"),
        ("wrappers.py:class", "target: got 'class', a Python keyword, expected a name"),
        ("needs.py:f", "needs.py:1: importing it raised ModuleNotFoundError: No module named"),
        ("dies.py:f", "dies.py:2: while loading it, os._exit(3) was called"),
        ("right.py:kernel", "got a Triton kernel, expected the wrapper f(a, b) -> c"),
        ("wrappers.py:matmul --directory absent", "--directory: got 'absent' (no such folder)"),
        ("wrappers.py:matmul --directory needs.py", "--directory: got 'needs.py' (not a folder)"),
        ("conftest.py:matmul --force", "target: got 'conftest.py', which init writes itself"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(project, capsys, command, message):
    if command.startswith("conftest"):
        Path("conftest.py").write_text(KERNELS)
    before = sorted(project.iterdir())
    assert message in refuse(["init", *shlex.split(command)], capsys)
    assert [p for p in sorted(project.iterdir()) if p.name != "__pycache__"] == before

"""[tool.gemmproof] gives the options that nobody typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_project import project_folder  # noqa: F401

from gemmproof.cli import EXIT, _parse, main


def write(text):
    Path("pyproject.toml").write_text(f"[tool.gemmproof]\n{text}\n")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)


def test_settings_are_options_and_typed_ones_replace_them(monkeypatch):
    write('dtype = ["fp16", "bf16"]\nmax-examples = 7\nsizes = "K=16..:16"\nhuge = true\njobs = 3')
    options = _parse(["check", "x.py:f", "--max-examples", "9"])
    assert (options.dtype, options.max_examples, options.huge) == (["fp16", "bf16"], 9, True)
    assert options.sizes == {"K": "16..:16"}
    assert _parse(["check", "x.py:f", "--dtype=int8"]).dtype == ["int8"]
    assert (_parse(["signoff"]).jobs, _parse(["signoff"]).max_examples) == (3, 7)
    monkeypatch.chdir("inner")  # the nearest file above counts
    assert _parse(["check", "x.py:f"]).max_examples == 7


def test_a_project_without_settings_has_the_usual_ones():
    Path("pyproject.toml").write_text("[project]\nname = 'p'\n")
    assert _parse(["check", "x.py:f"]).max_examples == 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-example = 3", "pyproject.toml [tool.gemmproof]: got 'max-example', expected one of "),
        ("max-examples = 0", "argument --max-examples: got '0', expected an integer"),
        ('layouts = "dense"', "argument --layouts: got 'dense', expected"),
        ("max-examples = ", "pyproject.toml: got broken TOML"),
    ],
)
def test_a_wrong_setting_is_one_line(text, said, capsys):
    write(text)
    with pytest.raises(SystemExit) as left:
        _parse(["check", "x.py:f"])
    told = capsys.readouterr().err
    assert left.value.code == EXIT["error"]
    assert said in told
    assert told.count("\n") == 1


def test_settings_that_are_no_table_are_one_line(capsys):
    Path("pyproject.toml").write_text("[tool]\ngemmproof = 3\n")
    with pytest.raises(SystemExit) as left:
        _parse(["check", "x.py:f"])
    told = capsys.readouterr().err
    assert left.value.code == EXIT["error"]
    assert told.endswith("pyproject.toml: got tool.gemmproof = 3, expected a table\n")


def test_a_check_keeps_to_them(project):
    write('dtype = ["bf16"]\nmax-examples = 3')
    assert main(["check", "my_kernels.py:matmul", "--json", "report.json"]) == EXIT["pass"]
    report = json.loads(Path("report.json").read_text())
    assert max(p["examples"] for p in report["properties"]) == 3


@pytest.mark.parametrize(
    ("words", "examples"),
    [([], 4), (["-o", "gemm_max_examples=5"], 5), (["--gemm-max-examples=6"], 6)],
)
def test_the_plugin_takes_them_last(words, examples):
    write("max-examples = 4")
    Path("conftest.py").write_text(
        "def pytest_report_header(config):\n"
        "    from gemmproof.plugin import OPTIONS\n"
        "    return f'examples {config.stash[OPTIONS].max_examples}'\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "gemmproof.plugin", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"examples {examples}\n" in done.stdout, done.stdout + done.stderr


def test_the_plugin_looks_for_them_once():
    write("max-examples = 4")
    Path("conftest.py").write_text(
        "from gemmproof import settings\n"
        "find, looked = settings.find_settings, []\n"
        "settings.find_settings = lambda folder: looked.append(folder) or find(folder)\n"
        "def pytest_report_header(config):\n"
        "    return f'looked {len(looked)} times'\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "gemmproof.plugin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "looked 1 times\n" in done.stdout, done.stdout + done.stderr

"""`gemmproof contract` finds the widest contract that a kernel keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmproof.cli import EXIT, main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(autouse=True)
def _in_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)


def test_it_prints_the_words_for_a_conftest_and_what_stops_further(capsys):
    assert main(["contract", "dense_only.py:matmul", "--max-examples", "30"]) == EXIT["pass"]
    first, *rest = capsys.readouterr().out.splitlines()
    formats = '("fp16", "bf16", "tf32", "fp8e4m3", "fp8e5m2")'
    assert first == f'Contract(formats={formats}, M="0..", N="0..", K="0..")'
    assert rest[0] == "limits, beyond what was promised:"
    told = {line.split("  ")[1]: line for line in rest[1:]}
    assert "must be contiguous" in told["any strides"]
    assert told["any strides"].endswith("--layouts any")
    assert "fp32" in told  # more cases than one show that tf32 is not fp32


def test_a_kernel_that_breaks_the_stated_contract_is_a_finding(capsys):
    assert main(["contract", "no_k_mask.py:matmul", "--max-examples", "5"]) == EXIT["fail"]
    assert "does not stay in bounds" in capsys.readouterr().out


def test_it_starts_from_what_is_stated(capsys):
    words = ["contract", "no_k_mask.py:matmul", "--sizes", "K=32..:32", "--max-examples", "20"]
    assert main(words) == EXIT["pass"]
    out = capsys.readouterr().out
    assert 'K="32..:32"' in out
    assert "K not in 32..:32" in out
    assert "--sizes K=1.." in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_such.py:f"], "target: got 'no_such.py' (no such file)"),
        (["right.py:matmul", "--sizes", "L=3"], "argument --sizes: got 'L=3', expected such as M="),
        (["right.py:matmul", "--sizes", "K=9..8"], "contract K: got 9..8, expected sizes from 0"),
        (["right.py:matmul", "--where", "K +"], "contract where: got 'K +', expected a condition"),
    ],
)
def test_bad_usage_is_one_line(words, said, capsys):
    try:
        code = main(["contract", *words])
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr().err
    assert code == EXIT["error"]
    assert said in told
    assert told.count("\n") == 1


def test_a_step_that_holds_is_not_given_up_for_one_that_does_not(capsys):
    words = ["contract", "dense_only.py:matmul", "--sizes", "M=8..:8", "--max-examples", "30"]
    assert main(words) == EXIT["pass"]
    first = capsys.readouterr().out.splitlines()[0]
    assert 'M="0.."' in first


def test_a_death_beyond_the_contract_is_a_limit(tmp_path, monkeypatch, capsys):
    (tmp_path / "dies.py").write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import right\n"
        "def matmul(a, b):\n"
        "    if not a.is_contiguous():\n"
        "        os.abort()\n"
        "    return right.matmul(a, b)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["check", "dies.py:matmul", "--max-examples", "3", "--json", "report.json"]
    assert main(words) == EXIT["pass"]
    assert "any strides  dies.py:6: got a process that died of SIGABRT" in capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], report["findings"]) == ("pass", [])
    (limit,) = report["limits"]
    assert (limit["status"], limit["option"]) == ("limit", "--layouts any")

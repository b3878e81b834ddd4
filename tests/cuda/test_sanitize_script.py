"""scripts/measure.py sanitize: what a tool's answer means, and which calls are made."""

from __future__ import annotations

import pytest
import torch
from scripts.gpu import sanitize

MEMCHECK = "calls: 9\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: {}\n"
RACECHECK = "calls: 9\n========= RACECHECK SUMMARY: {}\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (MEMCHECK.format("0 errors"), True),
        (MEMCHECK.format("10 errors"), False),
        (MEMCHECK.format("1 error"), False),
        (RACECHECK.format("0 hazards displayed (0 errors, 0 warnings)"), True),
        (RACECHECK.format("1 hazard displayed (0 errors, 1 warning)"), False),
        (MEMCHECK.format("0 errors").replace("calls: 9", ""), False),  # the driver did not end
        (MEMCHECK.format("0 errors").replace("calls: 9", "calls: 0"), False),
        ("calls: 9\n", False),  # the tool said nothing
        ("no end after 300 s", False),
    ],
)
def test_a_tool_is_content_only_with_no_errors_and_calls(said, expected):
    assert sanitize.read_answer(said)["expected"] is expected


def test_what_a_tool_found_is_told():
    said = "========= Invalid __global__ write of size 2 bytes\n" + MEMCHECK.format("1 error")
    row = {"kernel": "k", "format": "fp16", "tool": "memcheck", "seconds": 1.0}
    row |= sanitize.read_answer(said)
    assert "Invalid __global__ write of size 2 bytes" in sanitize.describe(row)
    assert sanitize.describe(row).startswith("BAD k ")


def test_without_the_program_one_line_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sanitize, "find_program", lambda: None)
    with pytest.raises(SystemExit) as refused:
        sanitize.check_kernels()
    assert refused.value.code == 2
    assert capsys.readouterr().err.startswith("sanitize: got no compute-sanitizer, expected it on")


def test_the_program_is_found_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "")
    program = tmp_path / "compute-sanitizer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert sanitize.find_program() == str(program)


def test_each_order_of_rows_and_columns_is_called():
    made = list(sanitize.make_operands("fp8e4m3", torch.device("cpu")))
    assert len(made) == len(sanitize.ODD) + 4 * len(sanitize.EVEN)
    for a, b in made:
        assert a.shape[1] == b.shape[0]
    tall = [(a.stride(1), b.stride(1)) for a, b in made if a.shape[0] == 136]
    assert tall == [(1, 1), (1, 144), (136, 1), (136, 144)]

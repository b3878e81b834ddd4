"""scripts/measure.py sanitize: the interpretation of a tool's answer, and the calls made."""

import pytest
import torch
from scripts.gpu import sanitize
from scripts.gpu.evidence import CONFTEST

from gemmproof.worker.load_kernel import load_registered

MEMCHECK = "calls: 9\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: {}\n"
RACECHECK = "calls: 9\n========= RACECHECK SUMMARY: {}\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (MEMCHECK.format("0 errors"), True),
        (MEMCHECK.format("10 errors"), False),
        (MEMCHECK.format("1 error"), False),
        (RACECHECK.format("0 hazards displayed (0 errors, 0 warnings)"), True),
        (RACECHECK.format("1 hazard displayed (0 errors, 1 warning)"), False),
        (MEMCHECK.format("0 errors").replace("calls: 9", ""), False),  # the driver did not end
        (MEMCHECK.format("0 errors").replace("calls: 9", "calls: 0"), False),
        ("calls: 9\n", False),  # the tool printed nothing
        ("no end after 300 s", False),
    ],
)
def test_a_tool_is_content_only_with_no_errors_and_calls(answer, expected):
    assert sanitize.read_answer(answer)["expected"] is expected


def test_what_a_tool_found_is_told():
    finding = "Invalid __global__ write of size 2 bytes"
    answer = f"========= {finding}\n" + MEMCHECK.format("1 error")
    row = {"kernel": "k", "format": "fp16", "tool": "memcheck", "seconds": 1.0}
    row |= sanitize.read_answer(answer)
    assert finding in sanitize.describe(row)
    assert sanitize.describe(row).startswith("BAD k ")


def test_both_sides_of_a_race_are_told_and_no_frames_of_the_host():
    answer = """calls: 9
========= Error: Race reported between Read access at kernel+0xf0 in k.py:150
=========     and Write access at kernel+0x90 in k.py:12 [8 hazards]
=========     Host Frame: cuLaunchKernel [0x1]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
    lines = sanitize.read_answer(answer)["found"]
    assert [line[:9] for line in lines] == ["Error: Ra", "and Write", "RACECHECK"]


RACE = """calls: 9
========= Error: Race reported between Read access at matmul_ws_kernel+0xf0 in matmul_ws.py:{}
=========     and Write access at matmul_ws_kernel+0x90 in matmul_ws.py:{} [8 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def find_line(text):
    """Return the number of the first line of matmul_ws.py that contains the text."""
    source = (sanitize.ROOT / "kernels" / "matmul_ws.py").read_text().splitlines()
    return next(i for i, line in enumerate(source, 1) if text in line)


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [
        ("def matmul_ws_kernel(", "gl.warp_specialize(", True),
        ("def matmul_ws_kernel(", "c_buf.store(", False),
        ("c_buf.store(", "gl.warp_specialize(", False),
    ],
)
def test_races_of_tritons_own_dispatch_are_expected_and_told(read, write, expected):
    text = RACE.format(find_line(read), find_line(write))
    answer = sanitize.read_answer(text)
    assert (answer["expected"], len(answer["found"])) == (expected, 3)
    assert not sanitize.read_answer(text.replace("calls: 9", ""))["expected"]


@pytest.mark.parametrize(
    ("line", "summary"),
    [
        ("", "2 hazards displayed (2 errors, 0 warnings)"),  # one is not listed
        ("========= Warning: Potential RAW hazard in block (0,0,0)\n", None),
        ("========= Error: Race reported between Write access at x in y\n", None),
    ],
)
def test_what_else_is_told_beside_a_race_of_the_dispatch_is_not_expected(line, summary):
    answer = RACE.format(*[find_line("gl.warp_specialize(")] * 2)
    assert sanitize.read_answer(answer)["expected"]
    head, _, tail = answer.rpartition("========= RACECHECK")
    tail = f" SUMMARY: {summary}\n" if summary else tail
    assert not sanitize.read_answer(f"{head}{line}========= RACECHECK{tail}")["expected"]


def test_a_race_in_a_file_that_is_no_kernel_is_not_expected():
    elsewhere = RACE.replace("matmul_ws.py", "other.py").format(1, 1)
    assert not sanitize.read_answer(elsewhere)["expected"]


def test_without_the_program_one_line_is_told(monkeypatch, capsys, texts):
    monkeypatch.setattr(sanitize, "find_program", lambda: None)
    with pytest.raises(SystemExit) as refused:
        sanitize.check_kernels()
    assert refused.value.code == 2
    texts("no compute-sanitizer", capsys.readouterr().err)


def test_the_program_is_found_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "")
    program = tmp_path / "compute-sanitizer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert sanitize.find_program() == str(program)


def list_shown(name, format):
    kernel = next(k for k in load_registered(CONFTEST) if k.name == name)
    return kernel, list(sanitize.list_cases(kernel, format))


def test_each_order_of_rows_and_columns_is_called():
    _, cases = list_shown("matmul", "fp8e4m3")
    assert len(cases) == len(sanitize.ODD) + 4 * len(sanitize.EVEN)
    tall = [(case.layout("a"), case.layout("b")) for case in cases if case.M == 136]
    assert tall == [("row", "row"), ("row", "column"), ("column", "row"), ("column", "column")]


def test_a_contract_leaves_out_what_it_does_not_admit():
    _, cases = list_shown("matmul_ws", "fp16")
    assert {case.N % 8 for case in cases} == {0}
    assert len(cases) == 4 * len(sanitize.EVEN)


def test_further_operands_and_values_change_with_the_layouts():
    kernel, cases = list_shown("matmul_w4", "fp16")
    groups = {kernel.values_of(case)["group"] for case in cases}
    assert groups == {128, 0, 64, 32}
    assert {dict(case.arguments)["zero"] for case in cases} == {"row", "column", "None"}
    batches = [case.batch for case in list_shown("bmm", "fp16")[1]]
    assert set(batches) == {2}


def test_an_operand_is_placed_with_its_strides_alone():
    x = torch.arange(12).reshape(3, 4)[:, ::2].T
    copy = sanitize.copy_to_device(x, torch.device("cpu"))
    assert torch.equal(copy, x)
    assert copy.stride() == x.stride()
    assert copy.untyped_storage().nbytes() == 8 * 11  # up to its last element

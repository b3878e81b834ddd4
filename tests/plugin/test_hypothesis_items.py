"""Hypothesis items of a user's project: findings, options of Hypothesis, the database, faults."""

from __future__ import annotations

import ast
import re
import shlex

import pytest
from tests.support.pytest_project import HEAD, list_failed, run_pytest, write_project

CASES = "from gemmproof.suite import test_gemm_cases\n"
ONE = HEAD + "import {0}; return [K('{0}', {0}.matmul)]\n"
# one program of the kernel below computes all of c, whose K has no tail
WHOLE = HEAD + "import {0}; return [K('{0}', {0}.matmul, Contract(M='..32', N='..32', K=':32'))]\n"
PROFILE = """
from hypothesis import Phase, settings
settings.register_profile("own", {})
settings.load_profile("own")
"""
# the columns of a have no mask, so K has to be a multiple of 32
TAIL = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(a, b, c, M, N, K, T: tl.constexpr):
    m = tl.arange(0, T)
    n = tl.arange(0, T)
    k = tl.arange(0, T)
    acc = tl.zeros((T, T), tl.float32)
    for first in range(0, K, T):
        x = tl.load(a + m[:, None] * K + first + k[None, :], mask=m[:, None] < M, other=0)
        y = tl.load(b + (first + k)[:, None] * N + n[None, :],
                    mask=((first + k)[:, None] < K) & (n[None, :] < N), other=0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty),
             mask=(m[:, None] < M) & (n[None, :] < N))

def matmul(a, b):
    {}
    c = a.new_empty(a.shape[0], b.shape[1])
    kernel[(1,)](a, b, c, *c.shape, a.shape[1], T=32)
    return c
"""


def write(folder, conftest=ONE, *examples, profile="", wrapper=None):
    """Write a project that has only the Hypothesis items, with a wrapper that first does this."""
    if wrapper is not None:
        (folder / "tail.py").write_text(TAIL.format(wrapper))
    return write_project(folder, profile + conftest, *examples, tests=CASES)


def count_cases(out):
    """Return the numbers of passing cases that the statistics give."""
    return [int(n) for n in re.findall(r"(\d+) passing", out)]


def test_an_item_for_each_kernel_and_format_reads_like_check(tmp_path, texts):
    conftest = HEAD + (
        "import right, unmasked_row; return [K('right', right.matmul, Contract(('fp16', 'bf16'))),"
        " K('unmasked_row', unmasked_row.matmul)]\n"
    )
    project = write(tmp_path, conftest, "right", "unmasked_row")
    status, out = run_pytest(project, "-v", "--hypothesis-show-statistics", columns=200)
    node = "test_kernels.py::test_gemm_cases[unmasked_row-fp16]"
    assert (status, list_failed(out)) == (1, [node])
    assert "test_gemm_cases[right-fp16] PASSED" in out
    assert "test_gemm_cases[right-bf16] PASSED" in out
    assert count_cases(out)[:2] == [25, 25]
    finding = re.search(r"^unmasked_row does not .*@example\(.*?\)\)$", out, re.DOTALL | re.M)[0]
    texts("a finding of a Hypothesis item", finding)

    line = re.search(r"reproduce:  (.*)$", out, re.MULTILINE)[1]
    assert shlex.split(line)[:2] == ["pytest", node]
    status, again = run_pytest(project, *shlex.split(line)[1:], columns=200)
    assert (status, list_failed(again)) == (1, [node])
    assert finding in again
    example = ast.parse(re.search(r"@example\(case=(.*)\)$", finding, re.M)[1], mode="eval")
    assert ast.unparse(example) == "Case(M=1, N=1, K=1, dtype='fp16')"


def test_a_case_ends_at_the_boundary_of_the_fault(tmp_path):
    lanes = "mask=(m[:, None] < M) & ((first + k)[None, :] < K) & (K <= 33)"
    (tmp_path / "at_33.py").write_text(TAIL.format("pass").replace("mask=m[:, None] < M", lanes))
    profile = PROFILE.format("max_examples=60, derandomize=True, database=None")
    project = write(tmp_path, WHOLE.replace("K=':32'", "K='1..'").format("at_33"), profile=profile)
    status, out = run_pytest(project, columns=200)
    assert status == 1
    # beyond 33 all lanes of a are masked off
    assert re.findall(r"smallest case: (.*)$", out, re.M) == ["M=1 N=1 K=34 fp16, a row, b row"]


def test_the_number_of_cases_is_that_of_the_profile(tmp_path):
    profile = PROFILE.format("max_examples=7, deadline=1")
    project = write(tmp_path, ONE.format("right"), "right", profile=profile)
    status, out = run_pytest(project, "--hypothesis-show-statistics")
    assert (status, count_cases(out)) == (0, [7])


@pytest.mark.lane("full")
def test_a_profile_of_a_hundred_is_not_taken_for_the_default(tmp_path):
    profile = PROFILE.format("max_examples=100")
    project = write(tmp_path, ONE.format("right"), "right", profile=profile)
    status, out = run_pytest(project, "--hypothesis-show-statistics")
    assert (status, count_cases(out)) == (0, [100])


def draw(project, *options):
    """Return the sizes of the cases of a run, in order; `saw.txt` has a line for each call."""
    file = project / "saw.txt"
    file.unlink(missing_ok=True)
    status, _ = run_pytest(project, *options)
    assert status == 0
    return file.read_text().splitlines()


SEES = "open({!r}, 'a').write(f'{{tuple(a.shape)}} {{tuple(b.shape)}}\\n')"


@pytest.mark.lane("full")
def test_a_seed_and_a_derandomised_profile_repeat_the_cases(tmp_path):
    (tmp_path / "right.py").write_text(
        TAIL.format(SEES.format(str(tmp_path / "saw.txt"))).replace(
            "mask=m[:, None] < M", "mask=(m[:, None] < M) & ((first + k)[None, :] < K)"
        )
    )
    conftest = HEAD + "import right; return [K('r', right.matmul, Contract(M='..32', N='..32'))]\n"
    project = write(tmp_path, conftest)
    first = draw(project, "--hypothesis-seed=1")
    assert draw(project, "--hypothesis-seed=1") == first
    assert draw(project, "--hypothesis-seed=2") != first
    (project / "conftest.py").write_text(PROFILE.format("derandomize=True") + conftest)
    assert draw(project) == draw(project)


def list_files(folder):
    """Return the files below a folder that the run of a test wrote."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.parts[0] for path in paths if "__pycache__" not in path.parts}


def test_the_database_keeps_a_failing_case_and_tries_it_first(tmp_path):
    # shows its fault only in the second tile of K, which few cases have
    (tmp_path / "late.py").write_text(
        TAIL.format("pass").replace("mask=m[:, None] < M", "mask=(m[:, None] < M) & (K < 65)")
    )
    conftest = HEAD + "import late; return [K('late', late.matmul, Contract(K='32..:32', M=1))]\n"
    project = write(tmp_path, conftest)
    before = list_files(project)
    status, out = run_pytest(project, "--hypothesis-show-statistics")
    assert (status, "during reuse phase" in out) == (1, False)
    assert list_files(project) - before == {".hypothesis"}
    status, out = run_pytest(project, "--hypothesis-show-statistics")
    assert (status, "during reuse phase" in out) == (1, True)


def test_nothing_is_written_without_a_database(tmp_path):
    profile = PROFILE.format("max_examples=5, database=None")
    project = write(tmp_path, ONE.format("unmasked_row"), "unmasked_row", profile=profile)
    before = list_files(project)
    status, _ = run_pytest(project)
    assert (status, list_files(project) - before) == (1, set())


@pytest.mark.lane("full")
def test_items_run_in_several_processes(tmp_path):
    conftest = HEAD + (
        "import right, unmasked_row; return [K('right', right.matmul, Contract(('fp16', 'bf16'))),"
        " K('unmasked_row', unmasked_row.matmul)]\n"
    )
    project = write(tmp_path, conftest, "right", "unmasked_row")
    status, out = run_pytest(project, "-n", "2", "--hypothesis-show-statistics")
    assert (status, len(list_failed(out))) == (1, 1)
    assert sorted(count_cases(out))[-2:] == [25, 25]


@pytest.mark.parametrize(
    ("does", "finding"),
    [
        ("import os; os._exit(3) if a.shape[1] > 40 else None", "os._exit(3) was called"),
        ("import sys; sys.exit(4) if a.shape[1] > 40 else None", "SystemExit"),
        pytest.param(
            "import ctypes; ctypes.string_at(0) if a.shape[1] > 40 else None",
            "died of SIGSEGV",
            marks=pytest.mark.lane("full"),
        ),
    ],
)
def test_a_kernel_that_ends_its_process_is_a_finding(tmp_path, does, finding):
    profile = PROFILE.format("max_examples=40, derandomize=True, database=None")
    conftest = HEAD + (
        "import right, tail; return [K('right', right.matmul),"
        " K('tail', tail.matmul, Contract(M=1, N=1, K='32..:32'))]\n"
    )
    project = write(tmp_path, conftest, "right", profile=profile, wrapper=does)
    status, out = run_pytest(project, columns=200)
    assert (status, list_failed(out)) == (1, ["test_kernels.py::test_gemm_cases[tail-fp16]"])
    assert finding in out
    assert "smallest case: M=1 N=1 K=64 fp16" in out


@pytest.mark.lane("full")
def test_a_kernel_that_hangs_is_a_finding(tmp_path):
    project = write(tmp_path, WHOLE.format("tail"), wrapper="import time; time.sleep(60)")
    status, out = run_pytest(project, "--gemm-time-limit", "2", columns=200)
    assert status == 1
    assert "tail.py:20: it timed out after 2 s" in out


@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [
        ("import package_that_is_not_here", "not judged: tail.py:20: "),
        ("return open('/')", "Is a directory"),
    ],
)
def test_what_cannot_be_judged_is_no_pass(tmp_path, wrapper, reason, texts):
    project = write(tmp_path, WHOLE.format("tail"), wrapper=wrapper)
    status, out = run_pytest(project, columns=200)
    assert status == 1
    assert reason in out


def test_a_conftest_that_a_worker_cannot_load_is_one_line(tmp_path, texts):
    conftest = HEAD + (
        "import sys, right\n    if 'pytest' not in sys.modules: raise OSError('no such licence')\n"
        "    return [K('right', right.matmul)]\n"
    )
    project = write(tmp_path, conftest, "right")
    status, out = run_pytest(project, columns=200)
    assert status == 1
    line = re.search(r"^right-fp16-cases: .*$", out, re.M)[0]
    texts("a conftest that a worker cannot load", line)


def test_a_case_that_cannot_be_judged_is_named(tmp_path, texts):
    """Hypothesis does not save it, so nothing else could repeat it."""
    wrapper = "if a.shape[1] == 64: import package_that_is_not_here"
    project = write(tmp_path, WHOLE.format("tail"), wrapper=wrapper)
    case = '{"M":3,"N":2,"K":64,"dtype":"fp16"}'
    status, out = run_pytest(project, "--gemm-case", case, columns=200)
    assert status == 1
    texts("a case that cannot be judged", re.search(r"^tail-fp16-cases: .*\n.*\n.*", out, re.M)[0])


def test_a_case_that_is_asked_for_runs_in_every_profile(tmp_path):
    profile = PROFILE.format("phases=[Phase.reuse]")
    project = write(tmp_path, ONE.format("unmasked_row"), "unmasked_row", profile=profile)
    case = '{"M":1,"N":1,"K":1,"dtype":"fp16"}'
    status, out = run_pytest(project, "--gemm-case", case, columns=200)
    assert status == 1
    assert "smallest case: M=1 N=1 K=1 fp16" in out


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ('"batch":2', "case: got a batch, expected none for tail"),
        ('"arguments":{"bias":"row"}', "case bias: got an operand, expected one of: none"),
    ],
)
def test_a_case_that_the_kernel_does_not_take_is_no_finding(tmp_path, field, reason):
    project = write(tmp_path, WHOLE.format("tail"), wrapper="pass")
    case = f'{{"M":1,"N":1,"K":32,"dtype":"fp16",{field}}}'
    status, out = run_pytest(project, "--gemm-case", case, columns=200)
    assert status == 1
    assert f"tail-fp16-cases: not judged: {reason}\n" in out


def test_an_expected_failure_does_not_fail_the_item(tmp_path):
    conftest = HEAD + (
        "import unmasked_row; return [K('unmasked_row', unmasked_row.matmul,"
        " Contract(expected={'stays_in_bounds': 'issue 7'}))]\n"
    )
    project = write(tmp_path, conftest, "unmasked_row")
    assert run_pytest(project)[0] == 0


def test_kernels_are_judged_in_this_process_if_asked(tmp_path):
    project = write(tmp_path, ONE.format("unmasked_row"), "unmasked_row")
    status, out = run_pytest(project, "--gemm-in-process", columns=200)
    assert status == 1
    assert "smallest case: M=1 N=1 K=1 fp16" in out
    assert "missing: & (offs_m < M)" in out


@pytest.mark.lane("full")
def test_annotations_name_the_finding(tmp_path):
    project = write(tmp_path, ONE.format("unmasked_row"), "unmasked_row")
    status, out = run_pytest(project, "--gemm-annotations", "github", columns=200)
    assert status == 1
    assert re.search(r"^::error file=.*unmasked_row\.py,line=21", out, re.M)


@pytest.mark.lane("full")
def test_many_examples_are_steered(tmp_path):
    profile = PROFILE.format("max_examples=1000, derandomize=True, database=None")
    conftest = HEAD + "import right; return [K('r', right.matmul, Contract(M=1, N=1, K='..70'))]\n"
    project = write(tmp_path, conftest, "right", profile=profile)
    status, out = run_pytest(project, "--hypothesis-show-statistics", columns=200)
    assert status == 0
    assert "error of within_bound, as a share of its bound" in out
    assert "distance to a guard of the source, negative" in out


def test_a_fault_that_only_occurs_behind_another_is_reported_too(tmp_path):
    """Rows of a are read beyond a in every case, so that is what each case fails with."""
    unmasked = TAIL.format("a[0, 0] = 0").replace(", mask=m[:, None] < M, other=0)", ")")
    (tmp_path / "both.py").write_text(unmasked)
    project = write(tmp_path, WHOLE.replace("'..32', N", "'1..31', N").format("both"))
    status, out = run_pytest(project, columns=200)
    assert status == 1
    assert "both does not stay in bounds" in out
    assert "both does not leave inputs untouched" in out


@pytest.mark.lane("full")
def test_a_finding_that_does_not_repeat_is_described_so(tmp_path):
    """The product is wrong in the first process alone, which judges the drawn cases."""
    path = str(tmp_path / "processes")
    does = f"import os; p, own = {path!r}, f'{{os.getpid()}}\\n'; open(p, 'a').write(own); "
    does += "a = a * (0 if open(p).readline() == own else 1)"
    project = write(tmp_path, WHOLE.format("tail"), wrapper=does)
    status, out = run_pytest(project, columns=200)
    assert status == 1
    assert "judged again, this case has no finding" in out


@pytest.mark.parametrize("options", [(), ("--gemm-in-process",)])
def test_a_wrapper_that_launches_nothing_is_no_pass(tmp_path, options):
    project = write(tmp_path, WHOLE.format("tail"), wrapper="return a @ b")
    status, out = run_pytest(project, *options, columns=200)
    assert status == 1
    assert "got no kernel launch" in out


def test_an_expected_crash_leaves_the_other_properties_unjudged(tmp_path):
    conftest = HEAD + (
        "import tail; return [K('tail', tail.matmul, Contract(M='..32', N='..32', K=':32',"
        " expected={'runs_to_completion': 'issue 7'}))]\n"
    )
    project = write(tmp_path, conftest, wrapper="import os; os._exit(3)")
    status, out = run_pytest(project, columns=200)
    assert status == 1
    assert "tail-fp16-cases: not judged: tail.py:20: os._exit(3) was called" in out

"""`gemmproof contract` finds the widest contract that a kernel keeps."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cli_project import refuse
from tests.texts import line_with

from gemmproof.cli import EXIT, main
from gemmproof.contract_search import widest as search
from gemmproof.contract_search.widest import Checks, find_widest, merge
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.report.record import SCHEMA, Limit, PropertyResult, Report
from gemmproof.target import KernelRef
from gemmproof.worker.supervisor import Limits

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(autouse=True)
def _in_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)


@pytest.mark.lane("full")
def test_it_prints_the_words_for_a_conftest_and_what_stops_further(capsys, texts):
    assert main(["contract", "dense_only.py:matmul", "--max-examples", "30"]) == EXIT["pass"]
    first, *rest = capsys.readouterr().out.splitlines()
    texts("a contract to paste, and the heading of its limits", f"{first}\n{rest[0]}")
    limits = {line.split("  ")[1]: line for line in rest[1:]}
    assert "must be contiguous" in limits["any strides"]
    assert limits["any strides"].endswith("--layouts any")
    assert "fp32" in limits  # it takes several cases to show that tf32 is not fp32


def test_a_kernel_that_breaks_the_stated_contract_is_a_finding(capsys):
    assert main(["contract", "no_k_mask.py:matmul", "--max-examples", "5"]) == EXIT["fail"]
    assert "does not stay in bounds" in capsys.readouterr().out


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("target", "sizes", "examples", "parts"),
    [
        (
            "no_k_mask.py:matmul",
            "K=32..:32",
            "20",
            ['K="32..:32"', "K not in 32..:32", "--sizes K=1.."],
        ),
        # a step that holds is not replaced by one that does not
        ("dense_only.py:matmul", "M=8..:8", "30", ['M="0.."']),
    ],
)
def test_it_starts_from_what_is_stated(target, sizes, examples, parts, capsys):
    args = ["contract", target, "--sizes", sizes, "--max-examples", examples]
    assert main(args) == EXIT["pass"]
    out = capsys.readouterr().out
    assert parts[0] in out.splitlines()[0]
    assert [part for part in parts if part not in out] == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no_such.py:f"], "target: got 'no_such.py' (no such file)"),
        (["right.py:matmul", "--sizes", "L=3"], "argument --sizes: got 'L=3', expected such as M="),
        (["right.py:matmul", "--sizes", "K=9..8"], "contract K: got 9..8, expected sizes from 0"),
        (["right.py:matmul", "--where", "K +"], "contract where: got 'K +', expected a condition"),
    ],
)
def test_bad_usage_is_one_line(args, message, capsys):
    assert message in refuse(["contract", *args], capsys)


def test_a_death_beyond_the_contract_is_a_limit(tmp_path, monkeypatch, capsys, texts):
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
    args = ["check", "dies.py:matmul", "--max-examples", "3", "--json", "report.json"]
    assert main(args) == EXIT["pass"]
    shown = line_with(capsys.readouterr().out, "any strides")
    texts("a limit that a death shows", shown)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], report["findings"]) == ("pass", [])
    *before, limit = report["limits"]
    assert (limit["status"], limit["option"]) == ("limit", "--layouts any")
    # findings from before it died are not lost
    assert [(x["name"], x["status"]) for x in before] == [
        (f"{axis} = 0", "holds") for axis in "MNK"
    ]


class Kernels:
    """A fake of the workers: a kernel that keeps `good`, at no strides in the `dense` formats."""

    def __init__(self, good, dense=(), together=1):
        self.good, self.dense, self.asked = good, dense, []
        self.barrier = threading.Barrier(together, timeout=20)

    def judge(self, request, limits, listener):
        contract = request.kernel.contract
        (dtype,) = contract.formats
        self.asked.append((dtype, contract.layouts))
        if contract.layouts == "any":
            self.barrier.wait()
        fails = dtype not in self.good or (dtype in self.dense and contract.layouts == "any")
        case = Case(3, 3, 3, dtype)
        case = case if dtype not in self.good else case.with_layout("a", "padded")
        finding = Finding("exact_on_integers", "lane", "c: got 1, expected 2", case)
        steps = ["bf16", "int8"] + ["any strides"] * (contract.layouts != "any")
        beyond = [Limit(x, "", "holds") for x in steps if x != dtype]
        verdict = "fail" if fails else "pass"
        results = (PropertyResult("exact_on_integers", "", verdict, 10, 0.5),)
        limits = tuple(beyond) * (request.limits and not fails)
        findings = (finding,) * fails
        return Report(SCHEMA, "k", results, findings, 1.0, {}, limits=limits), None


def widest(kernels, monkeypatch, jobs=1):
    monkeypatch.setattr(search, "judge", kernels.judge)
    return find_widest(Contract(), Checks(CheckRequest(KernelRef("k")), Limits(), jobs))


def test_the_formats_of_a_contract_are_checked_at_the_same_time(monkeypatch):
    kernels = Kernels(("fp16", "bf16", "int8"), together=3)  # a single one would wait forever
    contract, report = widest(kernels, monkeypatch, jobs=3)
    assert (contract.formats, contract.layouts) == (("fp16", "bf16", "int8"), "any")
    assert (report.verdict, report.properties[0].examples) == ("pass", 30)


def test_what_a_format_has_kept_is_not_checked_again_when_another_is_given_up(monkeypatch):
    kernels = Kernels(("fp16", "bf16"))
    contract, report = widest(kernels, monkeypatch)
    assert (contract.formats, contract.layouts) == (("fp16", "bf16"), "any")
    assert [limit.name for limit in report.limits] == ["int8"]
    once = [(x, "any") for x in ("fp16", "bf16", "int8")]
    assert kernels.asked == [("fp16", "contiguous"), *once]


def test_formats_wait_for_no_contract_that_the_stated_one_breaks(monkeypatch, capsys):
    kernels = Kernels(("fp16", "bf16", "int8"), dense=("fp16",))
    contract, report = widest(kernels, monkeypatch)
    assert (contract.formats, contract.layouts) == (("fp16", "bf16", "int8"), "contiguous")
    assert [(x.name, x.status) for x in report.limits] == [("any strides", "limit")]
    assert [x for x in kernels.asked if x[1] == "any"] == [("fp16", "any")]
    assert 'any"): fail at fp16 (' in capsys.readouterr().err


def test_reports_of_formats_are_merged_each_fault_once(monkeypatch):
    kernels = Kernels(())
    monkeypatch.setattr(search, "judge", kernels.judge)
    checks = Checks(CheckRequest(KernelRef("k")), Limits(), 2)
    report = merge(checks.check(Contract(formats=("fp16", "int8")), "k"))
    assert (report.verdict, len(report.findings), report.seconds) == ("fail", 1, 2.0)
    (merged,) = report.properties
    assert (merged.status, merged.examples, merged.ratio) == ("fail", 20, 0.5)
    assert merge({"fp16": replace(report, findings=())}).verdict == "pass"

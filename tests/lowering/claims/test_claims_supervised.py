"""Claims judged in workers: by the command and by pytest, with compilers that end badly."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kernels.replaced_ptxas import hide_tools, replace_ptxas
from tests.lowering.claims import claimed_kernels as kernels
from tests.support.warm_process import run_module

from gemmproof.cli import main, parse_options
from gemmproof.commands.groups import contract_of, replay, spell_declared
from gemmproof.engine.assemble import judge_compiled
from gemmproof.engine.kernel_check import check
from gemmproof.engine.request import GUARANTEES, CheckRequest, Guarantees
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract, list_guaranteed
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import SCHEMA, PropertyResult, Report
from gemmproof.settings import list_words
from gemmproof.target import KernelRef, parse
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.supervisor import Limits

KERNELS = "claimed_kernels.py"
ONE = "--sizes M=64,N=64,K=64 --max-examples 1 --no-proof --no-saved-cases --quiet"


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)


@pytest.fixture
def ptxas(tmp_path, monkeypatch):
    """Return a function that replaces ptxas by a script; "$GPU" is the option for the GPU."""
    return lambda does: replace_ptxas(monkeypatch, tmp_path, does)


def run(capsys, args):
    """Run the command; return the exit code and the output."""
    code = main(["check", *shlex.split(f"{args} {ONE}")])
    return code, capsys.readouterr().out


@pytest.mark.lane("full")
def test_a_finding_is_in_every_form_and_its_line_reproduces_it(capsys, tmp_path, texts):
    forms = {name: tmp_path / name for name in ("json", "junit", "sarif", "codequality")}
    asked = " ".join(f"--{name} {path}" for name, path in forms.items())
    claims = "--dtype fp32 --tensor-cores --spills 0 --fits sm_80"
    code, out = run(capsys, f"{KERNELS}:in_full {claims} {asked}")
    assert code == 1
    texts("a finding on compiled code", "\n".join(out.splitlines()[:3]))
    report = json.loads(forms["json"].read_text())
    (finding,) = report["findings"]
    assert finding["message"] == out.splitlines()[1].strip()
    for name, path in forms.items():
        assert finding["message"] in path.read_text(), name
    assert "--dtype" not in finding["reproduce"]
    assert claims.replace("--dtype fp32 ", "") in finding["reproduce"]
    assert {p["name"]: (p["status"], p["examples"]) for p in report["properties"][-3:]} == {
        "uses_tensor_cores": ("fail", 1),
        "spills_no_more": ("pass", 1),
        "fits_on_its_gpus": ("pass", 1),
    }


def judge(wrapper, limits=None, **terms):
    """Return the report on the claims alone, each compiled in a worker."""
    contract = Contract(M=64, N=64, K=64, **terms)
    promised = encode(Guarantees(tuple(list_guaranteed(contract)), (), {}))
    ran = PropertyResult("runs_to_completion", "It ends.", "pass", 1)
    held = Report(SCHEMA, wrapper, (ran,), (), 0.0, {})
    worker = WorkerExit(parts={GUARANTEES: promised})
    target = parse(f"{KERNELS}:{wrapper}")
    request = CheckRequest(KernelRef(wrapper, target=target, contract=contract))
    report = judge_compiled(held, worker, request, limits or Limits(), lambda event: None)
    return replace(report, properties=report.properties[1:])


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("does", "limits", "message"),
    [
        (
            "sleep 1000",
            Limits(case=0.5),
            "it timed out after 2 s; a larger --time-limit allows more",
        ),
        ("kill -SEGV $PPID", Limits(), "the compiler's process died of SIGSEGV"),
    ],
    ids=["hangs", "crashes"],
)
def test_a_compiler_that_ends_badly_costs_its_launch_alone(does, limits, message, ptxas, texts):
    ptxas(f'if [ "$GPU" = --gpu-name=sm_80 ]; then {does}; fi')
    report = judge("without_a_dot", limits, tensor_cores=True, fits=("sm_80", "gfx942"))
    assert report.verdict == "fail"
    (finding,) = report.findings
    texts("a kernel without a dot", finding.message)
    assert {p.name: (p.status, p.examples) for p in report.properties} == {
        "uses_tensor_cores": ("fail", 1),
        "fits_on_its_gpus": ("not run", 1),
    }
    names = "uses_tensor_cores, fits_on_its_gpus"
    reason = f"tile_kernel fp16 for sm_80: not compiled: {message}"
    assert report.note == f"not fully checked: {names}: {reason}"


@pytest.mark.lane("full")
def test_what_is_compiled_for_a_newer_gpu_first_is_compiled_for_an_older_one_all_the_same():
    """Triton 3.6 converts fp8 for the second GPU of a process as it does for the first."""
    report = judge("deep_enough_for_fp8", formats=("fp8e5m2",), fits=("sm_90", "sm_80"))
    assert [f.message for f in report.findings] == []
    assert (report.verdict, report.note) == ("pass", None)


def test_a_wrapper_that_is_gone_by_then_is_told():
    report = judge("no_such_wrapper", fits=("sm_80",))
    assert report.verdict == "incomplete"
    assert "no_such_wrapper" in report.note


FATAL = "ptxas fatal   : Value 'sm_80' is not defined for option 'gpu-name'"
SHARED = "ptxas error   : Entry function 'tile_kernel' uses too much shared data (0x20000 bytes)"
INSUFFICIENT = "ptxas fatal   : (C7602) Insufficient registers (24) to compile instruction"


@pytest.mark.parametrize(
    ("says", "verdict", "reason"),
    [
        ("kill -SEGV $$", "incomplete", "PTXAS error: `ptxas` failed with error code -11"),
        (FATAL, "incomplete", "ptxas: Value 'sm_80' is not defined for option 'gpu-name'"),
        (SHARED, "fail", "ptxas: Entry function 'tile_kernel' uses too much shared data"),
        (INSUFFICIENT, "fail", "ptxas: (C7602) Insufficient registers (24) to compile"),
    ],
    ids=["dies", "is too old", "has no room", "has no registers"],
)
def test_what_a_tool_says_of_itself_is_no_finding(says, verdict, reason, ptxas):
    ptxas(says if says.startswith("kill") else f'echo "{says}" >&2; exit 1')
    contract = Contract(M=64, N=64, K=64, fits=("sm_80",), spills=0)
    report = check(KernelUnderTest("k", kernels.right, contract), case=Case(64, 64, 64))
    assert report.verdict == verdict
    # nothing else is known about a launch that is not compiled
    names, launch, why = report.note.removeprefix("not fully checked: ").split(": ", 2)
    assert "spills_no_more" in names
    assert launch.split() == ["tile_kernel", "fp16", "for", "sm_80"]
    assert why.startswith(f"not compiled: {reason}")
    messages = [f.message for f in report.findings]
    assert len(messages) == (verdict == "fail")
    assert all(f'got "{reason}' in message for message in messages)


def test_a_gpu_without_its_tools_is_no_finding(monkeypatch):
    hide_tools(monkeypatch)
    contract = Contract(M=64, N=64, K=64, fits=("sm_80",))
    report = check(KernelUnderTest("k", kernels.right, contract), case=Case(64, 64, 64))
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert report.note.partition("not compiled: ")[2].startswith("Cannot find ptxas")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tensor_cores": 1}, "contract tensor_cores: got 1, expected True or False"),
        ({"spills": -1}, "contract spills: got -1, expected bytes of a thread, from 0, or None"),
        ({"spills": False}, "contract spills: got False, expected bytes of a thread"),
        ({"fits": "sm_90"}, "contract fits: got 'sm_90', expected a tuple of sm_70 sm_75"),
        ({"fits": ("sm_68",)}, "contract fits: got ('sm_68',), expected a tuple of sm_70"),
        ({"fits": (["sm_80"],)}, "contract fits: got (['sm_80'],), expected a tuple of sm_70"),
        ({"fits": ("sm_80", "sm_80")}, "contract fits: got ('sm_80', 'sm_80'), expected each GPU"),
    ],
)
def test_a_contract_refuses_what_it_cannot_mean_of_compiled_code(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Contract(**fields)
    assert "\n" not in str(error.value)


def test_promises_of_compiled_code_survive_json():
    contract = Contract(tensor_cores=True, spills=0, fits=("sm_86", "gfx942"))
    assert Contract.from_dict(json.loads(json.dumps(contract.to_dict()))) == contract


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--fits sm_68", "argument --fits: got 'sm_68', expected one of: sm_70"),
        ("--fits sm_80,", "argument --fits: got '', expected one of: sm_70"),
        ("--spills none", "argument --spills: got 'none', expected an integer"),
    ],
)
def test_words_that_are_none_are_one_line(args, message, capsys):
    with pytest.raises(SystemExit) as left:
        main(["check", f"{KERNELS}:right", *args.split()])
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_words_of_a_project_are_those_of_the_options():
    """In [tool.gemmproof] GPUs may be a list; the command line replaces them."""
    settings = {"fits": ["sm_80", "gfx942,sm_80"], "spills": 0, "tensor-cores": True}
    known = [f"--{name}" for name in settings]
    for typed, fits in (([], ("sm_80", "gfx942")), (["--fits", "sm_90"], ("sm_90",))):
        args = list_words(settings, known, known, typed)
        options = parse_options(["check", *args, "k.py:f", *typed])
        contract = contract_of(options.contract, parse(f"{KERNELS}:right"))
        assert contract == Contract(tensor_cores=True, spills=0, fits=fits)
        kernel = ["k.py:f", *spell_declared(options.contract, options.calling)]
        written = shlex.split(replay("check", kernel, None, Case(1, 1, 1)))
        asked = written[written.index("--tensor-cores") : written.index("--case")]
        assert asked == ["--tensor-cores", "--spills", "0", "--fits", ",".join(fits)]


CONFTEST = """
import sys
sys.path.insert(0, {folder!r})
import claimed_kernels
import gemmproof

def pytest_gemm_kernels():
    one = {{"M": 64, "N": 64, "K": 64, "fits": ("sm_86",), "tensor_cores": True}}
    return [
        gemmproof.KernelUnderTest("right", claimed_kernels.right, gemmproof.Contract(**one)),
        gemmproof.KernelUnderTest(
            "known", claimed_kernels.without_a_dot,
            gemmproof.Contract(**one, expected={{"uses_tensor_cores": "a row at a time"}}),
        ),
        gemmproof.KernelUnderTest(
            "plain", claimed_kernels.right, gemmproof.Contract(M=64, N=64, K=64)
        ),
    ]
"""


@pytest.mark.lane("full")
def test_pytest_has_an_item_for_each_claim_and_none_without(tmp_path):
    folder = str(Path(__file__).parent)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(folder=folder))
    (tmp_path / "test_kernels.py").write_text("from gemmproof.suite import *\n")
    chosen = "tensor or gpus or completion"
    args = ["-v", "-p", "gemmproof.plugin", "-p", "no:cacheprovider", "-k", chosen]
    args += ["--gemm-max-examples", "1", "--gemm-in-process"]
    own = {name: x for name, x in os.environ.items() if name != "PYTEST_ADDOPTS"}
    _, out = run_module("pytest", *args, cwd=tmp_path, env=own)
    statuses = [x.split()[:2] for x in out.splitlines() if "::test_gemm[" in x and "%" in x]
    assert {x.partition("[")[2].rstrip("]"): how for x, how in statuses} == {
        "right-fp16-runs_to_completion": "PASSED",
        "right-fp16-uses_tensor_cores": "PASSED",
        "right-fp16-fits_on_its_gpus": "PASSED",
        "known-fp16-runs_to_completion": "PASSED",
        "known-fp16-uses_tensor_cores": "XFAIL",
        "known-fp16-fits_on_its_gpus": "PASSED",
        "plain-fp16-runs_to_completion": "PASSED",
    }


COSTS = """
import os
import sys
import claimed_kernels as kernels
import gemmproof
import triton
def refuse(*args, **options):
    sys.exit("compiled")
triton.compile = os.fork = refuse
contract = gemmproof.Contract(M=64, N=64, K=64)
kernel = gemmproof.KernelUnderTest("k", kernels.right, contract)
print(gemmproof.check(kernel, max_examples=1).verdict)
print(*(name for name in sys.modules if name.endswith(".guarantees")))
"""


@pytest.mark.lane("full")
def test_a_kernel_without_claims_imports_and_compiles_nothing():
    ran = subprocess.run([sys.executable, "-c", COSTS], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["pass", ""]

"""Bad kernels on the command line: one line with fault and location, and the right exit code."""

import re
from pathlib import Path

import pytest
from tests.support.cli_project import refuse

from gemmproof.cli import EXIT, main

HERE = Path(__file__).parent
SOURCE = (HERE / "bad_kernels.py").read_text().splitlines()


def at(fragment):
    """Return the location of the only line of the kernels that contains this fragment."""
    (line,) = (i for i, text in enumerate(SOURCE, 1) if fragment in text)
    return f"bad_kernels.py:{line}"


def run_check(name, capsys, monkeypatch, *options):
    monkeypatch.chdir(HERE)
    status = main(["check", f"bad_kernels.py:{name}", "--max-examples", "20", *options])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err.splitlines()


LAUNCH = at("# the launch")
ENDS = "run to completion: every call that the contract admits returns a new tensor of the"
COMPILES = "compile: every specialisation and configuration that the contract admits is one that"
FINDINGS = [
    ("beyond", ENDS, f"the call, at {LAUNCH}: got body: grid (1, 65536, 1), where CUDA"
     " admits 65535 along axis 1, expected a result"),
    ("wide", COMPILES, f'{at("1048576")}: got "numel (16777216) exceeds triton maximum tensor'
     ' numel (1048576)" from Triton\'s compiler, expected body to compile'),
    ("dictionary", ENDS, f"the call, at {LAUNCH}: got body: failed to specialize argument of type:"
     " dict, expected a result"),
    ("imaginary", ENDS, f"the call, at {LAUNCH}: got body: failed to specialize argument of type:"
     " complex, expected a result"),
    ("unnamed", COMPILES, f"{at('m += no_such_name')}: got \"NameError('no_such_name is not"
     " defined')\" from Triton's compiler, expected body to compile"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "claim", "line"), FINDINGS)
def test_a_kernel_that_cannot_run_is_a_finding(name, claim, line, capsys, monkeypatch, texts):
    status, out, err = run_check(name, capsys, monkeypatch)
    assert (status, err) == (EXIT["fail"], [])
    assert out[0].startswith(f"{name} does not {claim}")
    # Triton's message has the type of the error in some versions only
    assert re.sub(r"ValueError\('(.*)'\)", r"\1", out[1]) == f"  {line}"
    texts("the smallest case of all", out[2])
    texts("the verdict of one that cannot run", out[-1].partition(" (")[0], name=name)


def test_one_configuration_that_does_not_compile_is_named(capsys, monkeypatch, texts):
    status, out, _ = run_check("one_config", capsys, monkeypatch)
    assert status == EXIT["fail"]
    assert out[0].startswith(f"one_config does not {COMPILES}")
    texts("a configuration that does not compile", out[1], line=at("m = tl.program_id(0)"))
    assert out[2].endswith("config 1")
    verdict = out[-1].partition(" (")[0]
    texts("the verdict of one that cannot run", verdict, name="one_config")


@pytest.mark.lane("full")
def test_what_does_not_end_is_a_finding_within_the_time_limit(capsys, monkeypatch, texts):
    options = ("--max-examples", "1", "--time-limit", "1")
    status, out, _ = run_check("endless", capsys, monkeypatch, *options)
    assert status == EXIT["fail"]
    assert out[0].startswith(f"endless does not {ENDS}")
    texts("a loop without end", out[1], line=at("while i > 0"))
    texts("the smallest case of all", out[2])


@pytest.mark.lane("full")
def test_what_is_only_slow_is_incomplete(capsys, monkeypatch, texts):
    """A grid of 10^9 programs is legal: a GPU runs it in seconds."""
    status, out, _ = run_check("many", capsys, monkeypatch, "--time-limit", "1")
    assert status == EXIT["incomplete"]
    verdict = re.sub(r"bad_kernels\.py:\d+", "<line>", out[-1])
    texts("the verdict of one that is only slow", verdict)


LACKS, UNKNOWN = "this line needs what this machine lacks: ", "is not known to the fake device"
PLACE = "gemmproof check: "
ERRORS = [
    ("asks_driver", f"driver.active.utils.sm_partition {UNKNOWN}"),
    ("asks_properties", "torch.cuda.get_device_properties().l3_size is not known to the fake"),
    ("asks_figures", "driver.active.utils.get_device_properties()['l3'] is not known to the fake"),
    ("asks_compiled", f"a compiled kernel's n_barriers {UNKNOWN}"),
    ("needs_package", f"{LACKS}No module named 'no_such_package'"),
    ("needs_library", f"{LACKS}libcudart.so.999: cannot open"),
    ("needs_tool", f"{LACKS}[Errno 2] No such file or directory:"),
    ("needs_operator", f's max {UNKNOWN} ("max_'),
    ("needs_namespace", f" {UNKNOWN} ('_OpNamespace' 'no_such_library' object"),
    ("other_option", "body: Keyword argument waves_per_eu was specified but unrecognised"),
    # TTIR that cannot be parsed, and an unknown operation
    ("cut_short", "body: TTIR that the simulator cannot read: the text ends behind: "),
    ("garbled", f"{at(' tl.store(c')}: the tile simulator cannot read this tt.store, please"),
    ("assembly", f"{PLACE}{at('frob $0')}: inline assembly 'frob $0, $1;': "),
]


@pytest.mark.parametrize(("name", "expected"), ERRORS)
def test_what_is_not_known_or_cannot_be_read_is_an_error_in_one_line(
    name, expected, capsys, monkeypatch
):
    monkeypatch.chdir(HERE)
    message = refuse(["check", f"bad_kernels.py:{name}", "--max-examples", "20"], capsys)
    assert message.startswith(f"{PLACE}bad_kernels.py:") or name in ("cut_short", "garbled")
    assert expected in message


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", ["prefers_library", "prefers_fields"])
def test_who_is_prepared_for_what_is_not_there_is_not_stopped(name, capsys, monkeypatch):
    assert run_check(name, capsys, monkeypatch)[0] == EXIT["pass"]


def test_memory_that_no_such_gpu_has_is_a_finding_less_is_incomplete(capsys, monkeypatch, texts):
    status, out, _ = run_check("hoards", capsys, monkeypatch)
    assert status == EXIT["fail"]
    assert "DefaultCPUAllocator: can't allocate memory" in out[1]
    status, out, _ = run_check("reserves", capsys, monkeypatch)
    assert status == EXIT["incomplete"]
    verdict = out[-1].partition(" ([")[0]  # what follows is torch's
    texts("the verdict where memory is lacking", verdict, line=at("torch.empty(64 << 30"))


def test_the_default_limits_reach_the_worker(monkeypatch):
    from gemmproof.cli import parse_options

    limits = parse_options(["check", "x.py:f"]).worker.limits
    assert (limits.case, limits.total, limits.each) == (30, 600, 3)
    assert limits.memory <= 8 << 30


@pytest.mark.lane("full")
def test_a_promise_of_fp32_is_broken_by_the_default_of_dot(capsys, monkeypatch, texts):
    status, out, _ = run_check("right", capsys, monkeypatch, "--dtype", "fp32")
    assert status == EXIT["fail"]
    texts("the heading of a bound that is violated", out[0].partition(": ")[0])
    texts("values of operands that are truncated", out[1].rpartition(": ")[2])
    assert run_check("right", capsys, monkeypatch, "--dtype", "fp16")[0] == EXIT["pass"]

"""`gemmproof reproduce --kernel`: kernels of a conftest.py, and claims on compiled code."""

import re
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.reproduce.written_tests import ROOT
from tests.support.cli_project import refuse
from tests.texts import line_with

from gemmproof.cli import main, parse_options
from gemmproof.commands.groups import KernelOptions
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.reproduce.bug import Place, Unreproducible, find_wrapper
from gemmproof.reproduce.command import _describe_claims, _place_found
from gemmproof.target import load_file

CONFTEST = """
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lib"))


def wrapper(a, b):
    from pack import kernels

    return kernels.matmul(a, b)


@pytest.hookimpl(optionalhook=True)
def pytest_gemm_kernels():
    import pack.kernels
    import in_full
    from gemmproof import Contract, KernelUnderTest

    claims = {"formats": ("fp32",), "M": 16, "N": 16, "K": 16, "fits": ("sm_80",)}
    return [
        KernelUnderTest("imported", pack.kernels.matmul, Contract()),
        KernelUnderTest("lambda", lambda a, b: wrapper(a, b), Contract()),
        KernelUnderTest("claimed", in_full.matmul, Contract(**claims, tensor_cores=True)),
    ]
"""
CASE = ("--case", '{"M":1,"N":1,"K":1}')


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = (ROOT / "docs" / "examples" / "no_k_mask.py").read_text()
    right = (ROOT / "docs" / "examples" / "right.py").read_text()
    Path("lib/pack").mkdir(parents=True)  # without an __init__.py
    Path("lib/pack/kernels.py").write_text(example)
    in_full = right.replace("tl.dot(a, b, acc)", 'tl.dot(a, b, acc, input_precision="ieee")')
    assert in_full != right
    Path("lib/in_full.py").write_text(in_full)
    Path("conftest.py").write_text(CONFTEST)


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
def test_the_wrapper_is_imported_as_it_is_registered(capsys, texts):
    Path("tests").mkdir()
    args = ["--kernel", "imported", *CASE, "-o", "tests/test_bug.py", "--dtype", "fp16"]
    assert main(["reproduce", *args]) == 0
    texts("how a written test fails", line_with(capsys.readouterr().out, "the test fails"))
    lines = [line.strip() for line in Path("tests/test_bug.py").read_text().splitlines()]
    replay = """gemmproof signoff --kernel imported --case '{"M":1,"N":1,"K":1,"dtype":"fp16"}'"""
    for line in (
        'KERNELS = "../lib"',
        "from pack.kernels import matmul",
        f"# gemmproof:  {replay}",
    ):
        assert line in lines


def test_a_wrapper_of_the_conftest_itself_is_loaded_by_its_path(tmp_path):
    location = find_wrapper(load_file(Path("conftest.py")).wrapper)
    assert location.file == str(tmp_path / "conftest.py")
    import_path = _place_found(location, str(tmp_path / "tests" / "test_bug.py"))
    assert import_path == Place("../conftest.py", None, "wrapper")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "target: got neither of TARGET and --kernel, expected one of them"),
        ("lib/in_full.py:matmul --kernel claimed", "target: got both of TARGET and --kernel, exp"),
        ("--kernel x --conftest none.py", "--conftest: got 'none.py' (no such file), expected a"),
        ("--kernel x --any-order", "--any-order: got it with --kernel, expected it in conftest.py"),
        ("--kernel x --dtype fp16 --dtype bf16", "--dtype: got fp16 bf16 with --kernel, expected"),
        ("--kernel x --case {}", "case: got no M, expected M, N and K"),
        ("--kernel claimed --dtype fp16", "format of claimed: got fp16, expected one of fp32"),
        ("--kernel lambda", "lambda: got a lambda registered as its wrapper, expected a function"),
    ],
)
def test_what_cannot_be_asked_is_one_line(args, message, capsys):
    assert message in refuse(["reproduce", *args.split()], capsys)
    assert not Path("test_bug.py").exists()


@pytest.mark.lane("full")
def test_a_claim_of_compiled_code_is_named_with_the_command_that_shows_it(capsys, texts):
    message = refuse(["reproduce", "--quiet", "--kernel", "claimed", "--max-examples", "1"], capsys)
    why = re.sub(r"\d+ fma", "<count> fma", message.partition("; see: ")[0])
    texts("a guarantee that no test of values shows", why)
    case = '{"M":16,"N":16,"K":16,"dtype":"fp32"}'
    shows = f"gemmproof lowering --kernel claimed --target sm_80 --case '{case}'"
    assert message.endswith(f"; see: {shows}\n")
    assert parse_options(shlex.split(shows)[1:]).gpus == ("sm_80",)


def test_of_several_claims_the_first_is_shown_on_the_gpus_where_it_fails(texts):
    target = ["it's.py:matmul", "--operand", "alpha=1.0"]
    options = parse_options(["reproduce", *target, "--conftest", "tests/conftest.py"])
    case = Case(16, 16, 16, config=2)
    findings = [
        Finding("spills_no_more", "spilled", "k.py:1: got 8 bytes on sm_80; on sm_90 too", case),
        Finding("fits_on_its_gpus", "too_large", "k.py:1: got 300000 bytes on sm_86", case),
    ]
    message = _describe_claims(options, findings, ["sm_80", "sm_86", "sm_90"])
    about, _, shows = message.partition("; see: ")
    texts("guarantees that no test of values shows", about)
    lowering = parse_options(shlex.split(shows)[1:])
    assert lowering.choice == KernelOptions("it's.py:matmul")  # a target has no conftest.py
    assert lowering.calling.operands == ("alpha=1.0",)
    assert (lowering.gpus, lowering.launch.config) == (("sm_80", "sm_90"), "all")
    assert Case.from_json(lowering.launch.case) == case


MODULE = """
from functools import partial


def plain(a, b):
    return a @ b


def make():
    def inner(a, b):
        return a @ b

    return inner


class Holder:
    @staticmethod
    def held(a, b):
        return a @ b

    def method(self, a, b):
        return a @ b


named = lambda a, b: a @ b
made, bound, some = make(), Holder().method, partial(plain)
"""


def test_what_stands_in_a_module_by_a_name_is_found(tmp_path):
    Path("held_wrappers.py").write_text(MODULE)
    module = load_file(Path("held_wrappers.py"))
    for name in ("plain", "named", "made", "bound", "some", "Holder.held"):
        launch = module
        for part in name.split("."):
            launch = getattr(launch, part)
        location = find_wrapper(launch)
        assert (location.function, location.module, location.root) == (
            name,
            "held_wrappers",
            str(tmp_path),
        )
    for launch, label in (
        (partial(module.plain), "a partial"),
        (lambda a, b: a @ b, "a lambda"),
        (module.make(), "the function inner of another function"),
        (module.Holder().method, "the method Holder.method of an object"),
    ):
        with pytest.raises(Unreproducible, match=f"got {label} registered as its wrapper"):
            find_wrapper(launch)
    del sys.modules["held_wrappers"]

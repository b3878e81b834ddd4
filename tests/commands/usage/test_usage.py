"""Bad usage, targets, cases, files and hooks: one clear line for each, and the right exit code."""

import shlex
from functools import partial
from pathlib import Path

import pytest
import triton
from tests.support.cli_project import (
    project_folder,  # noqa: F401
    refuse,
)

from gemmproof import Contract, KernelUnderTest, check, kernels
from gemmproof.cli import EXIT, main
from gemmproof.drift.run import drift, drift_of
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import ContractError

USAGE = [
    ("", "the following arguments are required: command"),
    ("check", "the following arguments are required: TARGET"),
    ("chekc my_kernels.py:matmul", "command: got 'chekc', expected one of: check draft"),
    ("chekc my_kernels.py:matmul", "; did you mean 'check'?"),
    ("check my_kernels.py:matmul --xyz", "got '--xyz', which is not an option of check (see"),
    ("check my_kernels.py:matmul more", "got 'more', which is not an option of check (see"),
    ("check my_kernels.py:matmul --max 3", "got '--max', which is not an option of check; did you"),
    ("check my_kernels.py:matmul --max=3", "; did you mean '--max-examples'?"),
    ("check my_kernels.py:matmul --dtype fp17", "argument --dtype: got 'fp17', expected one of:"),
    ("check my_kernels.py:matmul --dtype fp17", "; did you mean 'fp16'?"),
    ("check my_kernels.py:matmul --dtype float64", "argument --dtype: got 'float64', expected"),
    ("check my_kernels.py:matmul --layouts odd", "argument --layouts: got 'odd', expected one of"),
    ("check my_kernels.py:matmul --target sm90", "; did you mean 'sm_90'?"),
    ("check my_kernels.py:matmul --device tpu", "argument --device: got 'tpu', expected one of"),
    ("drift my_kernels.py:matmul --dtype int8", "argument --dtype: got 'int8', expected one of"),
    ("bench my_kernels.py:matmul --out-dtype tf32", "argument --out-dtype: got 'tf32', expected"),
    ("check my_kernels.py:matmul --max-examples 0", "--max-examples: got '0', expected an integer"),
    ("check my_kernels.py:matmul --max-examples ten", "--max-examples: got 'ten'"),
    ("check my_kernels.py:matmul --seed -1", "--seed: got '-1', expected an integer 0.."),
    ("check my_kernels.py:matmul --seed 99999999999999999999", "--seed: got '99999"),
    ("check my_kernels.py:matmul --json", "argument --json: expected one argument"),
]
MISTAKES = [
    ("check my_kernels.py", "got 'my_kernels.py', which has no function that takes two tensors"),
    ("check :matmul", "got ':matmul', expected path/to/file.py:function"),
    ("check my_kernels.py:", "got 'my_kernels.py:', expected path/to/file.py:function"),
    ("check my_kernels.py:a-b", "got 'my_kernels.py:a-b', expected path/to/file.py:function"),
    ("check absent.py:matmul", "got 'absent.py' (no such file), expected a Python file"),
    ("check folder.py:matmul", "got 'folder.py' (a folder), expected a Python file"),
    ("check ./my_kernels:matmul", "got './my_kernels', expected a file that ends in .py"),
    ("check absent.module:matmul", "absent.module: importing it raised ModuleNotFoundError"),
    ("check my_kernels.py:matmull", "got 'matmull', which is not there, expected perhaps 'matmul'"),
    ("check my_kernels.py:zzz", "expected one of: bmm leaves matmul star three"),
    ("check my_kernels.py:number", "my_kernels.py:number: got int, expected a function"),
    ("check syntax.py:f", "syntax.py:2: importing it raised SyntaxError: invalid syntax"),
    ("check needs.py:f", "needs.py:3: importing it raised ModuleNotFoundError: No module named"),
    ("check calls.py:f", "helper.py:2: importing it raised KeyError: 'x\\ny'"),
    ("check exits.py:f", "exits.py:3: importing it raised SystemExit: 0"),
    ("check my_kernels.py:matmul --case {", "case: got broken JSON"),
    ("check my_kernels.py:matmul --case 7", "case: got 7, expected an object"),
    ("""check my_kernels.py:matmul --case '{"M":1}'""", "case: got no N, expected M, N and K"),
    (
        """check my_kernels.py:matmul --case '{"M":1,"N":1,"K":1,"L":1}'""",
        'case: got unknown field "L", expected fields of M N K',
    ),
    (
        """check my_kernels.py:matmul --case '{"M":1e99,"N":1,"K":1}'""",
        "case M: got 1e+99, expected an integer 0..65536",
    ),
    (
        """check my_kernels.py:matmul --case '{"M":65536,"N":65536,"K":65536}'""",
        "case: got 12884901888 elements of a, b and c, expected at most",
    ),
    (
        """check my_kernels.py:matmul --dtype bf16 --case '{"M":1,"N":1,"K":1,"dtype":"fp16"}'""",
        "case dtype: got fp16, expected one of --dtype: bf16",
    ),
    (
        """check my_kernels.py:bmm --case '{"M":1,"N":1,"K":1}'""",
        "case: got no batch, expected one for 3-D operands",
    ),
    ("check my_kernels.py:matmul --json absent/x.json", "--json: got 'absent/x.json' (No such"),
    ("check my_kernels.py:matmul --junit folder.py", "--junit: got 'folder.py' (Is a directory)"),
    ("check my_kernels.py:matmul --json - --junit -", "--junit: got '-', the file of --json"),
    ("explain my_kernels.py:matmul --svg x.png", "got 'x.png', expected a name that ends in .svg"),
    ("drift my_kernels.py:matmul --svg x.pdf", "got 'x.pdf', expected a name that ends in .svg"),
    ("check my_kernels.py:matmul --json x --junit ./x", "--junit: got './x', the file of --json"),
    (
        "check my_kernels.py:matmul --operand lambda=fp16[M] --spec a@b",
        "--operand: got 'lambda=fp16[M]', expected NAME=FORMAT[AXIS, ...]",
    ),
    (
        "check my_kernels.py:matmul --operand 's=fp16[M,,N]' --spec a@b",
        "--operand: got an axis without a size in 's=fp16[M,,N]', expected NAME=FORMAT[AXIS, ...]",
    ),
    ("signoff", "--conftest: got 'conftest.py' (no such file), expected a conftest.py"),
    ("signoff --conftest needs.py", "needs.py:3: importing it raised ModuleNotFoundError"),
    ("signoff --conftest my_kernels.py", "my_kernels.py: got no pytest_gemm_kernels(), expected"),
]


@pytest.mark.parametrize(("command", "message"), USAGE)
def test_bad_usage_is_one_line(project, capsys, command, message):
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command))
    captured = capsys.readouterr()
    assert (left.value.code, captured.out, captured.err.count("\n")) == (EXIT["error"], "", 1)
    assert message in captured.err


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_bad_target_case_or_file_is_one_line(project, capsys, command, message):
    assert message in refuse(shlex.split(command), capsys)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "got None from pytest_gemm_kernels(), expected KernelUnderTest records"),
        ("[1]", "got [1] from pytest_gemm_kernels()"),
        ("[]", "got no kernels, expected at least one"),
        ("[KernelUnderTest('x', print)] * 2", "expected different names"),
        ("[KernelUnderTest('x', 3)]", "kernel x: got launch=3, expected a function of a and b"),
    ],
)
def test_a_hook_that_returns_nonsense_is_one_line(project, capsys, returned, message):
    text = f"from gemmproof import KernelUnderTest\ndef pytest_gemm_kernels(): return {returned}\n"
    Path("conftest.py").write_text(text)
    assert message in refuse(["signoff"], capsys)


# -- missing configurations, objects that are no kernels, and odd errors ---------------------------
MATMUL = str(Path(kernels.__file__).parent / "matmul.py:matmul")
CASE = '{{"M":8,"N":8,"K":8,"config":{}}}'
RAISES = """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Odder(BaseException):
    def __str__(self):
        return 7

def odd(a, b):
    raise Odd

def odder(a, b):
    raise Odder
"""


@triton.jit
def kernel(a_ptr):
    pass


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["check", MATMUL, "--case", CASE.format(5)], "case config: got 5, expected one of the 5"),
        (["explain", MATMUL, "--config", "5"], "--config: got 5, expected one of the 5: 0..4"),
    ],
)
def test_a_configuration_that_is_not_there(command, message, capsys):
    assert message in refuse(command, capsys)


def test_the_last_configuration_is_judged():
    matmul = KernelUnderTest("matmul", kernels.matmul, Contract())
    assert check(matmul, case=Case(8, 8, 8, config=4)).verdict == "pass"
    with pytest.raises(ContractError, match=r"got 5, expected one of the 5: 0\.\.4"):
        check(matmul, case=Case(8, 8, 8, config=5))


@pytest.mark.parametrize("judge", [check, partial(drift_of, in_format="fp16")])
@pytest.mark.parametrize("given", [3, None, "matmul", kernel, kernels.matmul, int])
def test_what_is_no_kernel(judge, given):
    with pytest.raises(TypeError, match=r"^(check|drift): got .*, expected a KernelUnderTest$"):
        judge(given)


@pytest.mark.parametrize("given", [3, None, "matmul", kernel])
def test_what_cannot_be_called(given):
    with pytest.raises(TypeError, match=r"^drift: got .*, expected a function of a and b$"):
        drift(given, "fp16")
    with pytest.raises(ValueError, match=r"^kernel k: got .*, expected .*\n?$"):
        KernelUnderTest("k", given)


@pytest.mark.parametrize("seed", [True, 1.5, "1", None])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(ValueError, match=r"^check: got seed="):
        check(KernelUnderTest("matmul", kernels.matmul), seed=seed)


@pytest.mark.parametrize(
    ("name", "error"),
    [("odd", "Odd: its message raises RuntimeError"), ("odder", "its message raises TypeError")],
)
def test_an_error_without_words(name, error, tmp_path, capsys):
    raises, at_import = tmp_path / "raises.py", tmp_path / "at_import.py"
    raises.write_text(RAISES)
    at_import.write_text(f"{RAISES}\n{name}(1, 2)\n")
    assert main(["check", f"{raises}:{name}", "--max-examples", "1"]) == EXIT["fail"]
    assert f"{error}, expected a result" in capsys.readouterr().out
    assert error in refuse(["check", f"{at_import}:{name}"], capsys)

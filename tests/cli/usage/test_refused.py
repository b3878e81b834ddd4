"""What cannot be judged is refused in one line: configurations, what is no kernel; odd errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import triton

from gemmproof import Contract, KernelUnderTest, check, kernels
from gemmproof.cli import EXIT, main
from gemmproof.engine.drift import drift, drift_of
from gemmproof.properties.cases.case import Case
from gemmproof.properties.operand import Misstated

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


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["check", MATMUL, "--case", CASE.format(5)], "case config: got 5, expected one of the 5"),
        (["explain", MATMUL, "--config", "5"], "--config: got 5, expected one of the 5: 0..4"),
    ],
)
def test_a_configuration_that_is_not_there(command, said, capsys):
    assert main(command) == EXIT["error"]
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert said in captured.err


def test_the_last_configuration_is_judged():
    matmul = KernelUnderTest("matmul", kernels.matmul, Contract())
    assert check(matmul, case=Case(8, 8, 8, config=4)).verdict == "pass"
    with pytest.raises(Misstated, match=r"got 5, expected one of the 5: 0\.\.4"):
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
    (tmp_path / "raises.py").write_text(RAISES)
    assert (
        main(["check", f"{tmp_path / 'raises.py'}:{name}", "--max-examples", "1"]) == EXIT["fail"]
    )
    captured = capsys.readouterr()
    assert f"{error}, expected a result" in captured.out
    (tmp_path / "at_import.py").write_text(f"{RAISES}\n{name}(1, 2)\n")
    assert main(["check", f"{tmp_path / 'at_import.py'}:{name}"]) == EXIT["error"]
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert error in captured.err

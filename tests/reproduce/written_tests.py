"""Wrong versions of one kernel, the tests written for them, and a runner of pytest on these."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reproduce.bug import Bug, Place
from gemmproof.reproduce.find import find_bug
from gemmproof.reproduce.write import write_test
from gemmproof.target import Calling, load_file

ROOT = Path(__file__).parents[2]
RIGHT = (ROOT / "docs" / "examples" / "right.py").read_text()


@dataclass(frozen=True)
class Wrong:
    """A change of the right kernel, a case that shows it, and the message of its test."""

    name: str
    before: str
    after: str
    case: str
    says: str  # under the interpreter; "" if values do not show it

    @property
    def text(self) -> str:
        """Return the source of the wrong kernel."""
        assert self.before in RIGHT, self.name
        return RIGHT.replace(self.before, self.after)


def find_first(kernel: KernelUnderTest, case: Case) -> Finding:
    """Return the first finding of a check of one case."""
    return check(kernel, case=case).findings[0]


def state_bug(folder: Path, wrong: Wrong) -> Bug:
    """Return the bug of a wrong kernel, whose source is written to a file."""
    path = folder / f"{wrong.name}.py"
    path.write_text(wrong.text)
    case = Case.from_json(wrong.case)
    contract = Contract(formats=(case.dtype,), layouts="any", K="0..")
    kernel = KernelUnderTest("matmul", load_file(path).matmul, contract)
    return find_bug(kernel, find_first(kernel, case), None, 30.0, lambda: None)


def write(folder: Path, wrong: Wrong, bug: Bug) -> Path:
    """Write the test of a bug next to the kernel's file."""
    path = folder / f"test_{wrong.name}.py"
    import_path = Place(".", wrong.name, "matmul")
    path.write_text(write_test(bug, import_path, Calling(), "gemmproof check ...", []))
    return path


def require_formatted(folder: Path, *options: str) -> None:
    """Assert that ruff would change nothing in the tests of a folder."""
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--diff", *options]
    files = map(str, sorted(folder.glob("test_*.py")))
    done = subprocess.run([*ruff, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def run_pytest(folder: Path, *args: str, interpreted: bool = True) -> tuple[int, str]:
    """Run pytest without gemmproof in a folder; return the exit code and the output.

    No GPU is visible.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"COLUMNS": "300", "CUDA_VISIBLE_DEVICES": ""}
    env |= {"TRITON_INTERPRET": "1"} if interpreted else {}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:gemmproof.plugin", "-rA", *args]
    command += ["--rootdir", str(folder), "-c", os.devnull, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr

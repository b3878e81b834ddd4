"""A user's project: its kernels, a conftest.py that registers them, and a run of pytest there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.warm_process import run_module

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
# the items of properties alone: those of Hypothesis have tests of their own
SUITE = "from gemmproof.suite import test_gemm\n"
HEAD = "from gemmproof import Contract, KernelUnderTest as K\ndef pytest_gemm_kernels():\n    "


def write_project(folder: Path, conftest: str, *examples: str, tests: str = SUITE) -> Path:
    """Write a conftest.py, a test file, and copies of kernels of docs/examples."""
    for name in examples:
        shutil.copy(EXAMPLES / f"{name}.py", folder)
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_kernels.py").write_text(tests)
    return folder


def run_pytest(
    folder: Path,
    *options: str,
    paths: tuple[Path, ...] = (),
    columns: int = 80,
    run_module: Callable[..., tuple[int, str]] = run_module,
) -> tuple[int, str]:
    """Run pytest there without a GPU; return its exit status and all that it printed."""
    entries = (ROOT / "src", folder, *paths, os.environ.get("PYTHONPATH", ""))
    env = {
        "PYTHONPATH": os.pathsep.join(map(str, entries)),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PATH": "/usr/bin",
        "COLUMNS": str(columns),
    }
    plugin_options = ("-p", "gemmproof.plugin", "-p", "no:cacheprovider", "--rootdir", str(folder))
    status, out = run_module("pytest", *plugin_options, *options, cwd=folder, env=env)
    print(out)  # shown if the test fails
    return status, out


def list_failed(out: str) -> list[str]:
    """Return the items that pytest's summary names as failed."""
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)


def read_outcomes(out: str) -> dict[str, dict[str, str]]:
    """Return the outcome of each kernel's item of each property, from a run with -v."""
    outcomes: dict[str, dict[str, str]] = {}
    for kernel, name, word in re.findall(r"::test_gemm\[(\w+)-fp16-(\w+)\] (\w+)", out):
        outcomes.setdefault(kernel, {})[name] = word
    return outcomes

"""pip and uv can resolve this project from the public package index alone, on each Python.

The resolver sees no configuration of the machine and no local wheels, which would hide a torch that
requires another Triton than constraints.txt has.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from noxfile import PAIRS

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
CONSTRAINTS = (ROOT / "constraints.txt").read_text()

TRITON_OF_TORCH = {torch: triton for torch, (triton, _) in PAIRS.items()}


def resolve(python: str, *arguments: str, constraints: str = "", folder: Path) -> dict[str, str]:
    """Return the version that uv chooses of each package, or fail with its reason in one line.

    Raises:
        AssertionError: there is no solution, or the index cannot be reached.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv, "got no uv, expected it in the environment: pip install uv"
    file = folder / "constraints.txt"
    file.write_text(constraints)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("UV_", "PIP_"))}
    environment["UV_PYTHON_DOWNLOADS"] = "never"
    done = subprocess.run(
        [
            uv, "pip", "compile", "pyproject.toml", "--extra", "dev", "--constraints", str(file),
            "--no-config", "--only-binary", ":all:", "--python-version", python,
            "--python-platform", "x86_64-manylinux_2_28", "--no-header", "--no-annotate",
            *arguments,
        ],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode and "error sending request" in done.stderr:
        pytest.fail("the package index cannot be reached: this test needs it", pytrace=False)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([\w.-]+)==(\S+)", done.stdout, re.MULTILINE))


def shorten(version: str) -> str:
    """Return major.minor of a version."""
    return ".".join(version.split(".")[:2])


@pytest.mark.lane("full")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_default_has_a_torch_and_the_triton_that_it_requires(python, tmp_path):
    """The versions that ./run installs."""
    versions = resolve(python, constraints=CONSTRAINTS, folder=tmp_path)
    assert TRITON_OF_TORCH[shorten(versions["torch"])] == shorten(versions["triton"])
    assert f"triton=={shorten(versions['triton'])}.*" in CONSTRAINTS


@pytest.mark.lane("full")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lowest_and_the_newest_versions_can_be_installed(python, tmp_path):
    """Each lower bound in pyproject.toml is a version that exists and goes with the others.

    Without constraints, no torch is older than that of the newest Triton that is supported.
    """
    versions = resolve(python, "--resolution", "lowest-direct", folder=tmp_path)
    assert (shorten(versions["torch"]), shorten(versions["triton"])) == ("2.10", "3.6")
    versions = resolve(python, folder=tmp_path)
    assert (shorten(versions["torch"]), shorten(versions["triton"])) >= ("2.15", "3.9")


@pytest.mark.lane("full")
@pytest.mark.parametrize("torch", TRITON_OF_TORCH)
def test_every_torch_that_is_supported_requires_the_triton_of_the_table(torch, tmp_path):
    """Its own metadata says so; another Triton has no solution."""
    versions = resolve("3.12", constraints=f"torch=={torch}.*\n", folder=tmp_path)
    assert shorten(versions["triton"]) == TRITON_OF_TORCH[torch]


@pytest.mark.lane("full")
@pytest.mark.parametrize("python", PYTHONS)
def test_a_torch_that_requires_another_triton_is_refused(python, tmp_path):
    """As constraints.txt was until torch 2.13 met Triton 3.9: a resolver that passes it is none."""
    wrong = re.sub(r"triton==.*", "triton==3.9.*", CONSTRAINTS)
    assert wrong != CONSTRAINTS
    with pytest.raises(AssertionError, match=r"(?s)torch==2\.13\.\d+ depends on triton.*==3\.7"):
        resolve(python, constraints=wrong, folder=tmp_path)

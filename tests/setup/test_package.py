"""The source archive and the wheel: complete, valid for an index, and usable when installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.texts import line_with

pytestmark = pytest.mark.lane("full")
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def run(*command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def build(source: Path, folder: Path, *options: str) -> None:
    """Build a source tree; without options, the archive and then the wheel from the archive."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    done = run(*command, *options, ".", folder=source)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of this repository, without what git ignores."""
    ignored = ("__pycache__", "*.egg-info", "build", "dist", ".git", ".venv*", ".*_cache")
    folder = tmp_path_factory.mktemp("package")
    ignore = shutil.ignore_patterns(*ignored, ".hypothesis", ".benchmarks", ".gemmproof")
    return shutil.copytree(ROOT, folder / "clone", symlinks=True, ignore=ignore)


@pytest.fixture(scope="module")
def dist(clone) -> Path:
    """The folder with the source archive, and the wheel that is built from it."""
    folder = clone.parent / "dist"
    build(clone, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (path,) = dist.glob("*.whl")
    return path


def read_files(wheel: Path) -> dict[str, bytes]:
    """Return the content of each file of a wheel."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_index_accepts_both(dist):
    """The description of the package included, which is README.md."""
    files = sorted(map(str, dist.iterdir()))
    assert [name.rpartition(".")[2] for name in files] == ["whl", "gz"]
    done = run(sys.executable, "-m", "twine", "check", "--strict", *files, folder=dist)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout


def test_a_wheel_has_every_file_of_the_package_and_no_other(wheel):
    """Kernels, reference and properties, which are links in a clone; tables, pages, templates."""
    package = ROOT / "src" / "gemmproof"
    expected = {
        (Path(folder).relative_to(package.parent) / name).as_posix()
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if not name.endswith((".pyc", ".pyo"))
    }
    some = (
        "py.typed",
        "kernels/gemm.py",
        "reference/gpus.py",
        "properties/pages/calls-and-values.md",
    )
    assert {f"gemmproof/{name}" for name in some} <= expected
    packed = read_files(wheel)
    assert {name for name in packed if ".dist-info/" not in name} == expected
    metadata = {name.partition("/")[2] for name in packed} - {n.partition("/")[2] for n in expected}
    assert {"METADATA", "entry_points.txt", "licenses/LICENSE"} <= metadata


def test_the_archive_has_what_the_tests_need(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tests = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tests").rglob("*.py")}
    files = {"action.yml", ".pre-commit-hooks.yaml", "conftest.py", "noxfile.py", "README.md"}
    assert tests | files <= names


def test_the_archive_and_the_repository_build_the_same_wheel(clone, wheel, tmp_path):
    build(clone, tmp_path, "--wheel")
    files = read_files(wheel)
    (path,) = tmp_path.glob("*.whl")
    again = read_files(path)
    assert set(again) == set(files)
    assert {name for name in files if again[name] != files[name]} == set()


# -- installed -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def site(wheel) -> Path:
    """The folder that the wheel is installed in."""
    folder = wheel.parents[1] / "site"
    options = ["--no-deps", "--offline", "--no-config", "--target", str(folder)]
    command = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    done = run(*command, *options, str(wheel), folder=wheel.parent)
    assert done.returncode == 0, done.stdout
    return folder


def gemmproof(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder."""
    return run(str(site / "bin" / "gemmproof"), *arguments, folder=folder, PYTHONPATH=str(site))


def test_the_installed_command_prints_its_version(wheel, site, tmp_path):
    done = gemmproof(site, tmp_path, "--version")
    assert done.stdout == f"gemmproof {wheel.name.split('-')[1]}\n"


@pytest.mark.parametrize(("name", "code"), [("right", 0), ("no_k_mask", 1)])
def test_the_installed_command_checks_a_kernel(site, tmp_path, name, code):
    shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    options = ("--max-examples", "1", "--no-proof")
    done = gemmproof(site, tmp_path, "check", f"{name}.py:matmul", *options)
    assert done.returncode == code, done.stdout


def test_the_installed_command_explains_a_property_and_a_fault(site, tmp_path, texts):
    shown = gemmproof(site, tmp_path, "explain", "stored_twice").stdout
    assert shown.startswith("stored_twice, a fault: ")
    texts("the property that a fault breaks", line_with(shown, "stores_each_element_once:"))


def test_pytest_finds_the_installed_plugin(wheel, site, tmp_path):
    command = [sys.executable, "-m", "pytest", "--trace-config", "--collect-only"]
    done = run(*command, folder=tmp_path, PYTHONPATH=str(site))
    assert f"gemmproof-{wheel.name.split('-')[1]}" in line_with(done.stdout, "plugins: ")
    assert f"gemmproof.plugin    : {site / 'gemmproof' / 'plugin.py'}" in done.stdout

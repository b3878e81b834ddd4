"""A wheel has what the package reads beside its modules: pages of help, tables, templates."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.texts import line_with

pytest.importorskip("setuptools", minversion="77")
ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel that is built from a source archive, as an index has them, of a copy of this."""
    folder = tmp_path_factory.mktemp("package")
    copy = shutil.copytree(
        ROOT,
        folder / "clone",
        symlinks=True,
        ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "tests"),
    )
    archive = build("sdist", copy, folder)
    shutil.unpack_archive(archive, folder / "archive")
    (source,) = (folder / "archive").iterdir()
    return build("wheel", source, folder)


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build one of a source tree."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(folder)],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("properties/pages", "*.md"),
        ("kernels/tables", "*.json"),
        ("reproduce/templates", "*.j2"),
        ("signoff/templates", "*.j2"),
    ],
)
def test_a_wheel_has_every_file_that_is_read(wheel, folder, pattern):
    expected = {path.name for path in (ROOT / "src" / "gemmproof" / folder).glob(pattern)}
    names = map(Path, ZipFile(wheel).namelist())
    packed = {p.name for p in names if p.match(f"gemmproof/{folder}/{pattern}")}
    assert packed == expected != set()


@pytest.mark.lane("full")
def test_an_installed_wheel_explains_a_property_and_a_fault(wheel, tmp_path, texts):
    """pip lays the files of a wheel into site-packages as they are."""
    ZipFile(wheel).extractall(tmp_path / "site")
    shown = subprocess.check_output(
        [sys.executable, "-m", "gemmproof", "explain", "stored_twice"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        text=True,
    )
    assert shown.startswith("stored_twice, a fault: ")
    texts("the property that a fault breaks", line_with(shown, "stores_each_element_once:"))

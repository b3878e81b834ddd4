"""A folder of tiny wheels that stands for a package index, and a clone that installs from it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
CPU, CUDA = "2.13.0+cpu", "2.13.0"
VERSIONS = {"torch": CPU, "triton": "3.7.1"}

# An in-tree build backend: the real one is downloaded by pip.
BACKEND = """
import pathlib, sys, tomllib
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tiny_index import write_wheel

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["dev"]
    lines = [*project["dependencies"], *(f'{line}; extra == "dev"' for line in extra)]
    head = [f"Requires-Dist: {line}" for line in lines] + ["Provides-Extra: dev"]
    return write_wheel(pathlib.Path(wheel_directory), "gemmproof", "0.1.0", {}, head).name
"""


def write_wheel(
    folder: Path, name: str, version: str, files: dict[str, str], head: Sequence[str] = ()
) -> Path:
    """Write a wheel of pure Python with these files, by path, and lines of metadata."""
    dist = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *head])
    wheel = "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {**files, f"{dist}/METADATA": metadata + "\n", f"{dist}/WHEEL": wheel}
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        record = []
        for file, text in files.items():
            archive.writestr(file, text)
            digest = urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(text)}")
        archive.writestr(f"{dist}/RECORD", "\n".join([*record, f"{dist}/RECORD,,"]) + "\n")
    return path


def write_index(folder: Path, torch: str = CPU) -> Path:
    """Write a wheel for each requirement of pyproject.toml, of a version that constraints allow."""
    folder.mkdir(exist_ok=True)
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if match := re.match(r"([\w-]+)==([\d.]+)", line):
            name, version = match[1], match[2].rstrip(".")
            # every lower bound within the major version is met
            version = {**VERSIONS, "torch": torch}.get(name, f"{version}.999")
            module = name.replace("-", "_")
            files = {f"{module}/__init__.py": f"__version__ = {version!r}\n"}
            if name == "torch":
                files["torch/version.py"] = (
                    f"cuda = {None if version.endswith('+cpu') else '13.0'!r}\n"
                )
            if name != "uv":  # pip cannot get it, so pip installs everything
                write_wheel(folder, name, version, files)
    return folder


def write_clone(folder: Path) -> Path:
    """Copy what ./run needs from the repository, with a build backend that downloads nothing."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "src" / "gemmproof" / "reference").mkdir(parents=True)
    for name in ("run", "constraints.txt", "scripts/environment.py"):
        shutil.copy(ROOT / name, folder / name)
    text = (ROOT / "pyproject.toml").read_text()
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    text, count = re.subn(r"\[build-system\].*?(?=\n\[)", build, text, count=1, flags=re.DOTALL)
    assert count == 1
    text = re.sub(r'    "uv>=[\d.]+",\n', "", text)
    (folder / "pyproject.toml").write_text(text)
    (folder / "backend.py").write_text(BACKEND)
    shutil.copy(__file__, folder)
    return folder


def run(
    clone: Path, index: Path | None, *arguments: str, **environment: str
) -> subprocess.CompletedProcess:
    """Run ./run of the clone with that index alone, and without an active environment."""
    base = clone.parent / "base"
    if not base.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", base], check=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON"))}
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        kept.pop(name, None)
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    if index:
        pip |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    named = {"PYTHON": str(base / "bin" / "python"), "PATH": "/usr/bin:/bin"}
    command = [
        clone / "run",
        *(arguments or ("python", "-c", "import torch; print(torch.__version__)")),
    ]
    environment = {**kept, **pip, **named, **environment}
    environment = {name: value for name, value in environment.items() if value}
    return subprocess.run(command, env=environment, capture_output=True, text=True)

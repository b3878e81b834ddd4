"""./run makes the environment that it needs, continues an interrupted one, and explains failures.

Packages come from a folder of tiny wheels, so nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import environment
from tests.setup.tiny_index import CPU, CUDA, run, write_clone, write_index, write_wheel
from tests.texts import line_with


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A clone whose .venv has pip and nothing else: its index offered no package."""
    folder = tmp_path_factory.mktemp("started")
    (folder / "empty").mkdir()
    clone = write_clone(folder / "a clone")
    return clone, run(clone, folder / "empty")


@pytest.fixture
def clone(started, tmp_path):
    """A clone that continues from there; pip's files, which no test writes to, are shared."""

    def copy(source, target):
        return (os.link if "/site-packages/pip" in source else shutil.copy2)(source, target)

    return shutil.copytree(started[0], tmp_path / "a clone", symlinks=True, copy_function=copy)


def last_line(done) -> str:
    """Return the last line on stderr."""
    return done.stderr.splitlines()[-1]


@pytest.mark.lane("full")
def test_an_index_without_a_package_is_one_line(started, texts):
    """It names the package, the version of Python and what to do."""
    _, done = started
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert done.returncode == 2
    refusal = re.sub(r"no \S+ for", "no <package> for", last_line(done))
    texts("an index without a package", refusal, python=python)


@pytest.mark.lane("full")
def test_the_environment_is_made_once_and_reused(clone, tmp_path, texts):
    """It says which build of torch is installed, how large it is, and how long it took."""
    index = write_index(tmp_path / "index")
    done = run(clone, index)
    assert (done.returncode, done.stdout) == (0, f"{CPU}\n"), done.stderr
    texts("a build of torch without CUDA", line_with(done.stderr, "installing with pip"))
    message = "run: .venv is ready: torch 2.13.0+cpu (the CPU build), Triton 3.7.1, 0.0 GB"
    assert message in last_line(done)
    again = run(clone, None)
    assert (again.returncode, again.stdout, again.stderr) == (0, f"{CPU}\n", "run: using .venv\n")


@pytest.mark.lane("full")
def test_a_default_build_is_announced(clone, tmp_path, texts):
    """If the index has no CPU build, the size is reported before the download."""
    done = run(clone, write_index(tmp_path / "index", CUDA))
    texts("a build of torch with CUDA", line_with(done.stderr, "installing with pip"))
    texts("a new environment with CUDA", last_line(done).partition(", Triton")[0])


@pytest.mark.lane("full")
def test_an_interrupted_installation_is_continued(clone, tmp_path, texts):
    """A package without its last file is installed again; the others are kept."""
    index = write_index(tmp_path / "index")
    assert run(clone, index).returncode == 0
    site = next((clone / ".venv").glob("lib/python*/site-packages"))
    (clone / ".venv" / environment.STAMP).unlink()
    (site / "triton" / "__init__.py").unlink()
    (site / "numpy" / "__init__.py").write_text("")
    (index / next(x.name for x in index.glob("rich-*"))).unlink()  # is not needed again
    done = run(clone, index)
    assert done.returncode == 0, done.stderr
    texts("an installation that is continued", line_with(done.stderr, "continuing"))
    removed = [x for x in done.stderr.splitlines() if "whose installation was interrupted" in x]
    assert sorted(x.split()[2] for x in removed) == ["numpy,", "triton,"]
    assert (site / "triton" / "__init__.py").read_text() == "__version__ = '3.7.1'\n"


@pytest.mark.lane("full")
def test_a_venv_without_pip_is_made_again(clone, tmp_path):
    """As after an interruption while Python made it."""
    for folder in (clone / ".venv").glob("lib/python*/site-packages/pip*"):
        shutil.rmtree(folder)
    done = run(clone, write_index(tmp_path / "index"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("run: making .venv with ")


@pytest.mark.lane("full")
def test_changed_requirements_bring_the_environment_up_to_date(clone, tmp_path):
    """A changed constraint is installed at the next run."""
    index = write_index(tmp_path / "index")
    assert run(clone, index).returncode == 0
    write_wheel(index, "rich", "15.1000", {"rich/__init__.py": ""})
    constraints = clone / "constraints.txt"
    constraints.write_text(constraints.read_text().replace("rich==15.*", "rich==15.1000"))
    code = "from importlib.metadata import version as v; print(v('rich'))"
    done = run(clone, index, "python", "-c", code)
    assert (done.returncode, done.stdout) == (0, "15.1000\n"), done.stderr


@pytest.mark.lane("full")
def test_no_network_is_one_line(clone):
    """It says what to check."""
    done = run(clone, None, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    expected = "run: the package index cannot be reached: check the network, or pip's configuration"
    assert (done.returncode, last_line(done)) == (2, f"{expected}; run again to continue")


@pytest.mark.lane("full")
def test_contradictory_constraints_are_one_line(clone, tmp_path):
    """A torch that requires another Triton, as constraints.txt once had."""
    index = write_index(tmp_path / "index")
    next(index.glob("torch-*")).unlink()
    write_wheel(index, "torch", "2.13.0", {}, ["Requires-Dist: triton==3.9.0"])
    done = run(clone, index)
    expected = "run: the package index cannot satisfy pyproject.toml and constraints.txt"
    assert (done.returncode, last_line(done)) == (2, f"{expected}; run again to continue")


FAKE_UV = """#!/bin/sh
echo "$UV_TORCH_BACKEND $*" >>"{log}"
case "$*" in
    *--dry-run) {plan} ;;
    *) shift 2; shift 2; exec "{python}" -m pip install "$@" ;;
esac
"""


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("plan", "calls", "expected"),
    [
        (
            "echo ' + torch==2.13.0+cpu' >&2",
            2,
            "run: installing with uv: torch 2.13.0+cpu, the CPU build, about 2 GB in all",
        ),
        (
            "echo 'Failed to fetch: torch' >&2; exit 2",
            1,
            "run: uv: Failed to fetch: torch; pip takes what its own index offers",
        ),
    ],
    ids=["reached", "not reached"],
)
def test_uv_chooses_the_build_and_pip_takes_over(clone, tmp_path, plan, calls, expected):
    """uv is asked for the build of this machine first; pip takes over if it finds none."""
    index = write_index(tmp_path / "index")
    log, tools = tmp_path / "log", tmp_path / "tools"
    tools.mkdir()
    text = FAKE_UV.format(log=log, plan=plan, python=clone / ".venv" / "bin" / "python")
    (tools / "uv").write_text(text)
    (tools / "uv").chmod(0o755)
    done = run(clone, index, PATH=f"{tools}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    asked = log.read_text().splitlines()
    assert all(x.split()[:4] == ["auto", "pip", "install", "--python"] for x in asked)
    assert len(asked) == calls
    assert expected in done.stderr.splitlines()


def write_environment(folder: Path, **packages: str) -> Path:
    """Make an environment whose packages are empty modules of these versions."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name, version in packages.items():
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    return folder


ADVICE = ", or deactivate it so that ./run makes .venv"


@pytest.mark.parametrize(
    ("packages", "fault"),
    [
        ({"torch": "2.13.0"}, "got torch without triton: install triton>=3.6,<3.10"),
        ({"torch": "2.8.0", "triton": "3.6.0"}, "got torch 2.8.0, expected >=2.10: install that"),
        *(
            (
                {"torch": "2.13.0", "triton": triton},
                f"got triton {triton}, expected >=3.6,<3.10: install that",
            )
            for triton in ("3.4.0", "3.10.0")
        ),
    ],
)
def test_an_active_environment_that_does_not_fit_is_one_line(tmp_path, packages, fault):
    """It is named with what it lacks and what to do; nothing is made."""
    clone = write_clone(tmp_path / "clone")
    active = write_environment(tmp_path / "active", **packages)
    done = run(clone, None, PYTHON="", VIRTUAL_ENV=str(active))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"run: {active}/bin/python: {fault}{ADVICE}\n"
    assert not (clone / ".venv").exists()


@pytest.mark.lane("full")
def test_an_active_environment_is_used_and_not_written_to(started, tmp_path):
    """Tools that it lacks, or has in an old version, go into a separate folder."""
    clone = shutil.copytree(started[0], tmp_path / "clone", ignore=shutil.ignore_patterns(".venv"))
    active = write_environment(
        tmp_path / "active", torch="2.11.0", triton="3.6.0", numpy="2.0", rich="1.0"
    )
    before = sorted(active.rglob("*.dist-info"))
    arguments = ("python", "-c", "import rich, torch; print(torch.__version__, rich.__version__)")
    variables = {"PYTHON": "", "VIRTUAL_ENV": str(active)}
    done = run(clone, write_index(tmp_path / "index"), *arguments, **variables)
    assert (done.returncode, done.stdout) == (0, "2.11.0 15.999\n"), done.stderr
    assert sorted(active.rglob("*.dist-info")) == before
    again = run(clone, None, *arguments, **variables)
    used = f"run: using {active}/bin/python (torch 2.11.0, triton 3.6.0) with .venv-layer\n"
    assert (again.stdout, again.stderr) == (done.stdout, used)


def test_a_python_out_of_range_is_one_line(tmp_path):
    """The interpreter that PYTHON names must be one that is supported."""
    (tmp_path / "python3.9").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3.9").chmod(0o755)
    clone = write_clone(tmp_path / "clone")
    done = run(clone, None, PYTHON=str(tmp_path / "python3.9"))
    expected = "expected the command of a Python 3.11, 3.12 or 3.13"
    assert done.stderr == f"run: PYTHON={tmp_path}/python3.9: {expected}\n"
    assert done.returncode == 2


def test_no_python_in_range_is_one_line(tmp_path):
    """Without one on PATH, and without uv, which could install one."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    done = run(write_clone(tmp_path / "clone"), None, PYTHON="", PATH=str(tools))
    expected = "run: found no Python 3.11, 3.12 or 3.13: install one, or name it with PYTHON=...\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_a_full_disk_is_one_line(monkeypatch, texts):
    """Whatever the installer's log says: it could not be written either."""
    usage = shutil._ntuple_diskusage(10**9, 10**9, 0)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda folder: usage)
    texts("a disk that is full", environment.explain_failure(""))


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("3.6.0", ">=3.6,<3.10", True),
        ("3.10.0", ">=3.6,<3.10", False),
        ("3.9.0+git1234", ">=3.6,<3.10", True),
        ("2.13.0+cpu", ">=2.10", True),
        ("2.9.1", ">=2.10", False),
        ("1", "", True),
    ],
)
def test_versions_are_compared_by_number(version, bounds, fits):
    """3.10 is newer than 3.9, and a local version is in the range of its release."""
    assert environment.is_in_range(version, bounds) is fits


# -- a clone without symbolic links ----------------------------------------------------------------
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def clone_without_links(tmp_path):
    """A clone by a git without symbolic links: each link is a file that holds its target."""
    for name in ("setup.py", "run", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    package = tmp_path / "src" / "gemmproof"
    package.mkdir(parents=True)
    for name in ("kernels", "properties", "reference"):
        assert (REPOSITORY / "src" / "gemmproof" / name).resolve() == REPOSITORY / name
        (package / name).write_text(f"../../{name}")
    return tmp_path


@pytest.mark.parametrize("command", [[sys.executable, "setup.py", "--version"], ["./run", "test"]])
def test_a_clone_without_links_is_refused(clone_without_links, command, texts):
    done = subprocess.run(command, cwd=clone_without_links, capture_output=True, text=True)
    assert done.returncode != 0
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    refusal = re.sub(
        r"\b(kernels|properties|reference)\b", "<link>", done.stderr.partition(": ")[2]
    )
    texts("a clone without links", refusal)

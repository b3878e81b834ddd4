"""Run a command of this repository in an environment that is made once and then reused.

An active environment that has torch and Triton is used as it is; tools that it lacks go into
.venv-layer. Otherwise the environment is .venv. uv installs it if uv is on PATH or pip can get it,
because uv finds the build of torch for this machine: the small CPU build where there is no GPU. If
PyTorch's index is out of reach, pip installs what its own configured index offers.

An installation that was interrupted is continued: a package with missing or truncated files is
installed again. Called by ./run, with the standard library alone.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
LAYER = ROOT / ".venv-layer"
CONSTRAINTS = ROOT / "constraints.txt"
STAMP = "gemmproof.stamp"  # written last, so a folder without it is incomplete

# The distributions that provide a module: nightly and ROCm builds have different names.
PROVIDERS = {
    "torch": ("torch",),
    "triton": ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm"),
}

# Printed by the interpreter that is examined. It may be older than this file's syntax.
EXAMINE = """
import json, sys
from importlib.metadata import distributions
from importlib.util import find_spec
print(json.dumps({
    "executable": sys.executable,
    "python": list(sys.version_info[:3]),
    "modules": [name for name in ("torch", "triton") if find_spec(name)],
    "packages": {
        str(d.metadata["Name"]).lower().replace("_", "-"): d.version for d in distributions()
    },
}))
"""

# The meaning of a line of an installer's log; the first match counts.
FAILURES = (
    (r"No space left on device", "the disk is full: make room"),
    (
        r"NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|dns error",
        "the package index cannot be reached: check the network, or pip's configuration",
    ),
    (
        r"No matching distribution found for (?P<what>\S+)",
        "the package index offers no {what} for Python {python}: name another interpreter with"
        " PYTHON=..., or another index in pip's configuration",
    ),
    (
        r"ResolutionImpossible",
        "the package index cannot satisfy pyproject.toml and constraints.txt",
    ),
)


def main(arguments: list[str]) -> NoReturn:
    """Replace this process by the command, in the environment that was found or made."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    command, *rest = arguments
    try:
        with _lock():
            active = find_active()
            python, path = add_layer(active) if active else (make_venv(), [])
    except KeyboardInterrupt:
        say("interrupted; run again to continue")
        sys.exit(130)
    except OSError as error:
        die(f"{error}; run again to continue")
    environment = dict(os.environ)
    path = [str(ROOT / "src"), *path, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    call = [python]
    if command == "test":
        # One thread for each worker: the workers already fill the cores.
        environment.setdefault("OMP_NUM_THREADS", "1")
        # The tests start hundreds of processes: each would compile the same files again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        workers = environment.get("GEMMPROOF_WORKERS", "2")
        call += ["-m", "pytest", "-n", workers, "--dist", "worksteal"]
    elif command == "signoff":
        call += ["-m", "gemmproof", "signoff"]
    elif command == "docs":
        call += ["-P", str(ROOT / "scripts" / "build_docs.py")]
    if command != "python":
        os.chdir(ROOT)
    os.execve(python, [*call, *rest], environment)


def say(text: str) -> None:
    """Print one line of progress on stderr."""
    print(f"run: {text}", file=sys.stderr, flush=True)


def die(text: str) -> NoReturn:
    """Print one line on stderr and exit with status 2."""
    say(text)
    sys.exit(2)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Hold the repository's folder, so that two runs at once make one environment."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another ./run, which is making the environment")
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(folder)


# -- requirements ----------------------------------------------------------------------------------


def read_requirements(extra: str = "dev") -> dict[str, str]:
    """Return the version range of each requirement in pyproject.toml, by normalised name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"][extra]]
    matches = [re.match(r"([\w.-]+)([^;]*)", line) for line in lines]
    return {m[1].lower().replace("_", "-"): m[2].strip() for m in matches if m}


def is_in_range(version: str, bounds: str) -> bool:
    """Return True if a version such as 3.7.1+git satisfies bounds such as >=3.6,<3.10."""

    def numbers(text: str) -> tuple[int, ...]:
        release = re.match(r"\d+(\.\d+)*", text)
        return tuple(int(n) for n in release[0].split(".")) if release else ()

    for bound in filter(None, bounds.split(",")):
        limit = numbers(bound.lstrip("<>="))
        if bound.startswith(">=") and numbers(version) < limit:
            return False
        if bound.startswith("<") and numbers(version) >= limit:
            return False
    return True


def compute_stamp(*further: str) -> str:
    """Return a digest of the inputs of an environment."""
    files = (ROOT / "pyproject.toml", CONSTRAINTS)
    return hashlib.sha256(
        b"\0".join([*(f.read_bytes() for f in files), *map(str.encode, further)])
    ).hexdigest()


def is_complete(folder: Path, stamp: str) -> bool:
    """Return True if the folder's installation completed and matches the stamp."""
    file = folder / STAMP
    return file.is_file() and file.read_text().strip() == stamp


# -- an active environment -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter: its version, its packages, and which modules of PROVIDERS it has."""

    executable: str
    python: list[int]
    modules: list[str]
    packages: dict[str, str]


def examine(python: str) -> Interpreter | None:
    """Return the facts of an interpreter, or None if it does not run."""
    done = subprocess.run([python, "-c", EXAMINE], capture_output=True, text=True, cwd="/")
    return Interpreter(**json.loads(done.stdout)) if done.returncode == 0 else None


def find_active() -> Interpreter | None:
    """Return the facts of the active environment with torch and Triton, or None.

    An environment that the user activated or named ends the run if its torch has no Triton, or if a
    version is out of range. An interpreter that is only on PATH is skipped.
    """
    named = os.environ.get("PYTHON")
    prefixes = (os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"))
    chosen = [named] if named else [f"{prefix}/bin/python" for prefix in prefixes if prefix]
    for name in chosen if named else [*chosen, "python3"]:
        python = shutil.which(name)
        if python is None or Path(python).is_relative_to(VENV):
            continue
        facts = examine(python)
        if facts is None or "torch" not in facts.modules:
            continue
        fault = find_fault(facts)
        if fault is None:
            return facts
        if name in chosen:
            die(f"{python}: {fault}, or deactivate it so that ./run makes .venv")
        say(f"{python} is not used: {fault}")
    return None


def find_fault(facts: Interpreter) -> str | None:
    """Return the reason why an environment with torch cannot be used and the remedy, or None."""
    python = ".".join(map(str, facts.python))
    if not (3, 11) <= tuple(facts.python[:2]) < (3, 14):
        return f"got Python {python}, expected 3.11 to 3.13: use another"
    bounds = read_requirements()
    for name, providers in PROVIDERS.items():
        version = next((facts.packages[p] for p in providers if p in facts.packages), None)
        if name not in facts.modules:
            return f"got torch without {name}: install {name}{bounds[name]}"
        if version and not is_in_range(version, bounds[name]):
            return f"got {name} {version}, expected {bounds[name]}: install that"
    return None


def add_layer(facts: Interpreter) -> tuple[str, list[str]]:
    """Return the active interpreter and the folder of the tools that it lacks, which may be made.

    Nothing is written into the environment itself.
    """
    python, packages = facts.executable, facts.packages
    lacking = [
        name
        for name, bounds in read_requirements().items()
        if name not in PROVIDERS
        and (name not in packages or (name != "numpy" and not is_in_range(packages[name], bounds)))
    ]
    versions = ", ".join(f"{n} {packages[n]}" for n in PROVIDERS if n in packages)
    if not lacking:
        say(f"using {python} as it is ({versions})")
        return python, []
    site = LAYER / "site-packages"
    stamp = compute_stamp(python, versions, *lacking)
    if is_complete(LAYER, stamp):
        say(f"using {python} ({versions}) with .venv-layer")
        return python, [str(site)]
    say(f"using {python} ({versions}); installing {' '.join(lacking)} into .venv-layer")
    shutil.rmtree(LAYER, ignore_errors=True)
    LAYER.mkdir()
    # pip --target ignores what is installed, so pip is asked first what is missing.
    kept = {name: packages[name] for name in ("torch", "triton", "numpy") if name in packages}
    pins = [f"{name}=={version}" for name, version in kept.items()]
    pins += [x for x in CONSTRAINTS.read_text().splitlines() if x.partition("==")[0] not in kept]
    constraints, plan, log = (
        LAYER / name for name in ("constraints.txt", "plan.json", "install.log")
    )
    constraints.write_text("\n".join(pins) + "\n")
    pip = [*find_pip(python), "install", "--log", str(log)]
    failed = f"; or install into the active environment: pip install {' '.join(lacking)}"
    ask = ["-q", "--dry-run", "--report", str(plan), "-c", str(constraints), *lacking]
    if subprocess.call([*pip, *ask], stdout=sys.stderr):
        die(explain_failure(read_log(log)) + failed)
    chosen = [item["metadata"] for item in json.loads(plan.read_text())["install"]]
    names = [f"{item['name']}=={item['version']}" for item in chosen]
    if subprocess.call([*pip, "--no-deps", "--target", str(site), *names], stdout=sys.stderr):
        die(explain_failure(read_log(log)) + failed)
    (LAYER / STAMP).write_text(stamp)
    return python, [str(site)]


def find_pip(python: str) -> list[str]:
    """Return the command of the interpreter's pip, or of the one that Python brings along."""
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return [python, "-m", "pip", "--disable-pip-version-check"]
    ask = "import ensurepip, sysconfig as s; print(ensurepip.__path__[0] + '/_bundled')"
    ask += "; print(s.get_config_var('WHEEL_PKG_DIR') or '')"  # Debian keeps the wheels there
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    folders = filter(None, done.stdout.splitlines())
    wheels = [wheel for folder in folders for wheel in sorted(Path(folder).glob("pip-*.whl"))]
    if not wheels:
        die(f"{python} has no pip: install pip into it")
    return [python, str(wheels[-1] / "pip"), "--disable-pip-version-check"]


# -- .venv -----------------------------------------------------------------------------------------


def make_venv() -> str:
    """Return the interpreter of .venv, which is made or brought up to date if it has to be."""
    python = str(VENV / "bin" / "python")
    stamp = compute_stamp()
    facts = examine(python) if Path(python).exists() else None
    usable = facts is not None and (3, 11) <= tuple(facts.python[:2]) < (3, 14)
    if usable and is_complete(VENV, stamp):
        say("using .venv")
        return python
    if sys.platform != "linux":
        die(f"Triton has no builds for {sys.platform}: use Linux")
    started = time.monotonic()
    has_pip = (
        subprocess.run([python, "-m", "pip", "--version"], capture_output=True) if usable else None
    )
    if has_pip is None or has_pip.returncode:
        base = sys._base_executable  # type: ignore[attr-defined] # .venv itself may be active
        say(f"making .venv with {base}")
        if subprocess.call([base, "-m", "venv", "--clear", str(VENV)], stdout=sys.stderr):
            die(
                f"{base} cannot make an environment; on Debian: apt install python3-venv"
                if shutil.disk_usage(ROOT).free > 10**8
                else "the disk is full: make room; run again to continue"
            )
    else:
        say("continuing with .venv")
        remove_damaged()
    with contextlib.suppress(FileNotFoundError):
        (VENV / STAMP).unlink()
    install(python)
    (VENV / STAMP).write_text(stamp)
    size = int(subprocess.check_output(["du", "-sk", str(VENV)]).split()[0]) / 1e6
    say(f".venv is ready: {describe_torch()}, {size:.1f} GB, {time.monotonic() - started:.0f} s")
    return python


def site_packages() -> Path:
    """Return the folder of .venv's packages."""
    return next(VENV.glob("lib/python*/site-packages"))


def remove_damaged() -> None:
    """Remove packages that an interrupted installation left without some of their files."""
    for package in distributions(path=[str(site_packages())]):
        if is_damaged(package):
            say(f"removing {package.name or 'a package'}, whose installation was interrupted")
            # without its metadata it counts as absent, and the next installation replaces its files
            shutil.rmtree(package._path)  # type: ignore[attr-defined]


def is_damaged(package: Distribution) -> bool:
    """Return True if a file of the package is missing or has another size than was recorded."""
    record = package.read_text("RECORD")
    if not record or not package.read_text("METADATA"):
        return True
    for name, _, size in csv.reader(record.splitlines()):
        path = Path(str(package.locate_file(name)))
        if path.suffix == ".pyc":
            continue
        if not path.exists() or (size and path.stat().st_size != int(size)):
            return True
    return False


def install(python: str) -> None:
    """Install the requirements of pyproject.toml and constraints.txt into .venv, by uv or pip."""
    packages = ["-c", str(CONSTRAINTS), "-e", f"{ROOT}[dev]"]
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    uv = shutil.which("uv") or get_uv(pip)
    if uv:
        # auto: the CPU build if there is no GPU, else the build for the driver that is installed
        environment = {"UV_TORCH_BACKEND": "auto", **os.environ}
        call = [uv, "pip", "install", "--python", python, *packages]
        plan = subprocess.run(
            [*call, "--dry-run"],
            capture_output=True,
            text=True,
            env={"UV_HTTP_RETRIES": "1", **environment},
        )
        if plan.returncode == 0:
            match = re.search(r"^ \+ torch==(\S+)", plan.stderr, re.MULTILINE)
            if match:
                say(f"installing with uv: torch {match[1]}, {describe_build(match[1])}")
            if subprocess.call(call, env=environment, stdout=sys.stderr) == 0:
                return
        reasons = (
            re.search(pattern, plan.stderr) for pattern in ("Failed to fetch: .*", "error: .*")
        )
        reason = next(filter(None, reasons), None)
        say(f"uv: {reason[0] if reason else 'it failed'}; pip takes what its own index offers")
    version = ask_torch(pip)
    say(f"installing with pip: torch {version}, {describe_build(version)}")
    log = VENV / "install.log"
    log.unlink(missing_ok=True)
    if subprocess.call([*pip, "--log", str(log), *packages], stdout=sys.stderr):
        die(explain_failure(read_log(log)) + "; run again to continue")


def get_uv(pip: list[str]) -> str | None:
    """Install uv into .venv with pip and return its path, or None if that fails."""
    uv = VENV / "bin" / "uv"
    if not uv.exists():
        say("installing uv")
        command = [*pip, "-q", "--retries", "1", "-c", str(CONSTRAINTS), "uv"]
        if subprocess.run(command, capture_output=True).returncode:
            return None
    return str(uv)


def ask_torch(pip: list[str]) -> str:
    """Return the version of torch that pip would install; end the run if there is none."""
    # as a requirement: of a constraint without a candidate pip says only that it is in conflict
    lines = CONSTRAINTS.read_text().splitlines()
    torch = next(line for line in lines if line.startswith("torch=="))
    plan, log = VENV / "torch.json", VENV / "torch.log"
    log.unlink(missing_ok=True)
    files = ["--report", str(plan), "--log", str(log)]
    command = [*pip, "--dry-run", "--ignore-installed", "--no-deps", *files, torch]
    if subprocess.run(command, capture_output=True).returncode:
        die(explain_failure(read_log(log)) + "; run again to continue")
    return json.loads(plan.read_text())["install"][0]["metadata"]["version"]


def describe_build(version: str) -> str:
    """Name the build of torch and the size of the whole environment, from torch's version."""
    if version.endswith("+cpu"):
        return "the CPU build, about 2 GB in all"
    return "a build with CUDA, about 5 GB in all, unless this index has another"


def describe_torch() -> str:
    """Name the versions of torch and Triton in .venv, and torch's build."""
    names = {p.name: p.version for p in distributions(path=[str(site_packages())])}
    cuda = runpy.run_path(str(site_packages() / "torch" / "version.py"))["cuda"]
    build = f"built with CUDA {cuda}" if cuda else "the CPU build"
    return f"torch {names['torch']} ({build}), Triton {names['triton']}"


def read_log(file: Path) -> str:
    """Return the text of an installer's log, which may not have been written."""
    return file.read_text(errors="replace") if file.exists() else ""


def explain_failure(text: str) -> str:
    """Return the reason of an installer's failure and the remedy in one line, from its output."""
    free = min(shutil.disk_usage(folder).free for folder in (ROOT, tempfile.gettempdir()))
    if free < 10**8:
        text = "No space left on device"
    for pattern, meaning in FAILURES:
        match = re.search(pattern, text)
        if match:
            return meaning.format(python="{}.{}".format(*sys.version_info), **match.groupdict())
    return "the installation failed; the lines above say why"


if __name__ == "__main__":
    main(sys.argv[1:])

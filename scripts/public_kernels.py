"""Judge wrappers of public projects: their sources are fetched into a folder, never copied here.

scripts/public_kernels.toml lists the wrappers; docs/evidence/public-kernels.json has the verdicts.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from scripts.command import run
from scripts.docs.markdown import make_table, update_tables

LIST = Path(__file__).with_suffix(".toml")
EVIDENCE = ROOT / "docs" / "evidence" / "public-kernels.json"
PAGE = ROOT / "docs" / "results" / "public-kernels.md"
CHECK = (sys.executable, "-m", "gemmproof", "check")
QUIET = ("--quiet", "--no-saved-cases")
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade")
PACKAGES = "site-packages"  # in the cache; whatever is in a folder of this name is a library
WITHOUT_VERDICT = {2: "refused", 3: "incomplete"}


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A wrapper of a public project, how it is declared, and what a reading of its source showed.

    `verdict`: what the declared command should report, by that reading.
    """

    repository: str
    commit: str
    file: str
    name: str
    style: str
    options: str
    verdict: str
    finding: str

    @property
    def key(self) -> str:
        return f"{self.repository}/{self.file}:{self.name}"

    @property
    def link(self) -> str:
        url = f"https://github.com/{self.repository}/blob/{self.commit}/{self.file}"
        return f"[`{Path(self.file).name}:{self.name}`]({url})"

    @property
    def target(self) -> str:
        return f"{self.file}:{self.name}"

    def is_judged_rightly(self, row: dict[str, Any]) -> bool:
        """Return whether the declared command reports what the source deserves."""
        return str(row["declared"]["verdict"]).partition(";")[0] == self.verdict


@dataclass(frozen=True, slots=True)
class Run:
    """A command's exit code, verdict, first finding and seconds."""

    options: str
    exit: int
    verdict: str
    message: str
    seconds: float


def read_list() -> list[Wrapper]:
    """Read the wrappers of all projects."""
    return [
        Wrapper(project["repository"], project["commit"], **wrapper)
        for project in read_projects()
        for wrapper in project["wrapper"]
    ]


def read_projects() -> list[dict[str, Any]]:
    """Read the projects: repository, commit, wrappers and the packages that their files import."""
    projects: list[dict[str, Any]] = tomllib.loads(LIST.read_text(encoding="utf-8"))["project"]
    return projects


def fetch(cache: Path, only: str = "") -> int:
    """Fetch every project at its commit into CACHE, and install the packages that they import.

    --only TEXT selects the projects whose name contains the text. A project that is there is left.
    """
    packages = set()
    for project in read_projects():
        folder = cache / project["repository"]
        if only not in project["repository"]:
            continue
        packages.update(project.get("packages", ()))
        if (folder / ".git").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for command in (
            "git init --quiet",
            f"git fetch --quiet --depth 1 https://github.com/{project['repository']}"
            f" {project['commit']}",
            "git checkout --quiet FETCH_HEAD",
        ):
            subprocess.run(shlex.split(command), cwd=folder, check=True)
        print(project["repository"], project["commit"], flush=True)
    install = [*PIP, "--target", str(cache / PACKAGES), *sorted(packages)]
    return subprocess.run(install, check=False).returncode if packages else 0


def judge(cache: Path, only: str = "", again: bool = False, limit: float = 300.0) -> int:
    """Run the first and the declared command of every wrapper, and save their verdicts.

    --only TEXT selects the wrappers whose repository, file or name contains the text. A wrapper
    whose options are as they were is not run again, unless with --again. --limit SECONDS ends a
    command.
    """
    evidence = json.loads(EVIDENCE.read_text(encoding="utf-8")) if EVIDENCE.is_file() else {}
    wrappers = read_list()
    rows = {wrapper.key: evidence.get("wrappers", {}).get(wrapper.key, {}) for wrapper in wrappers}
    for wrapper in wrappers:
        row = rows[wrapper.key]
        if only not in wrapper.key:
            continue
        for name, options in (("first", ""), ("declared", wrapper.options)):
            same = (row.get(name) or {}).get("options") == options
            if again or not same or row.get("commit") != wrapper.commit:
                row[name] = asdict(check(wrapper, cache, options, limit))
                summary = f"{row[name]['verdict']}, {row[name]['seconds']} s"
                print(f"{wrapper.key} {name}: {summary}", file=sys.stderr, flush=True)
        row["commit"] = wrapper.commit
        write_evidence({key: row for key, row in rows.items() if row})
    return 0


def write_evidence(rows: dict[str, dict[str, Any]]) -> None:
    """Write the verdicts, with the versions that gave them."""
    versions = {name: version(name) for name in ("gemmproof", "triton", "torch")}
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version(), **versions},
        "wrappers": rows,
    }
    EVIDENCE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def check(wrapper: Wrapper, cache: Path, options: str, limit: float) -> Run:
    """Run one command in the project's folder."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        argv = [*CHECK, wrapper.target, *shlex.split(options), *QUIET, "--json", str(report)]
        paths = os.pathsep.join(map(str, (ROOT / "src", ROOT, cache.resolve() / PACKAGES)))
        start = time.monotonic()
        try:
            done = subprocess.run(
                argv, cwd=cache / wrapper.repository, env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Run(options, -1, "not ended", f"after {limit:g} s", limit)
        seconds = round(time.monotonic() - start, 1)
        if not report.is_file():
            lines = done.stdout.strip().splitlines() or [""]
            verdict = WITHOUT_VERDICT.get(done.returncode, "crash")
            return Run(options, done.returncode, verdict, lines[-1], seconds)
        text = report.read_text(encoding="utf-8").replace(f"{cache.resolve()}{os.sep}", "")
        document = json.loads(text)
    findings = document.get("findings") or [{"message": document.get("note") or ""}]
    verdict = document.get("verdict", "")
    return Run(options, done.returncode, verdict, findings[0]["message"], seconds)


# -- page ------------------------------------------------------------------------------------------
def make_page(check: bool = False, out: Path | None = None) -> int:
    """Make the tables of docs/results/public-kernels.md from docs/evidence/public-kernels.json."""
    evidence = json.loads(EVIDENCE.read_text(encoding="utf-8"))
    rows = evidence["wrappers"]
    wrappers = [wrapper for wrapper in read_list() if wrapper.key in rows]
    tables = {
        "summary": summarize(wrappers, evidence),
        "wrappers": tabulate_wrappers(wrappers, rows),
        "commands": "\n".join(list_commands(wrappers)),
    }
    return update_tables(PAGE, tables, check, out)


def summarize(wrappers: list[Wrapper], evidence: dict[str, Any]) -> str:
    """Return the counts of verdicts as a list in Markdown."""
    rows = [evidence["wrappers"][wrapper.key] for wrapper in wrappers]
    projects = len({wrapper.repository for wrapper in wrappers})
    versions = ", ".join(f"{name} {number}" for name, number in evidence["versions"].items())

    def count(name: str) -> str:
        verdicts = Counter(row[name]["verdict"].partition(";")[0] for row in rows)
        return ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())

    times = [row["declared"]["seconds"] for row in rows]
    right = sum(map(Wrapper.is_judged_rightly, wrappers, rows))
    return (
        f"- {len(wrappers)} wrappers of {projects} projects, on {evidence['date']} ({versions}).\n"
        f"- First command: {count('first')}.\n"
        f"- Declared: {count('declared')}; {median(times):.1f} s in the median, {max(times):.1f} s"
        f" at most.\n"
        f"- {right} of {len(wrappers)} declared verdicts are what the source deserves."
    )


def tabulate_wrappers(wrappers: list[Wrapper], rows: dict[str, Any]) -> str:
    """Tabulate the wrappers: both verdicts, their seconds, and what was found."""
    cells = []
    for wrapper in wrappers:
        first, declared = rows[wrapper.key]["first"], rows[wrapper.key]["declared"]
        finding = wrapper.finding
        if not wrapper.is_judged_rightly(rows[wrapper.key]):
            message = declared["message"].replace("|", "\\|")
            finding = f"**should be {wrapper.verdict}**: {message}"
        verdicts = [f"{x['verdict']}, {x['seconds']:.1f} s" for x in (first, declared)]
        cells.append([wrapper.repository, wrapper.link, wrapper.style, *verdicts, finding])
    heads = ("project", "wrapper", "style", "first command", "declared", "found")
    return make_table(heads, cells)


def list_commands(wrappers: list[Wrapper]) -> Iterator[str]:
    """Yield the declared commands of each project, as a code block."""
    for repository in dict.fromkeys(wrapper.repository for wrapper in wrappers):
        own = [wrapper for wrapper in wrappers if wrapper.repository == repository]
        lines = (f"gemmproof check {w.target} {w.options}".rstrip() for w in own)
        yield "\n".join((f"{repository} at {own[0].commit[:12]}:\n", "```sh", *lines, "```\n"))


COMMANDS: dict[str, Callable[..., int]] = {"fetch": fetch, "judge": judge, "page": make_page}

if __name__ == "__main__":
    sys.exit(run(__doc__, COMMANDS))

"""Recipes of docs/examples/ci, read and run as their CI systems do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "examples" / "ci"
SHIMS = {
    "pip": '#!/bin/sh\necho "$@" >> "$PIP_LOG"\n',  # its packages are already installed
    "gemmproof": f'#!/bin/sh\nexec "{sys.executable}" -m gemmproof "$@"\n',
}


def read_yaml(text: str) -> Any:
    """Parse a recipe: block mappings and lists, `|`, [flow lists] and plain scalars."""
    lines = [line for line in text.split("\n") if line.strip() and line.lstrip()[0] != "#"]
    data, rest = _read_block(lines, _indent(lines[0]))
    assert rest == []
    return data


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read_block(lines: list[str], depth: int) -> tuple[Any, list[str]]:
    is_list = lines[0].lstrip().startswith("- ")
    items: list[Any] = []
    mapping: dict[str, Any] = {}
    while lines and _indent(lines[0]) == depth:
        line, *lines = lines
        if is_list:
            inner = depth + 2
            head = " " * inner + line[inner:]
            if re.match(r"[\w-]+:( |$)", line[inner:]):
                item, lines = _read_block([head, *lines], inner)
            else:
                item = _read_scalar(line[inner:])
            items.append(item)
            continue
        key, _, value = line.strip().partition(":")
        value = re.sub(r" #.*", "", value).strip()
        if value == "|":
            body = [x for x in lines if _indent(x) > depth]
            body = body[: next((n for n, x in enumerate(lines) if _indent(x) <= depth), None)]
            mapping[key] = "".join(f"{x.strip()}\n" for x in body)
            lines = lines[len(body) :]
        elif value:
            mapping[key] = _read_scalar(value)
        else:
            mapping[key], lines = _read_block(lines, _indent(lines[0]))
    return (items if is_list else mapping), lines


def _read_scalar(text: str) -> Any:
    text = text.strip()
    if text.startswith("["):
        return [_read_scalar(item) for item in text[1:-1].split(",")]
    if text in ("true", "false"):
        return text == "true"
    quoted = re.fullmatch(r'"([^"]*)"', text)
    return int(text) if text.isdigit() else quoted[1] if quoted else text


class Runner:
    """A checked-out project on a CI machine; `installed` lists the arguments of pip's calls."""

    def __init__(self, project: Path, **env: str) -> None:
        self.project = project
        shims = project.parent / "shims"
        shims.mkdir()
        for name, text in SHIMS.items():
            (shims / name).write_text(text)
            (shims / name).chmod(0o755)
        self._log = project.parent / "pip.txt"
        self._env = {
            "PATH": f"{shims}:/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
            "PIP_LOG": str(self._log),
            "OMP_NUM_THREADS": "1",
            "CI": "true",
            **env,
        }

    @property
    def installed(self) -> list[str]:
        return self._log.read_text().splitlines()

    def run(self, command: str, **env: str) -> tuple[int, str]:
        """Run commands as a step of a job; return the exit code and the log."""
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=self.project,
            env={**self._env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def run_github(self, job: dict[str, Any], env: dict[str, str]) -> tuple[int, str, list[str]]:
        """Run a job; return the exit code of its last failed step, its log and its uploads."""
        code, log, uploaded = 0, "", []
        for step in job["steps"]:
            condition = step.get("if", "")
            if code and not condition.startswith("always()"):
                continue
            hashed = re.search(r"hashFiles\('(.*)'\) != ''", condition)
            if hashed and not (self.project / hashed[1]).exists():
                continue
            if "run" in step:
                failed, output = self.run(step["run"], **env)
                code, log = failed or code, log + output
            elif not re.match(r"actions/(checkout|setup-python)@", step["uses"]):
                given = step["with"]
                uploaded += (given.get("path") or given["sarif_file"]).split()
        return code, log, uploaded

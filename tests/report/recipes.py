"""Recipes of docs/examples/ci and the action, read and run as their CI systems do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "examples" / "ci"
ACTION = ROOT / "action.yml"
SHIMS = {
    "pip": '#!/bin/sh\necho "$@" >> "$PIP_LOG"\n',  # its packages are already installed
    "python": '#!/bin/sh\n[ "$1" = -m ] && shift && exec "$@"\nexit 1\n',
    "gemmproof": f'#!/bin/sh\nexec "{sys.executable}" -m gemmproof "$@"\n',
}
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
NAME = re.compile(r"'[^']*'|\b(?:inputs|steps|github)\.[\w.-]+")


def read_yaml(text: str) -> Any:
    """Parse YAML. Raises ValueError in one line, as json does."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


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
        self.env = {
            "PATH": f"{shims}:/usr/bin:/bin",
            "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}",
            "PIP_LOG": str(self._log),
            "OMP_NUM_THREADS": "1",
            "CI": "true",
            **env,
        }

    @property
    def installed(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def run(self, command: str, folder: str = ".", **env: str) -> tuple[int, str]:
        """Run commands as a step of a job; return the exit code and the log."""
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
            cwd=self.project / folder,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def run_github(self, job: dict[str, Any], env: dict[str, str]) -> tuple[int, str, list[str]]:
        """Run a job; return the exit code of its first failed step, its log and its uploads."""
        return self._run_steps(job["steps"], env, {})

    def run_action(
        self, inputs: dict[str, Any], env: dict[str, str]
    ) -> tuple[int, str, list[str], dict[str, str]]:
        """Run the action; return the same, and its outputs."""
        action = read_yaml(ACTION.read_text())
        unknown = set(inputs) - set(action["inputs"])
        assert not unknown, f"got inputs {unknown}, expected some of {[*action['inputs']]}"
        texts = {name: x["default"] for name, x in action["inputs"].items()}
        # YAML's true reaches an action as the text
        texts |= {name: str(x).lower() if x is True else x for name, x in inputs.items()}
        context = {f"inputs.{name}": x for name, x in texts.items()}
        context["github.action_path"] = str(ROOT)
        code, log, uploaded = self._run_steps(action["runs"]["steps"], env, context)
        outputs = {name: fill(x["value"], context) for name, x in action["outputs"].items()}
        return code, log, uploaded, outputs

    def _run_steps(
        self, steps: list[dict[str, Any]], env: dict[str, str], context: dict[str, str]
    ) -> tuple[int, str, list[str]]:
        """Run steps; their outputs are added to the context."""
        code, log, uploaded = 0, "", []
        for step in steps:
            condition = step.get("if", "success()")
            if (code and "always()" not in condition) or not self._holds(condition, context):
                continue
            if "run" in step:
                own = {name: fill(x, context) for name, x in step.get("env", {}).items()}
                output = self.project.parent / "output.txt"
                output.write_text("")
                folder = fill(step.get("working-directory", "."), context)
                env_of_step = {**env, **own, "GITHUB_OUTPUT": str(output)}
                failed, shown = self.run(step["run"], folder, **env_of_step)
                code, log = code or failed, log + shown
                for line in output.read_text().splitlines():
                    name, _, text = line.partition("=")
                    context[f"steps.{step['id']}.outputs.{name}"] = text
            elif re.match(r"OWNER/gemmproof@", step["uses"]):
                failed, shown, files, _ = self.run_action(step.get("with", {}), env)
                code, log, uploaded = code or failed, log + shown, uploaded + files
            elif not re.match(r"actions/(checkout|setup-python)@", step["uses"]):
                given = {name: fill(x, context) for name, x in step["with"].items()}
                uploaded += (given.get("path") or given["sarif_file"]).split()
        return code, log, uploaded

    def _holds(self, condition: str, context: dict[str, str]) -> bool:
        """Evaluate the condition of a step."""
        condition = re.sub(
            r"hashFiles\('(.*?)'\)",
            lambda match: "'some'" if (self.project / match[1]).exists() else "''",
            condition.replace("always()", "True").replace("success()", "True"),
        )
        python = NAME.sub(lambda match: look_up(match[0], context), condition)
        return bool(eval(python.replace("&&", " and ").replace("||", " or ")))


def look_up(name: str, context: dict[str, str]) -> str:
    """Return the value of a name as a literal; an output that no step wrote is empty."""
    if name.startswith("'"):
        return name
    return repr(context.get(name, "") if name.startswith("steps.") else context[name])


def fill(text: str, context: dict[str, str]) -> str:
    """Return a text with the values of its expressions, each a name."""

    def evaluate(match: re.Match[str]) -> str:
        name = match[1]
        return context.get(name, "") if name.startswith("steps.") else context[name]

    return EXPRESSION.sub(evaluate, text)

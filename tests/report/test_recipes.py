"""The recipes for CI work as documented: they are run here, on a right and a wrong kernel."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.report.recipes import RECIPES, ROOT, Runner, read_yaml

PAGE = ROOT / "docs" / "how-to" / "run-in-ci.md"
CONFTEST = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "kernels"))

def pytest_gemm_kernels():
    from gemmproof import KernelUnderTest
    import {0}
    return [KernelUnderTest("{0}", {0}.matmul)]
"""
SETTINGS = "[tool.gemmproof]\nmax-examples = 1\nproof = false\n"
WRONG, RIGHT = "no_k_mask", "right"
KERNELS = pytest.mark.parametrize(("name", "code"), [(RIGHT, 0), (WRONG, 1)])


@pytest.fixture
def check_out(tmp_path):
    """Return a function that creates a project with one kernel, as its CI system sees it."""

    def make(name: str, **env: str) -> Runner:
        project = tmp_path / "project"
        (project / "kernels").mkdir(parents=True)
        shutil.copy(ROOT / "docs" / "examples" / f"{name}.py", project / "kernels")
        (project / "conftest.py").write_text(CONFTEST.format(name))
        (project / "pyproject.toml").write_text(SETTINGS)
        return Runner(project, TORCH_CPU_INDEX="of torch", GEMMPROOF="ours", **env)

    return make


def read(name):
    return read_yaml((RECIPES / name).read_text())


def test_the_page_shows_the_recipes():
    shown = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL))
    files = {f"../examples/ci/{path.name}": path.read_text() for path in RECIPES.iterdir()}
    assert shown == files


@pytest.mark.lane("full")
@KERNELS
def test_github(check_out, tmp_path, name, code):
    workflow = read("github.yml")
    env = {key: f"<{value}>" for key, value in workflow["env"].items()}
    variables = [re.fullmatch(r"<\$\{\{ vars\.(\w+) \}\}>", value)[1] for value in env.values()]
    assert variables == ["TORCH_CPU_INDEX", "GEMMPROOF"]
    summary = tmp_path / "summary.md"
    runner = check_out(name)
    env |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(runner.project),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    ended, log, uploaded = runner.run_github(workflow["jobs"]["signoff"], env)
    assert ended == code, log
    torch, ours = runner.installed
    assert torch.split(maxsplit=3) == ["install", "torch", "--index-url", env["TORCH_CPU_INDEX"]]
    assert ours == f"install {env['GEMMPROOF']}"
    assert uploaded == ["signoff.sarif", "signoff.json", "signoff.xml"]
    report = json.loads((runner.project / "signoff.json").read_text())
    assert report["verdict"] == ("fail" if code else "pass")
    ElementTree.parse(runner.project / "signoff.xml")
    results = json.loads((runner.project / "signoff.sarif").read_text())["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    uris = {location["artifactLocation"]["uri"] for location in places}
    assert uris == ({f"kernels/{name}.py"} if code else set())
    errors = [line for line in log.splitlines() if line.startswith("::error ")]
    assert bool(errors) == bool(code)
    assert all(f"file=kernels/{name}.py,line=" in line for line in errors)
    assert summary.read_text().startswith(f"## gemmproof signoff: {report['verdict']}\n")


@pytest.mark.lane("full")
def test_gitlab(check_out):
    job = read("gitlab.yml")["gemmproof"]
    runner = check_out(WRONG, GITLAB_CI="true")
    ended, log = runner.run("\n".join(job["script"]), CI_PROJECT_DIR=str(runner.project))
    assert ended == 1, log
    torch, ours = runner.installed
    assert torch.split(maxsplit=3) == ["install", "torch", "--index-url", "of torch"]
    assert ours == "install ours"
    kept = [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]
    assert job["artifacts"]["when"] == "always"
    assert all((runner.project / path).is_file() for path in kept)
    issues = json.loads((runner.project / job["artifacts"]["reports"]["codequality"]).read_text())
    paths = {issue["location"]["path"] for issue in issues}
    assert paths == {f"kernels/{WRONG}.py"}
    assert "::error" not in log


@pytest.mark.lane("full")
@KERNELS
def test_a_push(check_out, tmp_path, name, code):
    """Run by git itself, as its pre-push hook."""
    runner = check_out(name)
    entry = read("pre-commit.yml")["repos"][0]["hooks"][0]["entry"]
    hook = RECIPES / "pre-push.sh"
    assert hook.read_text().splitlines()[-1] == f"exec {entry}"

    def git(*args):
        return runner.run(f"git {' '.join(args)}", GIT_CONFIG_GLOBAL="/dev/null")

    assert git("init", "-q", "-b", "main")[0] == 0
    shutil.copy(hook, runner.project / ".git" / "hooks" / "pre-push")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    assert git("add", ".")[0] == git(*who, "commit", "-q", "-m", "kernels")[0] == 0
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "remote"], check=True)
    ended, log = git("push", "-q", str(tmp_path / "remote"), "main")
    assert (ended, f"signoff: {'fail' if code else 'pass'}" in log) == (code, True), log
    assert bool(list(Path(tmp_path / "remote").glob("refs/heads/main"))) == (not code)

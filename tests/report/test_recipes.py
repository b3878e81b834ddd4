"""The recipes for CI work as documented: they are run here, on a right and a wrong kernel."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.report.recipes import ACTION, EXPRESSION, RECIPES, ROOT, Runner, read_yaml

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
SETTINGS = "[tool.gemmproof]\nmax-examples = 30\nproof = false\n"
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
    runner = check_out(name)
    env |= environ(runner)
    ended, log, uploaded = runner.run_github(workflow["jobs"]["signoff"], env)
    assert ended == code, log
    torch, ours = runner.installed
    assert torch.split(maxsplit=3) == ["install", "torch", "--index-url", env["TORCH_CPU_INDEX"]]
    assert ours == f"install {env['GEMMPROOF']}"
    assert uploaded == ["signoff.sarif", "signoff.json", "signoff.xml"]
    verdict = "fail" if code else "pass"
    assert json.loads((runner.project / "signoff.json").read_text())["verdict"] == verdict
    ElementTree.parse(runner.project / "signoff.xml")
    sources = {f"kernels/{name}.py"} if code else set()
    assert list_uris(runner.project / "signoff.sarif") == sources
    assert list_annotated(log) == sources
    assert (tmp_path / "summary.md").read_text().startswith(f"## gemmproof signoff: {verdict}\n")


def environ(runner: Runner) -> dict[str, str]:
    """Return what GitHub's runner sets for each step."""
    folder = runner.project.parent
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(runner.project),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "RUNNER_TEMP": str(folder),
    }


def list_uris(sarif: Path | str) -> set[str]:
    """Return the files of the results of SARIF."""
    results = json.loads(Path(sarif).read_text())["runs"][0]["results"]
    locations = [result["locations"][0]["physicalLocation"] for result in results]
    return {location["artifactLocation"]["uri"] for location in locations}


def list_annotated(log: str) -> set[str]:
    """Return the files that annotations of errors name with a line."""
    errors = [line for line in log.splitlines() if line.startswith("::error ")]
    return {re.search(r"file=(.*?),line=", line)[1] for line in errors}


@pytest.mark.lane("full")
@KERNELS
def test_the_workflow_with_the_action(check_out, name, code):
    job = read("github-action.yml")["jobs"]["signoff"]
    runner = check_out(name)
    env = environ(runner)
    ended, log, uploaded = runner.run_github(job, {**env, "TORCH_CPU_INDEX": "of torch"})
    assert ended == code, log
    assert runner.installed == ["install torch --index-url of torch", f"install {ROOT}"]
    sources = {f"kernels/{name}.py"} if code else set()
    (sarif,) = uploaded
    assert list_uris(sarif) == list_annotated(log) == sources
    verdict = "fail" if code else "pass"
    summary = Path(env["GITHUB_STEP_SUMMARY"]).read_text()
    assert summary.startswith(f"## gemmproof signoff: {verdict}\n")


@pytest.mark.lane("full")
@KERNELS
def test_the_outputs_of_the_action(check_out, name, code):
    """Both of `check` in a folder and of `signoff` with a baseline."""
    runner = check_out(name)
    inputs = {"target": f"{name}.py:matmul", "working-directory": "kernels", "install": "false"}
    inputs["arguments"] = "--max-examples 30\n--seed 3"
    ended, log, uploaded, outputs = runner.run_action(inputs, environ(runner))
    assert (ended, uploaded, runner.installed) == (code, [], []), log
    verdict = "fail" if code else "pass"
    assert (outputs["verdict"], outputs["exit-code"]) == (verdict, str(code))
    report = json.loads(Path(outputs["json"]).read_text())
    assert (report["target"], report["verdict"]) == (inputs["target"], verdict)
    ElementTree.parse(outputs["junit"])
    assert list_uris(outputs["sarif"]) == ({f"kernels/{name}.py"} if code else set())
    first = runner.run_action({"install": "false"}, environ(runner))[-1]
    again = {"install": "false", "baseline": first["json"]}
    ended, log, _, outputs = runner.run_action(again, environ(runner))
    assert ended == code, log
    hashes = [json.loads(Path(x["json"]).read_text()) for x in (first, outputs)]
    assert hashes[1]["baseline"] == hashes[0]["hash"]


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", ["target", "arguments", "baseline"])
def test_no_input_of_the_action_is_run_as_a_command(check_out, name):
    runner = check_out(RIGHT)
    text = '$(touch hacked) `touch hacked`"; touch hacked; "'
    inputs = {name: text, "install": "false"}
    ended, log, _, outputs = runner.run_action(inputs, environ(runner))
    assert ended == 2, log
    assert (outputs["verdict"], outputs["exit-code"]) == ("error", "2")
    assert not list(runner.project.rglob("hacked"))


@pytest.mark.parametrize("inputs", [{"target": "--help"}, {"arguments": "--help"}])
def test_the_action_does_not_pass_without_a_report(check_out, inputs):
    runner = check_out(RIGHT)
    ended, log, _, outputs = runner.run_action({**inputs, "install": "false"}, environ(runner))
    assert (ended, outputs["verdict"], outputs["exit-code"]) == (2, "error", "2"), log
    assert outputs["json"] == ""


def test_the_action_declares_what_it_uses():
    """Expressions are only where their values are not parsed as commands."""
    action = read_yaml(ACTION.read_text())
    steps = action["runs"]["steps"]
    for step in [*steps, *read("github.yml")["jobs"]["signoff"]["steps"]]:
        assert not EXPRESSION.search(step.get("run", ""))
    assert all("shell" in step for step in steps if "run" in step)  # which GitHub requires
    used = set(re.findall(r"\binputs\.([\w-]+)", ACTION.read_text()))
    assert used == set(action["inputs"])
    described = [*action["inputs"].values(), *action["outputs"].values(), action]
    assert all(x["description"] for x in described)
    written = set(re.findall(r'echo "([\w-]+)=', ACTION.read_text()))
    assert written == set(action["outputs"])


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


# -- hooks of pre-commit --------------------------------------------------------------------------
HOOKS = ROOT / ".pre-commit-hooks.yaml"
WHO = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")


def pre_commit(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run pre-commit, which dev has."""
    argv = [sys.executable, "-m", "pre_commit", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, **options)


def commit_all(folder: Path) -> str:
    """Make a repository of a folder; return its commit."""

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *WHO, *arguments], cwd=folder, text=True).strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    return git("rev-parse", "HEAD")


def test_the_hooks_are_valid():
    done = pre_commit("validate-manifest", str(HOOKS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_run_what_the_recipes_run():
    """Before a push, once for all files."""
    hooks = {hook["id"]: hook for hook in read_yaml(HOOKS.read_text())}
    local = read("pre-commit.yml")["repos"][0]["hooks"][0]
    assert hooks["gemmproof-signoff"]["entry"] == local["entry"]
    for hook in (*hooks.values(), local):
        assert (hook["stages"], hook["pass_filenames"]) == (["pre-push"], False)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("hook", "name", "code"),
    [
        ("gemmproof-signoff", RIGHT, 0),
        ("gemmproof-signoff", WRONG, 1),
        ("gemmproof-check", WRONG, 1),
    ],
)
def test_pre_commit_runs_a_hook(check_out, tmp_path, hook, name, code):
    """From a repository, in the environment that has torch: `language: system`."""
    runner = check_out(name)
    repository = tmp_path / "repository"
    repository.mkdir()
    shutil.copy(HOOKS, repository)
    config = read("pre-commit-hook.yml")
    (source,) = config["repos"]
    source |= {"repo": str(repository), "rev": commit_all(repository)}
    if hook == "gemmproof-check":
        source["hooks"][0] |= {"id": hook, "args": [f"kernels/{name}.py:matmul"]}
    (runner.project / ".pre-commit-config.yaml").write_text(json.dumps(config))
    commit_all(runner.project)
    done = pre_commit(
        "run", hook, "--all-files", "--hook-stage", "pre-push", cwd=runner.project,
        env={**runner.env, "PRE_COMMIT_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Failed" if code else "Passed") in done.stdout
    assert (f"{name}.py:" in done.stdout) == bool(code)

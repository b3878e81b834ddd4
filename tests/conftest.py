"""Settings of this repository's own tests."""

import os
import shlex
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings
from tests.engine_at_hand import share_engine
from tests.support.triton_versions import holds
from tests.texts import FILE, accept, compare, replace_places

from gemmproof.settings import find_settings

# No test concerns the GPU of this machine, which changes what a wrapper sees without a fake one.
# torch reads it when it first looks for a device; processes of tests inherit it.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# deadline: the machine is shared, time is judged by benchmarks. derandomize, database: a run on
# one commit gives one answer.
settings.register_profile(
    "gemmproof-tests",
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("gemmproof-tests")


LANES = ("default", "full")  # a test without a mark is in the first
DESELECTED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests of both lanes")
    about = f"write what tests got into {FILE} of their room"
    parser.addoption("--accept-texts", action="store_true", help=about)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector):
    """Refuse a wrong lane as an error of collecting its file: that is one line, also with xdist."""
    collected = yield
    for item in collected if isinstance(collected, list) else ():
        if isinstance(item, pytest.Item):
            find_lane(item)
    return collected


def find_lane(item: pytest.Item) -> str:
    """Return the name of the lane that the test, its class or its file is marked for."""
    lanes = sorted({mark.args for mark in item.iter_markers("lane")})
    wrong = next((lane for lane in lanes if lane not in [(name,) for name in LANES]), None)
    if wrong is not None:
        got, expected = ", ".join(map(repr, wrong)) or "nothing", " or ".join(LANES)
        raise pytest.Collector.CollectError(f"{item.name}: lane: got {got}, expected {expected}")
    if len(lanes) > 1:
        got = " and ".join(name for (name,) in lanes)
        raise pytest.Collector.CollectError(f"{item.name}: lane: got {got}, expected one of them")
    return lanes[0][0] if lanes else LANES[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that the installed Triton cannot pass, and those of the other lane."""
    apply = [x for x in items if all(holds(m.args[0]) for m in x.iter_markers("triton"))]
    kept = [x for x in apply if config.option.full or find_lane(x) == LANES[0]]
    config.stash[DESELECTED] = len(apply) - len(kept)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=list(set(items).difference(kept)))
        items[:] = kept


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # of pytest-xdist
    if output is not None:
        output["deselected"] = session.config.stash.get(DESELECTED, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Take the number from a worker of pytest-xdist: each collects all tests."""
    count = getattr(node, "workeroutput", {}).get("deselected", 0)
    node.config.stash[DESELECTED] = max(count, node.config.stash.get(DESELECTED, 0))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Report the deselected tests on the last line: pytest has printed its summary."""
    count = config.stash.get(DESELECTED, 0)
    reporter: TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    if count and reporter is not None and not hasattr(config, "workerinput"):
        tests = "1 test was" if count == 1 else f"{count} tests were"
        reporter.write_line(f"{tests} deselected: ./run test --full runs all")


@pytest.fixture
def texts(request, tmp_path):
    """Compare a text that users see with the entry of that name in texts.toml of the test's room.

    The temporary folder is `<folder>` there, measured seconds are `<seconds>`, and what a test
    gives by name is `<name>`.
    """
    tests = Path(__file__).parent
    path = tests.joinpath(*request.path.relative_to(tests).parts[:-1][:1], FILE)
    command = f"./run test -n 0 --full {shlex.quote(request.node.nodeid)} --accept-texts"

    def check(name: str, actual: str, /, **places: str) -> None:
        __tracebackhide__ = True
        text = replace_places(actual, {"folder": str(tmp_path), **places})
        if request.config.option.accept_texts:
            accept(path, name, text)
        compare(path, name, text, command)

    return check


@pytest.fixture(autouse=True)
def _ends_by_signals(monkeypatch):
    """A command that a test runs in this process leaves signals to pytest, which they end."""
    monkeypatch.setattr("gemmproof.terminal.ENDING", ())


@pytest.fixture(autouse=True)
def _says_nothing_of_progress(monkeypatch):
    """Print no progress: on a busy machine any test may take longer than its interval."""
    monkeypatch.setattr("gemmproof.terminal.EVERY", 3600.0)


@pytest.fixture(autouse=True)
def _is_in_no_job(monkeypatch):
    """Hide the CI job: where GitHub or GitLab run these tests, the tested code is no part of it."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _is_asked_for_a_proof(request, monkeypatch):
    """Commands prove where a test asks for it: most are about something else, and many."""
    if request.node.get_closest_marker("proves") is None:

        def find_them(folder):
            where, table = find_settings(folder)
            return where, {"proof": False, **table}

        monkeypatch.setattr("gemmproof.cli.find_settings", find_them)


@pytest.fixture(autouse=True, name="engine_at_hand")
def _forks_workers_of_one_process(monkeypatch, _is_in_no_job):
    """Share the engine; tests of the workers themselves override this fixture with an empty one."""
    share_engine(monkeypatch)

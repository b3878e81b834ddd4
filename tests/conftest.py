"""Settings of this repository's own tests."""

import os

import pytest
from engine_at_hand import share_engine
from hypothesis import HealthCheck, settings
from triton_versions import holds

# No test is about the GPU of this machine, which changes what a wrapper sees without a fake one.
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


def pytest_collection_modifyitems(config, items):
    """Deselect what the installed Triton does otherwise."""
    apart = [x for x in items if not all(holds(m.args[0]) for m in x.iter_markers("triton"))]
    if apart:
        items[:] = [x for x in items if x not in set(apart)]
        config.hook.pytest_deselected(items=apart)


@pytest.fixture(autouse=True)
def _says_nothing_of_progress(monkeypatch):
    """On a busy machine any test may take as long as it takes until a line is said."""
    monkeypatch.setattr("gemmproof.desk.progress.EVERY", 3600.0)


@pytest.fixture(autouse=True)
def _is_in_no_job(monkeypatch):
    """Where GitHub or GitLab run these tests, what those test is no part of the job."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _is_asked_for_a_proof(request, monkeypatch):
    """Commands prove where a test asks for it: most are about something else, and many."""
    if request.node.get_closest_marker("proves") is None:
        monkeypatch.setattr("gemmproof.options.groups.PROVES", False)


@pytest.fixture(autouse=True, name="engine_at_hand")
def _forks_workers_of_one_process(monkeypatch, _is_in_no_job):
    """What is about the workers themselves has a fixture of this name that does nothing."""
    share_engine(monkeypatch)

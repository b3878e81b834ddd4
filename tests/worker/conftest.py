"""Fixtures for tests of the processes that a command starts, and of those that it leaves."""

import pytest


@pytest.fixture(name="engine_at_hand")
def _starts_workers_as_for_users():
    """Let each command start its own processes."""

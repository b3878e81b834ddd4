"""What a command starts, and what is left of it, is what these tests are about."""

import pytest


@pytest.fixture(name="engine_at_hand")
def _starts_workers_as_for_users():
    """Processes of a command's own."""

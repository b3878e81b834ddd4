"""On a terminal the progress of a command is one line that changes, and is gone at its end."""

import os
import pty
import time

import pytest
from cli_process import finish, start

KERNELS = """
import time

def slow(a, b):
    time.sleep(0.1)
"""


@pytest.mark.parametrize("more", [[], ["--quiet"]])
def test_on_a_terminal_it_is_one_line_that_changes(tmp_path, monkeypatch, more):
    (tmp_path / "my_kernels.py").write_text(KERNELS)
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    words = ["check", "my_kernels.py:slow", "--max-examples", "20", *more]
    process = start(tmp_path, *words, stderr=follower)
    os.close(follower)
    seen, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        try:
            seen += os.read(leader, 1 << 16)
        except OSError:  # nobody holds the other end any more
            break
    code, out, _ = finish(process)
    os.close(leader)
    assert code == 0
    assert "slow: pass: " in out
    if more:
        assert seen == b""
        return
    assert b"slow: loading" in seen
    assert b" of 20 cases, about " in seen
    assert seen.endswith(b"\x1b[2K")  # the line is cleared

"""The command `gemmproof`, as `python -m gemmproof` too: signals end it quietly from the first."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command; its exit code.

    Until it heeds signals itself, which takes what it imports, Ctrl-C ends it as it ends a program
    of C: Python would show where in its imports it was.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gemmproof.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())

"""The command `gemmproof`, also as `python -m gemmproof`: signals end it quietly from the start."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command; return its exit code.

    Until it handles signals itself, after its imports, Ctrl-C ends it as it ends a C program:
    Python would print a traceback of its imports.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gemmproof.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())

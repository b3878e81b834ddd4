"""Build the documentation in build/docs, without a network: `./run docs`.

Exits with 1 for a warning: a dead link, a page outside the navigation, a missing docstring, a
generated page that is not up to date. With --check, also execute or check every code block, compare
every shown output and draw every picture, as CI does (minutes).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = Path("build", "docs")


def main(arguments: list[str]) -> int:
    """Build the site, check it if that was requested, and return the exit status."""
    parser = argparse.ArgumentParser(prog="./run docs", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="also execute or check every code block and picture"
    )
    options = parser.parse_args(arguments)
    # -W: a warning fails the build; -E: every page is read again
    build = ["sphinx", "-W", "--keep-going", "-E", "-j", "auto", "docs", str(SITE)]
    commands = [build]
    if options.check:
        workers = os.environ.get("GEMMPROOF_WORKERS", "2")
        commands.append(
            ["pytest", "-q", "-n", workers, "--dist", "worksteal", "--full", "tests/docs"]
        )
    codes = [subprocess.call([sys.executable, "-m", *c], cwd=ROOT) for c in commands]
    if not any(codes):
        print(f"open {SITE / 'index.html'}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Rewrite the outputs that a page shows by what its commands print now.

    python scripts/show_output.py docs/four-tutorials.md tests/tutorials

Each block that follows a line `<!-- output: gemmproof ... -->` is replaced; the commands run in the
folder given. `--check` writes nothing and exits 1 where a block, times apart, is another.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

OUTPUT = re.compile(r"(^<!-- output: (.+?) -->\n```\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


def printed(command: str, folder: Path) -> str:
    """What `gemmproof ...` prints when it is called in `folder`."""
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=False).stdout


def without_times(text: str) -> str:
    """The text with every number of seconds taken out."""
    return re.sub(r"\d+\.\d+ s\b", "... s", text).strip()


def rewritten(page: str, folder: Path) -> str:
    """The page with every shown output replaced by the present one."""
    return OUTPUT.sub(lambda m: f"{m[1]}{printed(m[2], folder).strip(chr(10))}\n{m[4]}", page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    now = rewritten(page, options.folder.resolve())
    if options.check:
        same = without_times(now) == without_times(page)
        print(f"{options.page}: {'as printed' if same else 'got other output, expected the shown'}")
        return int(not same)
    options.page.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

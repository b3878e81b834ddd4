"""The outputs of commands that a page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from scripts.markdown import settle

OUTPUT = re.compile(r"(^<!-- output: (.+?) -->\n```\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


def show_outputs(page: Path, folder: Path, check: bool, out: Path | None) -> int:
    """Rewrite the outputs that PAGE shows to what its commands print now.

    Each block that follows a line `<!-- output: gemmproof ... -->` is replaced; the commands run in
    FOLDER.
    """
    text = page.read_text(encoding="utf-8")
    return settle(page, replace_outputs(text, folder.resolve()), check, out)


def replace_outputs(text: str, folder: Path) -> str:
    """A page's text with every shown output replaced by the present one."""
    return OUTPUT.sub(lambda m: f"{m[1]}{run_command(m[2], folder).strip(chr(10))}\n{m[4]}", text)


def run_command(command: str, folder: Path) -> str:
    """What `gemmproof ...` prints when it is called in `folder`."""
    words = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, text=True, check=False).stdout

"""This repository's kernels, signed off: what `gemmproof signoff --markdown` writes, as a page."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.docs.markdown import fill, update

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sign-off.md"
MUTATION = ROOT / "docs" / "evidence" / "mutation.json"


def make_page(
    kernels: str = "",
    examples: int = 100,
    markdown: Path | None = None,
    check: bool = False,
    out: Path | None = None,
) -> int:
    """Sign off the kernels of conftest.py by --examples cases, and make the table of the page.

    Or some --kernels "NAME NAME", or from the --markdown that a sign-off on another machine wrote.
    Exits with the code of the sign-off where that is not 0.
    """
    text, code = (markdown.read_text(encoding="utf-8"), 0) if markdown else _sign(kernels, examples)
    if not text:
        return code
    return update(PAGE, fill(PAGE, {"sign-off": trim(text)}), check, out) or code


def _sign(kernels: str, examples: int) -> tuple[str, int]:
    """Run the command; return what it writes ("" if nothing) and its exit code."""
    options = [word for name in kernels.split() for word in ("--kernel", name)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sign-off.md")
        command = [sys.executable, "-m", "gemmproof", "signoff", *options]
        command += ["--drift", "--max-examples", str(examples), "--markdown", str(file)]
        command += ["--mutation", str(MUTATION.relative_to(ROOT))]  # named on the page
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        return file.read_text(encoding="utf-8") if file.is_file() else "", code


def trim(text: str) -> str:
    """The comment without its hash, which is that of a JSON report that nobody keeps."""
    head, _, last = text.strip().rpartition("\n")
    return head.strip() if last.startswith("`sha256:") else text.strip()

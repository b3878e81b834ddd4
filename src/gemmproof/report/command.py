"""A command as a line that can be pasted into a shell, and printed anywhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from gemmproof.report.text import is_moving

_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "'": r"\'", "\\": r"\\"}


def write_command(words: Iterable[str]) -> str:
    """The words, quoted for a shell.

    A word with control characters, or with bytes that are no text (as Python decodes them from file
    names), is written as $'...' with their codes, which bash, zsh and ksh take.
    """
    return " ".join(_quote(word) for word in words)


def _quote(word: str) -> str:
    if not any(map(is_moving, word)):
        return shlex.quote(word)
    return f"$'{''.join(map(_escape, word))}'"


def _escape(c: str) -> str:
    if c in _SHORT:
        return _SHORT[c]
    if not is_moving(c):
        return c
    is_byte = "\udc80" <= c <= "\udcff"
    # three octal digits never run into what follows
    codes = c.encode(errors="surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\{code:03o}" for code in codes)

"""Suggestions for a misspelled word, and command lines as a shell reads them."""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gemmproof.reference.formats import FORMATS
from gemmproof.report.text import is_moving


# -- spelling ------------------------------------------------------------------------------------
def find_format(text: str) -> str:
    """Our name of a format that is spelled as torch, numpy, Triton or TTIR do; else the text."""
    return _SPELLINGS.get(_plain(text.rpartition(".")[2]), text)


def _plain(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "")


_SPELLINGS = {
    _plain(word): fmt.name
    for fmt in tuple(FORMATS.values())[::-1]  # of those that share a word the first one has it
    for word in (fmt.dtype, fmt.ttir, fmt.ptx, *fmt.spelled)
    if word
} | {_plain(name): name for name in FORMATS}


def suggest(word: str, names: Collection[str]) -> str:
    """What to add to a message on a name that is not there: "; did you mean 'x'?", or nothing."""
    longer = [name for name in names if len(word) > 2 and name.startswith(word)]
    close = longer[:1] or difflib.get_close_matches(word, names, n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else ""


def require_one(text: str, names: Collection[str]) -> str:
    """The text, one of the names. Raises ValueError, in one line, with the nearest one."""
    if text not in names:
        known = " ".join(names)
        raise ValueError(f"got {text!r}, expected one of: {known}{suggest(text, names)}")
    return text


@dataclass(frozen=True, slots=True)
class NamesOnly:
    """An option's type: one of the names. If `formats`, however they are spelled."""

    names: tuple[str, ...]
    formats: bool = False

    def __call__(self, text: str) -> str:
        if self.formats and (name := find_format(text)) in self.names:
            return name
        try:
            return require_one(text, self.names)
        except ValueError as mistake:
            raise argparse.ArgumentTypeError(str(mistake)) from None


def one_of(*names: str) -> NamesOnly:
    """An option's type: one of the names."""
    return NamesOnly(names)


def format_of(*names: str) -> NamesOnly:
    """An option's type: one of these formats, however it is spelled."""
    return NamesOnly(names, formats=True)


# -- command lines -------------------------------------------------------------------------------
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

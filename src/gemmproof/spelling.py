"""Suggestions for a misspelled name, and command lines quoted for a shell."""

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
    """Return our name of a format spelled as in torch, numpy, Triton or TTIR; else the text."""
    return _SPELLINGS.get(_plain(text.rpartition(".")[2]), text)


def _plain(text: str) -> str:
    return text.lower().replace("_", "").replace("-", "")


_SPELLINGS = {
    _plain(word): fmt.name
    for fmt in tuple(FORMATS.values())[::-1]  # a shared spelling means the first format
    for word in (fmt.dtype, fmt.ttir, fmt.ptx, *fmt.spelled)
    if word
} | {_plain(name): name for name in FORMATS}


def suggest(word: str, names: Collection[str]) -> str:
    """Return an addition to a message on an unknown name: "; did you mean 'x'?", or ""."""
    longer = [name for name in names if len(word) > 2 and name.startswith(word)]
    close = longer[:1] or difflib.get_close_matches(word, names, n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else ""


def require_one(text: str, names: Collection[str]) -> str:
    """Return the text, one of the names. Raises ValueError, in one line, with the nearest."""
    if text not in names:
        known = " ".join(names)
        raise ValueError(f"got {text!r}, expected one of: {known}{suggest(text, names)}")
    return text


@dataclass(frozen=True, slots=True)
class NamesOnly:
    """An option's type: one of the names; with `formats`, in any spelling."""

    names: tuple[str, ...]
    formats: bool = False

    def __call__(self, text: str) -> str:
        if self.formats and (name := find_format(text)) in self.names:
            return name
        try:
            return require_one(text, self.names)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None


def one_of(*names: str) -> NamesOnly:
    """Return an option's type: one of the names."""
    return NamesOnly(names)


def format_of(*names: str) -> NamesOnly:
    """Return an option's type: one of these formats, in any spelling."""
    return NamesOnly(names, formats=True)


# -- command lines -------------------------------------------------------------------------------
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "'": r"\'", "\\": r"\\"}


def write_command(arguments: Iterable[str]) -> str:
    """Return the arguments, quoted for a shell.

    An argument with control characters, or with bytes that are no text (as Python decodes them from
    file names), is written as $'...' with their codes, which bash, zsh and ksh accept.
    """
    return " ".join(_quote(word) for word in arguments)


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

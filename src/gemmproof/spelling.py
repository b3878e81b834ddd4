"""Names as people spell them: other projects' words for a format, and slips of the keyboard."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection
from dataclasses import dataclass

from gemmproof.reference.formats import FORMATS


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

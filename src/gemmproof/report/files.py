"""Files that are there whole or not at all, and locks of those that several processes write.

An old report stays in its place until the new one is written.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gemmproof.report.record import Regression, Report
from gemmproof.report.text import Reproduce
from gemmproof.terminal import write_all

Writer = Callable[[Path], object]
STDOUT = "-"  # the name of a report that goes there, in place of the answer


def write_json(place: Path, data: Any, indent: int = 2) -> None:
    """Write one JSON document."""
    place.write_text(json.dumps(data, indent=indent) + "\n", encoding="utf-8")


def write_junit(
    place: Path,
    reports: list[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> None:
    """Write one JUnit document; `reproduce` is looked up by a report's target."""
    from gemmproof.report import junit  # brings what few need

    junit.write_junit(place, reports, reproduce, lost)


def replace_file(name: str, write: Writer) -> str:
    """Have `write` write a file, then put it where `name` says; why that failed, or ""."""
    try:
        if name == STDOUT:
            with TemporaryDirectory() as folder:
                write(Path(folder, "report"))
                return write_all(sys.stdout, Path(folder, "report").read_text(encoding="utf-8"))
        if not _is_replaceable(name):
            write(Path(name))
            return ""
        with _make_room(name) as (place, beside):
            write(beside)
            with suppress(OSError):  # there is no old one, or the file system keeps no modes
                shutil.copymode(place, beside)
            os.replace(beside, place)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def write_whole(place: Path, text: str) -> None:
    """Write a file of ours that is there whole or not at all. Raises OSError."""
    with _make_room(str(place)) as (found, beside):
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, found)


@contextmanager
def lock_file(path: Path, patience: float = math.inf) -> Iterator[bool]:
    """Whether this process has the lock of a file, for which it waits so many seconds.

    Whoever has it loses it when it dies. Raises OSError where there can be no such file.
    """
    until = time.monotonic() + patience
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if patience < math.inf else 0))
            except BlockingIOError:
                if time.monotonic() >= until:
                    yield False
                    return
                time.sleep(0.02)
            else:
                yield True
                return


def write_early(name: str | None, write: Writer) -> None:
    """Have a report replaced while the run goes on, where its place is a file that keeps it.

    What cannot be written is told at the end, when it is written again.
    """
    if name and name != STDOUT and _is_replaceable(name):
        replace_file(name, write)


def find_obstacle(name: str) -> str:
    """Why no report could be written there, or ""; all is left as it was."""
    if name == STDOUT:
        return ""
    try:
        if not _is_replaceable(name):
            return "" if os.access(name, os.W_OK) else "Permission denied"
        with _make_room(name) as (place, beside):
            if place.exists():
                if os.path.samestat(place.stat(), os.fstat(1)):
                    return "the answer is printed there"
                place.open("a").close()  # what its owner protects is not replaced either
            beside.touch()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _is_replaceable(name: str) -> bool:
    """Whether it is a file, a folder (which says so itself) or nothing yet.

    A device or a pipe has nothing to lose, and no other file could take its place.
    """
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


@contextmanager
def _make_room(name: str) -> Iterator[tuple[Path, Path]]:
    """The place that a name leads to (a link stays one), and a new one in the same folder.

    Renaming is one step within a folder only: from another one it may be a copy.
    """
    place = Path(os.path.realpath(name))
    beside = place.with_name(f".gemmproof-{secrets.token_hex(8)}.tmp")
    try:
        yield place, beside
    finally:
        beside.unlink(missing_ok=True)

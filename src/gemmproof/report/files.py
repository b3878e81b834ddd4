"""Files that are written whole or not at all, and locks of files that several processes write.

An old report stays until the new one is written.
"""

from __future__ import annotations

import fcntl
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
from typing import Any, TypeVar

from gemmproof.properties.codec import dump, parse
from gemmproof.report.record import Regression, Report
from gemmproof.report.text import Reproduce
from gemmproof.terminal import write_all

T = TypeVar("T")
Writer = Callable[[Path], object]
STDOUT = "-"  # the name of a report that goes to stdout, in place of the answer


def write_json(path: Path, data: Any, indent: int = 2) -> None:
    """Write a record, or plain data, as one JSON document."""
    path.write_text(dump(data, indent) + "\n", encoding="utf-8")


def read_record(kind: type[T], name: str, expected: str) -> T:
    """Return the record in a JSON file. Raises ValueError, in one line, if it is none."""
    try:
        return parse(kind, Path(name).read_text(encoding="utf-8"), "")
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = " ".join(str(error).split()).lstrip(".: ")  # the path begins at the file
    raise ValueError(f"got {name!r} ({reason}), expected {expected}")


def write_junit(
    path: Path,
    reports: list[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> None:
    """Write one JUnit document; `reproduce` is looked up by a report's target."""
    from gemmproof.report import junit  # a heavy import that few runs need

    junit.write_junit(path, reports, reproduce, lost)


def replace_file(name: str, write: Writer) -> str:
    """Have `write` write a file, then rename it to `name`; return why it failed, or ""."""
    try:
        if name == STDOUT:
            with TemporaryDirectory() as folder:
                write(Path(folder, "report"))
                return write_all(sys.stdout, Path(folder, "report").read_text(encoding="utf-8"))
        if not _is_replaceable(name):
            write(Path(name))
            return ""
        with _make_room(name) as (path, beside):
            write(beside)
            with suppress(OSError):  # there is no old one, or the file system has no modes
                shutil.copymode(path, beside)
            os.replace(beside, path)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def write_whole(path: Path, text: str) -> None:
    """Write a file of ours whole or not at all. Raises OSError."""
    with _make_room(str(path)) as (target, beside):
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, target)


@contextmanager
def lock_file(path: Path, patience: float = math.inf) -> Iterator[bool]:
    """Yield whether this process got the lock of a file within `patience` seconds.

    A process loses the lock when it dies. Raises OSError if the file cannot be created.
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
    """Replace a report while the run goes on, if it is a regular file.

    A failure is reported at the end, when it is written again.
    """
    if name and name != STDOUT and _is_replaceable(name):
        replace_file(name, write)


def find_obstacle(name: str) -> str:
    """Return why no report could be written there, or ""; nothing is changed."""
    if name == STDOUT:
        return ""
    try:
        if not _is_replaceable(name):
            return "" if os.access(name, os.W_OK) else "Permission denied"
        with _make_room(name) as (path, beside):
            if path.exists():
                if os.path.samestat(path.stat(), os.fstat(1)):
                    return "the answer is printed there"
                path.open("a").close()  # a write-protected file is not replaced either
            beside.touch()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _is_replaceable(name: str) -> bool:
    """Return whether the path is a file, a folder (writing to which fails) or nothing yet.

    A device or a pipe has nothing to lose, and a file must not replace it.
    """
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


@contextmanager
def _make_room(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield the path that a name leads to (a link stays one), and a new one in the same folder.

    Renaming is atomic only within a folder: from another one it may be a copy.
    """
    path = Path(os.path.realpath(name))
    beside = path.with_name(f".gemmproof-{secrets.token_hex(8)}.tmp")
    try:
        yield path, beside
    finally:
        beside.unlink(missing_ok=True)

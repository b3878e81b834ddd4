"""A target that is judged again whenever a file of it changes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from gemmproof.desk.sources import list_sources
from gemmproof.reference.provenance import say_count
from gemmproof.streams import say, write_all
from gemmproof.target import Target, display_path
from gemmproof.worker import supervisor

# milliseconds that changes are gathered for; between two looks at the files themselves, for those
# that the system says nothing of
GATHER, LOOK = 100, 500
CLEAR = "\x1b[2J\x1b[H"

Answer = Callable[[], int]


def explain_no_watch() -> str | None:
    """One line on why nothing can be watched here, None where it can."""
    if util.find_spec("watchfiles") is None:
        return "--watch: got no watchfiles, expected it: pip install 'gemmproof[watch]'"
    return None


def keep_judging(target: Target, judge: Callable[[], Answer], quiet: bool) -> str:
    """Judge, answer, and again after each change; why the files can be watched no more.

    A change during a judgement ends that: nothing is said of what is no more. It goes on until it
    is interrupted.
    """
    files: set[Path] = set()
    try:
        while True:
            found, whole = list_sources(target)
            files = found if whole else files | found  # what a broken file imported before
            supervisor.resume()
            with _watch(files) as seen:
                answer = judge()
                if not seen.any:
                    if sys.stdout.isatty():
                        write_all(sys.stdout, CLEAR)
                    answer()
                    there = sum(path.is_file() for path in files)
                    if not quiet:
                        say(f"watching {say_count(there, 'file')}; Ctrl-C ends it")
                seen.wait()
            if seen.why:
                return seen.why
            if not quiet:
                say(f"{', '.join(sorted(seen.names))} changed")
    finally:
        supervisor.resume()


class _Seen:
    """What was seen to change: `names` of files, or `why` nothing can be seen any more."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.why = ""
        self._event = threading.Event()

    @property
    def any(self) -> bool:
        return self._event.is_set()

    def wait(self) -> None:
        self._event.wait()

    def note(self, names: Collection[str], why: str = "") -> None:
        self.names.update(names)
        self.why = self.why or why
        self._event.set()
        supervisor.halt()


@contextmanager
def _watch(files: set[Path]) -> Iterator[_Seen]:
    """Within it changes of the files are seen; the first one ends the workers."""
    from watchfiles import watch

    seen, end = _Seen(), threading.Event()
    before = _look_at(files)
    paths = {str(path) for path in files}
    folders = {str(path.parent) for path in files if path.parent.is_dir()}

    def follow() -> None:
        try:
            for changes in watch(
                *folders,
                watch_filter=lambda _, path: path in paths,
                debounce=GATHER,
                stop_event=end,
                rust_timeout=LOOK,
                yield_on_timeout=True,
                recursive=False,  # other files of these folders may be many
            ):
                changed = {path for _, path in changes}
                # a file system may tell nothing, and a change may come before the watch begins
                now = _look_at(files)
                changed |= {str(path) for path in files if now[path] != before[path]}
                if changed:
                    return seen.note({display_path(path) for path in changed})
        except Exception as error:  # too many watches, a folder that is gone
            seen.note((), f"got {error}, expected files that can be watched")

    watcher = threading.Thread(target=follow, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        end.set()
        watcher.join(2.0)


def _look_at(files: set[Path]) -> dict[Path, tuple[int, ...]]:
    """What tells whether a file is another one than before."""
    found: dict[Path, tuple[int, ...]] = {}
    for path in files:
        try:
            facts = os.stat(path)
            found[path] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            found[path] = ()
    return found

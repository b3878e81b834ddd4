"""The files of a target, and a check after each change of them."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from gemmproof.reference.provenance import format_count
from gemmproof.target import Target, display_path, package_of
from gemmproof.terminal import say, write_all
from gemmproof.worker import supervisor

# -- source files --------------------------------------------------------------------------------
MOST = 1000  # files


def list_sources(target: Target) -> tuple[set[Path], bool]:
    """Return the files, with those that an import did not find; and whether all could be read.

    Installed packages and Python's own modules are excluded.
    """
    roots, first = _find_roots(target), _find_files(target)
    todo = [path for path in first if path.is_file()]
    sources, whole = set(first), todo == first
    while todo and len(sources) < MOST:
        path = todo.pop()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on escapes in strings
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            whole = False
            continue
        for name in _list_modules(tree, path):
            for other in _resolve(name, roots):
                if other not in sources:
                    sources.add(other)
                    todo += [other] * other.is_file()
    return sources, whole


def _find_roots(target: Target) -> list[Path]:
    """Return the folders that the project's modules are imported from."""
    folders = [Path.cwd()]
    if target.is_file:
        folders.insert(0, package_of(Path(target.path).resolve())[0])
    installed = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    known = [Path(entry or os.getcwd()) for entry in os.environ.get("PYTHONPATH", "").split(":")]
    roots = (path.resolve() for path in (*folders, *known))
    return list(dict.fromkeys(path for path in roots if path not in installed))


def _find_files(target: Target) -> list[Path]:
    if target.is_file:
        return [Path(target.path).resolve()]
    return list(_resolve(target.path, [Path.cwd()]))


def _list_modules(tree: ast.Module, path: Path) -> Iterator[str]:
    """Yield the absolute names of a file's imports, at any depth of its code."""
    own = package_of(path)[1].split(".")
    package = own if path.stem == "__init__" else own[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _resolve(name: str, roots: list[Path]) -> Iterator[Path]:
    """Yield the files of a module and its packages; the expected file if there is none."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names:
        return
    for root in roots:
        stems = [root.joinpath(*parts[: i + 1]) for i in range(len(parts))]
        paths = (p for s in stems for p in (s.with_suffix(".py"), s / "__init__.py"))
        if existing := [path for path in paths if path.is_file()]:
            yield from existing
            return
    if "site-packages" not in str(_find_origin(parts[0])):
        yield roots[0] / f"{parts[0]}.py"


def _find_origin(top: str) -> str | None:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    return None if spec is None else (spec.origin or "site-packages")


# -- watching ------------------------------------------------------------------------------------
# milliseconds that changes are gathered for; and between two polls of the files themselves, for
# changes that the system does not report
GATHER, LOOK = 100, 500
CLEAR = "\x1b[2J\x1b[H"

Answer = Callable[[], int]


def explain_no_watch() -> str | None:
    """Return one line on why nothing can be watched here, or None if it can."""
    if util.find_spec("watchfiles") is None:
        return "--watch: needs watchfiles: pip install 'gemmproof[watch]'"
    return None


def keep_judging(target: Target, judge: Callable[[], Answer], quiet: bool) -> str:
    """Judge, answer, and repeat after each change; return why the files can no longer be watched.

    A change during a judgement ends it: its result would be outdated. It goes on until it
    is interrupted.
    """
    files: set[Path] = set()
    try:
        while True:
            sources, whole = list_sources(target)
            files = sources if whole else files | sources  # keep what a broken file imported before
            supervisor.resume()
            with _watch(files) as seen:
                answer = judge()
                if not seen.any:
                    if sys.stdout.isatty():
                        write_all(sys.stdout, CLEAR)
                    answer()
                    there = sum(path.is_file() for path in files)
                    if not quiet:
                        say(f"watching {format_count(there, 'file')}; Ctrl-C to stop")
                seen.wait()
            if seen.why:
                return seen.why
            if not quiet:
                say(f"{', '.join(sorted(seen.names))} changed")
    finally:
        supervisor.resume()


class _Seen:
    """The changes seen: `names` of files, or `why` no more can be seen."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.why = ""
        self._event = threading.Event()

    @property
    def any(self) -> bool:
        return self._event.is_set()

    def wait(self) -> None:
        self._event.wait()

    def note(self, names: Collection[str], reason: str = "") -> None:
        self.names.update(names)
        self.why = self.why or reason
        self._event.set()
        supervisor.halt()


@contextmanager
def _watch(files: set[Path]) -> Iterator[_Seen]:
    """Within this context changes of the files are noted; the first one ends the workers."""
    from watchfiles import watch

    seen, end = _Seen(), threading.Event()
    before = _stat_files(files)
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
                # a file system may report nothing, and a change may come before the watch begins
                now = _stat_files(files)
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


def _stat_files(files: set[Path]) -> dict[Path, tuple[int, ...]]:
    """Return what identifies the version of each file."""
    stamps: dict[Path, tuple[int, ...]] = {}
    for path in files:
        try:
            facts = os.stat(path)
            stamps[path] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            stamps[path] = ()
    return stamps

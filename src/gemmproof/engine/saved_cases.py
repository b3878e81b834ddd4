"""Failing cases saved for the next check."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gemmproof.engine import assemble
from gemmproof.engine.request import SAVED, CheckRequest, SavedTried
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.finding import UNEXPECTED
from gemmproof.reference.formats import OPERANDS
from gemmproof.reference.provenance import format_count
from gemmproof.report.files import lock_file, write_whole
from gemmproof.report.record import Note, Report
from gemmproof.target import KernelRef
from gemmproof.terminal import say
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import Limits

FOLDER = ".gemmproof"
SCHEMA = 1
MOST = 20  # cases of one kernel and format; the oldest are dropped
MOST_BYTES = 1 << 20  # no file of ours is as large
PATIENCE = 5.0  # seconds to wait for another process that writes


@dataclass(frozen=True, slots=True)
class Store:
    """The files of one kernel, one per format: `stem` begins their names, `kernel` is its hash."""

    folder: Path
    stem: str
    kernel: str

    def read(self, formats: Iterable[str]) -> tuple[str, ...]:
        """Return the saved cases, as JSON. A file that is not ours is reported on stderr."""
        return tuple(text for name in formats for text in self._read(name)[:MOST])

    def update(self, dropped: Iterable[str], failing: Iterable[Case]) -> None:
        """Drop some cases and save others, each first among those of its format."""
        gone, new = set(dropped), list(dict.fromkeys(failing))
        formats = {Case.from_json(text).dtype for text in gone} | {case.dtype for case in new}
        if not formats:
            return
        try:
            self._make_folder()
            with lock_file(self.folder / "lock", PATIENCE) as held:
                if not held:
                    raise OSError("another process holds its lock")
                for name in sorted(formats):
                    first = [case.to_json() for case in new if case.dtype == name]
                    others = (text for text in self._read(name) if text not in gone)
                    self._write(name, list(dict.fromkeys([*first, *others]))[:MOST])
        except OSError as error:
            reason = error.strerror or str(error)
            _warn_once(f"{self.folder}: {reason}: no failing case is saved")

    def locate(self, dtype: str) -> Path:
        """Return the file of a format."""
        return self.folder / f"{self.stem}-{dtype}.json"

    def _read(self, dtype: str) -> list[str]:
        path = self.locate(dtype)
        try:
            text = _read_small(path)
            cases = [] if text is None else self._parse(text, dtype)
        except OSError as error:
            _warn_once(f"{path}: got {error.strerror}, expected saved cases; ignored")
            return []
        except (ValueError, TypeError, LookupError, RecursionError) as mistake:
            reason = " ".join(str(mistake).split())[:100]
            _warn_once(f"{path}: got no saved cases of gemmproof ({reason}); ignored")
            return []
        return [case.to_json() for case in cases]

    def _parse(self, text: str, dtype: str) -> list[Case]:
        """Return the cases of a file. Raises ValueError if it is not as we wrote it."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError("another schema")
        digest = data.pop("digest", None)
        if digest != _digest(data) or (data["kernel"], data["format"]) != (self.kernel, dtype):
            raise ValueError("it was edited")
        cases = [Case.from_dict(fields) for fields in data["cases"]]
        if any(case.dtype != dtype for case in cases):
            raise ValueError("cases of another format")
        return cases

    def _write(self, dtype: str, cases: list[str]) -> None:
        path = self.locate(dtype)
        if not cases:
            path.unlink(missing_ok=True)
            return
        dicts = [json.loads(text) for text in cases]
        data = {"schema": SCHEMA, "kernel": self.kernel, "format": dtype, "cases": dicts}
        write_whole(path, json.dumps({**data, "digest": _digest(data)}, indent=1) + "\n")

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / ".gitignore").write_text("# made by gemmproof\n*\n")


def find_store(kept: str | bool | None, request: CheckRequest) -> Store | None:
    """Return the store for failing cases of the requested kernel, or None if none are saved.

    `kept` is False, a folder, or None for the project's own: beside the nearest pyproject.toml or
    conftest.py above the kernel's conftest.py, or above the current folder.
    """
    if kept is False or request.case is not None:
        return None
    kernel = request.kernel
    start = Path(kernel.conftest).resolve().parent if kernel.conftest else Path.cwd()
    project = _find_project(start)
    about = {"name": kernel.name, "gpu": request.gpu}
    if kernel.conftest:
        about["conftest"] = os.path.relpath(os.path.realpath(kernel.conftest), project)
        if kernel.calling.memory_only:  # which would drop cases that fail by their values
            about["calling"] = encode(kernel.calling)
    elif target := kernel.target:
        if target.is_file:
            path = os.path.relpath(os.path.realpath(target.path), project)
            target = replace(target, path=path)
        about |= {"target": encode(target), "calling": encode(kernel.calling)}
    code = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    stem = f"{re.sub(r'[^A-Za-z0-9_]', '_', request.name)[:60]}-{code[:12]}"
    folder = project / FOLDER if kept is None else Path(str(kept))
    return Store(folder, stem, code)


def judge_kept(
    request: CheckRequest,
    limits: Limits,
    store: Store | None,
    listener: Listener = lambda event: None,
) -> tuple[Report, WorkerExit]:
    """Judge as assemble.judge does, with the saved cases tried first; save those that fail."""
    if store is None:
        return assemble.judge(request, limits, listener)
    kept = store.read(list_formats(request.kernel))
    report, worker = assemble.judge(replace(request, saved=kept), limits, listener)
    tried = worker.read_part(SAVED, SavedTried)
    store.update(tried.dropped if tried else (), list_failing(report))
    return report, worker


def list_formats(kernel: KernelRef) -> tuple[str, ...]:
    """Return the formats to judge; all formats if only a conftest.py defines them."""
    if kernel.format:
        return (kernel.format,)
    return kernel.contract.formats if kernel.contract else OPERANDS


def list_failing(report: Report) -> list[Case]:
    """Return the cases of the simulated findings: if those hold, nothing is launched.

    Cases that held and were expected to fail are excluded.
    """
    simulated = (f for f in report.findings if f.backend == "simulator")
    return [finding.case for finding in simulated if finding.fault != UNEXPECTED]


def note_kept(report: Report, worker: WorkerExit) -> Report:
    """Return the report with the number of saved cases tried first."""
    text = format_saved(worker)
    return replace(report, notes=(Note(text), *report.notes)) if text else report


def format_saved(worker: WorkerExit) -> str:
    """Format how many saved cases a worker tried first; "" for none."""
    saved = worker.read_part(SAVED, SavedTried)
    return f"{format_count(saved.tried, 'saved case')} tried first" if saved and saved.tried else ""


def _find_project(start: Path) -> Path:
    for marker in ("pyproject.toml", "conftest.py"):
        for folder in (start, *start.parents):
            if (folder / marker).is_file():
                return folder
    return start


def _digest(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _read_small(path: Path) -> str | None:
    """Return the text of a file, or None if missing. Raises OSError or ValueError, never blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError("it is too large")
    return data.decode()


@cache
def _warn_once(line: str) -> None:
    say(f"gemmproof: {line}")

"""Mutation testing of the project itself: how many faults planted in its sources tests notice."""

from __future__ import annotations

import ast
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from scripts import covering_tests
from scripts.command import run
from scripts.covering_tests import FOLDER

FAULTS = ROOT / "docs" / "evidence" / "faults.json"
SEED, COUNT = 28, 150


def record(out: Path, processes: int = 2, ignore: str = "") -> int:
    """Run every test, and record in the folder OUT which functions each one calls.

    It takes Python 3.12, and the time of `./run test --full`. --ignore excludes a file of tests.
    """
    if sys.version_info < (3, 12):
        print(f"record: got Python {sys.version.split()[0]}, expected 3.12 or newer")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, FOLDER: str(out.resolve()), "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
    command = [sys.executable, "-m", "pytest", "-q", "--full", "-p", "scripts.covering_tests"]
    command += ["-n", str(processes), "--dist", "worksteal"]
    command += ["--ignore", ignore] if ignore else []
    # tests set PYTHONPATH for the processes that they start, which read this file all the same
    start = Path(sysconfig.get_path("purelib")) / "gemmproof_calls.pth"
    file = repr(covering_tests.__file__)
    load = f"exec(open({file}).read(), {{'__file__': {file}, '__name__': 'calls'}})"
    start.write_text(f"import os; {FOLDER!r} in os.environ and {load}\n")
    try:
        subprocess.run(command, cwd=ROOT, env=environment)
    finally:
        start.unlink()
    return 0


def sample(count: int = COUNT, seed: int = SEED) -> int:
    """Choose faults, the same ones for one --seed, and write them to docs/evidence/faults.json."""
    _write(dict.fromkeys(sample_faults(ROOT, count, seed), ""))
    return 0


def attempt(calls: Path, processes: int = 2, missed: bool = False) -> int:
    """Plant each fault of docs/evidence/faults.json, and write to it whether tests notice.

    A fault's tests are those that call the function around it, as CALLS says, the folder that
    `record` wrote: the fastest first, up to a minute of them. --missed tries those again that were
    not noticed.
    """
    if not any(calls.glob("*.tsv")):
        print(f"attempt: got {calls} without *.tsv, expected the folder that `record` wrote")
        return 2
    recorded = Calls(calls)
    gone = recorded.seconds.keys() - list_tests(ROOT)
    if gone:
        print(f"attempt: {calls}: got {min(gone)}, expected tests of today: `record` them again")
        return 2
    statuses = {Fault(**x["fault"]): x["status"] for x in json.loads(FAULTS.read_text())}
    left = [fault for fault, status in statuses.items() if not (missed and status == NOTICED)]
    with tempfile.TemporaryDirectory() as copies:
        for fault, status in try_all(ROOT, left, recorded, Path(copies), processes):
            statuses[fault] = status
            _write(statuses)
            if status != NOTICED:
                print(f"{status}: {fault}", flush=True)
    planted = Counter(fault.path.partition("/")[0] for fault, x in statuses.items() if x != GONE)
    noticed = Counter(fault.path.partition("/")[0] for fault, x in statuses.items() if x == NOTICED)
    print("| faults in | planted | noticed |\n|---|---|---|")
    for folder in FOLDERS:
        print(f"| `{folder}/` | {planted[folder]} | {noticed[folder]} |")
    return 0


def _write(statuses: Mapping[Fault, str]) -> None:
    faults = [{"fault": asdict(fault), "status": status} for fault, status in statuses.items()]
    FAULTS.write_text(json.dumps(faults, indent=1, ensure_ascii=False) + "\n")


# -- faults: an operator, a number, a condition, a result ------------------------------------------
Offset = Callable[[int, int], int]  # of a line and a column of bytes, in characters
FOLDERS = ("reference", "properties", "src")
OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Fault:
    """A fault by its text, so that it is the same one after lines above it have changed.

    In a file and a function of that qualified name ("" for none), the `nth` time that `old` stands
    for such a fault in a line of that text, it becomes `new`.
    """

    path: str
    function: str
    line: str
    old: str
    new: str
    nth: int

    def __str__(self) -> str:
        return f"{self.path}: {self.function}: {self.line}: `{self.old}` -> `{self.new}`"


class Span(NamedTuple):
    """The characters of a file that a fault replaces."""

    start: int
    end: int


def sample_faults(root: Path, count: int, seed: int) -> list[Fault]:
    """Return `count` faults of the sources below `root`, the same ones for one seed."""
    faults = [fault for path in _list_files(root) for fault in find_faults(root / path, path)]
    return sorted(random.Random(seed).sample(faults, count))


def plant(root: Path, fault: Fault) -> str | None:
    """Return the source of the file with the fault, or None if its line is gone."""
    file = root / fault.path
    span = find_faults(file, fault.path).get(fault) if file.exists() else None
    if span is None:
        return None
    source = file.read_text()
    return source[: span.start] + fault.new + source[span.end :]


def _list_files(root: Path) -> list[str]:
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*.py")]
    own = [file for file in files if not any(x.is_symlink() for x in file.parents)]
    return sorted(str(file.relative_to(root)) for file in own)


def find_faults(file: Path, path: str) -> dict[Fault, Span]:
    """Return every fault that can be planted in one file, which is called `path`."""
    source = file.read_text()
    lines, data = source.splitlines(keepends=True), source.encode()
    ends = list(itertools.accumulate((len(line.encode()) for line in lines), initial=0))

    def offset(line: int, column: int) -> int:
        return len(data[: ends[line - 1] + column].decode())

    faults: dict[Fault, Span] = {}
    for node, function in _walk(ast.parse(source), ()):
        for first, last, new in _changes(node, source, offset):
            line = lines[source.count("\n", 0, first)].strip()
            named = (path, ".".join(function), line, source[first:last], new)
            numbered = (Fault(*named, nth) for nth in itertools.count())
            faults[next(fault for fault in numbered if fault not in faults)] = Span(first, last)
    return faults


def _walk(node: ast.AST, function: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yield the evaluated nodes, each with the names of its enclosing definitions."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else (value,):
            if not isinstance(child, ast.AST) or _is_text(child):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = (*function, child.name)
            yield child, inside
            yield from _walk(child, inside)


def _is_text(node: ast.AST) -> bool:
    """Return True for docstrings, f-strings and imports for annotations: no test is about those."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_for_types or isinstance(node, ast.JoinedStr)


def _changes(node: ast.AST, source: str, offset: Offset) -> Iterator[tuple[int, int, str]]:
    """Yield the faults of a node, each as the characters that it replaces and its text."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _swap(node.left, node.ops[0], node.comparators[0], source, offset)
    elif isinstance(node, ast.BinOp):
        yield from _swap(node.left, node.op, node.right, source, offset)
    elif isinstance(node, ast.BoolOp):
        yield from _swap(node.values[0], node.op, node.values[1], source, offset)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        text = str(not node.value) if type(node.value) is bool else str(node.value + 1)
        yield (*_span_of(node, offset), text)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        first, last = _span_of(node.test, offset)
        yield first, last, f"not ({source[first:last]})"
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield (*_span_of(node.value, offset), "None")
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield (*_span_of(node, offset), "None")


def _swap(
    left: ast.expr, op: ast.AST, right: ast.expr, source: str, offset: Offset
) -> Iterator[tuple[int, int, str]]:
    if type(op) not in OPERATORS:
        return
    old, new = OPERATORS[type(op)]
    first, last = _span_of(left, offset)[1], _span_of(right, offset)[0]
    at = source.find(old, first, last)
    if at >= 0:
        yield at, at + len(old), new


def _span_of(node: ast.expr | ast.Expr, offset: Offset) -> tuple[int, int]:
    last = offset(node.end_lineno or 0, node.end_col_offset or 0)
    return offset(node.lineno, node.col_offset), last


# -- the tests of a fault, run on a copy of the repository -----------------------------------------
SECONDS = 60.0  # CPU seconds of the tests that are picked for a fault, when they were recorded
LATE = 600  # seconds after which a fault that makes tests hang is noticed
NOTICED, MISSED, NEVER_CALLED, GONE = "noticed", "missed", "never called", "gone"


class Calls:
    """The functions that each test calls, as recorded by covering_tests.py."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.tests: dict[str, set[str]] = defaultdict(set)
        failed: set[str] = set()
        for file in sorted(folder.glob("*.tsv")):
            for line in file.read_text().splitlines():
                test, seconds, *calls = line.split("\t")
                if seconds == "failed":
                    failed.add(test)
                elif seconds:
                    self.seconds[test] = float(seconds)
                for call in calls:
                    self.tests[call].add(test)
        for test in failed:
            self.seconds.pop(test, None)

    def pick(self, fault: Fault) -> list[str]:
        """Return the tests that call the function around a fault, the fastest first.

        Where none calls it, or the fault is outside of functions: those that call the file.
        """
        call = f"{fault.path}:{fault.function}"
        own = [name for name in self.tests if name.startswith(f"{fault.path}:")]
        calls = [call] if call in self.tests else own
        tests = {test for call in calls for test in self.tests[call]} & self.seconds.keys()
        picked, spent = [], 0.0
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            spent += self.seconds[test]
            if spent > SECONDS and picked:
                break
            picked.append(test)
        return picked


def list_tests(root: Path) -> set[str]:
    """Return the tests of both lanes, as pytest names them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--full"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    process = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    return set(process.stdout.splitlines())


def try_all(
    root: Path, faults: Iterable[Fault], calls: Calls, copies: Path, processes: int
) -> Iterator[tuple[Fault, str]]:
    """Yield the test outcome of each fault; each process has a copy of the repository."""
    free: SimpleQueue[Path] = SimpleQueue()
    for number in range(processes):
        free.put(_copy(root, copies / str(number)))

    def attempt(fault: Fault) -> tuple[Fault, str]:
        copy = free.get()
        try:
            return fault, _attempt(copy, fault, calls.pick(fault))
        finally:
            free.put(copy)

    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(attempt, faults)


def _copy(root: Path, copy: Path) -> Path:
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=root, text=True)
    for name in filter(None, names.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name, follow_symlinks=False)
    return copy


def _attempt(copy: Path, fault: Fault, tests: list[str]) -> str:
    planted = plant(copy, fault)
    if planted is None:
        return GONE
    if not tests:
        return NEVER_CALLED
    file = copy / fault.path
    source = file.read_text()
    file.write_text(planted)
    listed = copy / "tests.txt"
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--full", "--timeout", "120"]
    # Python identifies compiled files by seconds and size, which a fault need not change
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy / "src")}
    process = subprocess.Popen(
        [*command, "-p", "no:cacheprovider", f"@{listed}"], cwd=copy, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        status = process.wait(LATE)
    except subprocess.TimeoutExpired:
        status = 1
    finally:
        _end_group(process)
        file.write_text(source)
    return NOTICED if status else MISSED


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


COMMANDS = {"record": record, "sample": sample, "attempt": attempt}

if __name__ == "__main__":
    sys.exit(run(__doc__, COMMANDS))

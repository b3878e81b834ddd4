"""The branches that no case of a check took."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import Proofs
from gemmproof.reference.simulation import Where
from gemmproof.reference.simulator.wrapper_lines import Lines

ELSEWHERE = "runs only on another GPU"


def list_unvisited(
    kernel: KernelUnderTest, proofs: Proofs, judged: Mapping[Case, CaseResult], lines: Lines
) -> list[str]:
    """List each side of a branch that no case took and that a call, or another GPU, may take.

    `lines` are those of the user's Python that ran. The proof tells which sizes take which side; of
    what it could not follow only the wrapper's own file is listed: others serve other wrappers too.
    """
    cases = [case for case, result in judged.items() if result.applied]
    own = _find_file(kernel)
    sides = [x for x in proofs.sides if x.is_known or x.text.startswith(f"{Path(own).name}:")]
    if not proofs.is_followed:  # the cases may have taken them on paths that are not known
        both = _list_both_ran(lines)
        sides = [side for side in sides if side.text.partition(" ")[0] not in both]
    unvisited = [side.text for side in sides if not any(map(side.may_take, cases))]
    unvisited += _list_branches(proofs, judged.values(), _asks_for_kind(lines))
    known = {text.partition(" ")[0] for text in unvisited}
    if proofs.is_followed:
        known |= {side.text.partition(" ")[0] for side in proofs.sides}
    has_empty = any(kernel.contract.sizes(x).low == 0 for x in "MNK")
    for side in _list_skipped(lines, has_empty):
        if side.line in known:
            continue
        if side.is_of_device:
            unvisited.append(f"{side.line} {ELSEWHERE}")
        elif side.file == own and (
            side.is_of_host or (side.is_of_operands and not proofs.is_followed)
        ):
            unvisited.append(f"{side.line} was never {str(side.truth).lower()}")
    return list(dict.fromkeys(unvisited))


def _find_file(kernel: KernelUnderTest) -> str:
    """Return the file of a kernel's wrapper, "" if it has none."""
    launch: Any = kernel.launch
    while isinstance(launch, functools.partial):
        launch = launch.func
    code = getattr(inspect.unwrap(launch), "__code__", None)
    return str(getattr(code, "co_filename", ""))


# -- kernels ---------------------------------------------------------------------------------------
def _list_branches(
    proofs: Proofs, judged: Collection[CaseResult], asks_for_kind: bool
) -> Iterator[str]:
    """Yield the lines of kernels at which a side was not visited by any program of any case.

    A side on a path for which the contract has no layouts is another GPU's, if the wrapper asks for
    the kind of GPU.
    """
    visited: dict[tuple[str, int], tuple[Where, list[bool]]] = {}
    for result in judged:
        for where, sides in result.branches.items():
            _, known = visited.setdefault((where.file, where.line), (where, [False] * 3))
            known[:] = [x or y for x, y in zip(known, sides, strict=True)]
    for (file, line), (where, (was_true, was_false, is_loop)) in visited.items():
        for truth, has_run in ((True, was_true), (False, was_false)):
            side = (file, line, truth)
            if has_run:
                continue
            if side not in proofs.ruled_out:
                side_text = f"was never {str(truth).lower()}"
                yield f"{where} {'never ran a turn' if is_loop and truth else side_text}"
            elif asks_for_kind and side in proofs.not_laid_out:
                yield f"{where} {ELSEWHERE}"


# -- lines of wrappers -----------------------------------------------------------------------------
# attributes and functions that ask for the device, and for the sizes, views or elements of tensors
DEVICE = {
    *("get_device_capability", "get_device_properties", "get_device_name", "multi_processor_count"),
    *("get_current_target", "get_arch_list", "major", "capability", "gcnArchName"),
}
# the same without the number of multiprocessors, and with the kind of GPU
KIND = DEVICE - {"get_device_properties", "multi_processor_count"}
ELEMENTS = {
    *("any", "all", "item", "tolist", "amax", "amin", "nonzero", "count_nonzero", "equal"),
}
OPERANDS = ELEMENTS | {
    *("shape", "size", "stride", "numel", "data_ptr", "storage_offset", "is_contiguous"),
}
# functions and attributes that ask for the time, the machine, the process or a random number
HOST = {
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now"),
    *("utcnow", "today", "localtime", "gmtime", "process_time", "getloadavg", "uptime"),
    *("gethostname", "getfqdn", "uname", "node", "getuser", "getlogin", "getuid", "getpid"),
    *("active_count", "random", "randint", "flags", "getrlimit", "getrusage"),
}
# methods that change the list, dictionary or set that they are called on
_CHANGES = {
    *("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "popleft"),
    *("appendleft", "remove", "discard"),
}


def _asks_for_kind(lines: Lines) -> bool:
    """Return whether a function that ran asks for the kind of GPU."""
    return any({*code.co_names} & KIND for code in lines)


@dataclass(frozen=True, slots=True)
class SkippedSide:
    """A side of an `if` of a wrapper that did not run, although the line of its condition did."""

    line: str
    file: str
    truth: bool
    is_of_device: bool
    is_of_operands: bool
    is_of_host: bool  # it asks the host, or for what earlier calls left in the module


def _list_skipped(lines: Lines, has_empty: bool) -> Iterator[SkippedSide]:
    """Yield the sides that did not run; `has_empty`: an operand may be empty."""
    functions = _list_functions(lines)
    devices = _list_devices(functions)
    kept = {file: _list_kept(_read(file)) for file in {file for file, _, _ in functions}}
    for file, own, node in functions:
        for statement, following in _list_ifs(node.body):
            if statement.test.lineno not in own:
                continue
            behind = _list_behind(statement.test, node)
            named = set[str]().union(*map(_names, behind))
            asked = set[str]().union(*map(_attributes, behind))
            # elements that are compared with 0 tell nothing of their number
            asks_for_empty = not named & ELEMENTS and _asks_for_empty(statement.test)
            is_empty = not has_empty and asks_for_empty
            for truth, body in ((True, statement.body), (False, statement.orelse or following)):
                if body and not _has_run(body, own) and not _is_harmless(body):
                    line = f"{Path(file).name}:{statement.lineno}"
                    is_of_operands = bool(named & OPERANDS) and not is_empty
                    is_of_host = bool(asked & HOST or named & kept[file])
                    yield SkippedSide(
                        line, file, truth, bool(named & devices), is_of_operands, is_of_host
                    )


def _list_kept(module: ast.Module) -> set[str]:
    """Return the names of a module that its functions change: what one call leaves for the next."""
    own = {name for statement in module.body for name in _list_stored(statement)}
    kept = set[str]()
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Global(names=names):
                    kept |= {*names}
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)):
                    kept |= {name} if attr in _CHANGES else set()
                case (
                    ast.Subscript(value=ast.Name(id=name), ctx=ast.Store())
                    | ast.Attribute(value=ast.Name(id=name), ctx=ast.Store())
                ):
                    kept.add(name)
    return kept & own


def _list_stored(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module binds, without those within a function."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _list_both_ran(lines: Lines) -> set[str]:
    """Return the lines of conditions of which both sides ran: one condition beside the device's."""
    both: set[str] = set()
    functions = _list_functions(lines)
    devices = _list_devices(functions)
    for file, own, node in functions:
        for statement, following in _list_ifs(node.body):
            test, other = statement.test, statement.orelse or following
            parts = test.values if isinstance(test, ast.BoolOp) else [test]
            named = [set[str]().union(*map(_names, _list_behind(x, node))) for x in parts]
            is_one = sum(not names & devices for names in named) == 1
            if is_one and other and _has_run(statement.body, own) and _has_run(other, own):
                last = test.end_lineno or test.lineno
                both |= {f"{Path(file).name}:{n}" for n in range(test.lineno, last + 1)}
    return both


def _list_functions(lines: Lines) -> list[tuple[str, set[int], ast.FunctionDef]]:
    """List the functions that ran: the file of each, the lines that ran, and the definition."""
    functions: list[tuple[str, set[int], ast.FunctionDef]] = []
    for file in dict.fromkeys(code.co_filename for code in lines):
        ran: dict[int, set[int]] = {}
        for code, own in lines.items():
            if code.co_filename == file:
                ran.setdefault(code.co_firstlineno, set()).update(own)
        for node in ast.walk(_read(file)):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
                if first in ran:
                    functions.append((file, ran[first], node))
    return functions


def _list_devices(functions: Sequence[tuple[str, set[int], ast.FunctionDef]]) -> set[str]:
    """Return the names that ask for the device, those of functions that do included."""
    return DEVICE | {node.name for _, _, node in functions if _names(node) & DEVICE}


def _read(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.Module([], [])


def _list_ifs(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.If, Sequence[ast.stmt]]]:
    """Yield each `if`, with what follows it if its body leaves the function."""
    for position, statement in enumerate(body):
        if isinstance(statement, ast.If):
            leaves = isinstance(statement.body[-1], ast.Return)
            yield statement, body[position + 1 :] if leaves else ()
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _list_ifs(getattr(statement, name, ()))


# functions that tell the user something, and methods that bound what a cache keeps
HARMLESS = {
    *("print", "warn", "warning", "warn_once", "warning_once", "info", "debug", "error", "log"),
    *("clear", "pop", "popitem", "popleft", "cache_clear"),
}


def _is_harmless(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements raise in the end, or only warn, log, print or empty a cache."""
    calls = [x.value for x in body if isinstance(x, ast.Expr) and isinstance(x.value, ast.Call)]
    names = [getattr(x.func, "attr", getattr(x.func, "id", "")) for x in calls]
    harmless = [name for name in names if name in HARMLESS]
    return isinstance(body[-1], ast.Raise) or len(harmless) == len(body)


def _has_run(body: Sequence[ast.stmt], lines: set[int]) -> bool:
    return any(body[0].lineno <= n <= (body[0].end_lineno or 0) for n in lines)


def _names(node: ast.AST) -> set[str]:
    """Return the names and attributes within a node."""
    nodes = list(ast.walk(node))
    names = {x.id for x in nodes if isinstance(x, ast.Name)}
    return names | {x.attr for x in nodes if isinstance(x, ast.Attribute)}


def _attributes(node: ast.AST) -> set[str]:
    """Return the attributes within a node, and the functions that it calls by name."""
    nodes = list(ast.walk(node))
    called = {x.func.id for x in nodes if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)}
    return called | {x.attr for x in nodes if isinstance(x, ast.Attribute)}


def _list_behind(test: ast.expr, function: ast.FunctionDef) -> list[ast.expr]:
    """Return a condition, and the expressions that its variables were assigned from."""
    behind, names, waiting = list[ast.expr](), set[str](), [test]
    assigned = [x for x in ast.walk(function) if isinstance(x, ast.Assign | ast.AnnAssign)]
    while waiting:
        behind.append(waiting.pop())
        new = _names(behind[-1]) - names
        names |= new
        for statement in assigned:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            stored = {x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)}
            if statement.value is not None and stored & new:
                waiting.append(statement.value)
    return behind


def _asks_for_empty(test: ast.expr) -> bool:
    """Return whether a condition compares with 0, or asks whether there are elements."""
    nodes = list(ast.walk(test))
    bare = [test, *(x.operand for x in nodes if isinstance(x, ast.UnaryOp))]
    compared = [x for x in nodes if isinstance(x, ast.Compare)]
    sides = [side for x in compared for side in (x.left, *x.comparators)]
    zeros = [x for x in sides if isinstance(x, ast.Constant) and x.value == 0]
    return bool(zeros) or any(isinstance(x, ast.Call) and "numel" in _names(x.func) for x in bare)

"""The sides of branches that no case of a check took."""

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


def list_unfollowed(
    kernel: KernelUnderTest, proofs: Proofs, judged: Mapping[Case, CaseResult], lines: Lines
) -> list[str]:
    """List each side of a branch that no case took and that a case, or another GPU, may take.

    `lines` are those of the user's Python that ran. The proof tells which sizes take which side; of
    what it could not follow only the wrapper's own file is listed: others serve other wrappers too.
    """
    cases = [case for case, result in judged.items() if result.applied]
    own = _find_file(kernel)
    sides = [x for x in proofs.sides if x.is_known or x.text.startswith(f"{Path(own).name}:")]
    if not proofs.is_followed:  # the cases may have taken them on paths that are not known
        both = _list_both_ran(lines)
        sides = [side for side in sides if side.text.partition(" ")[0] not in both]
    unfollowed = [side.text for side in sides if not any(map(side.may_take, cases))]
    unfollowed += _list_branches(proofs, judged.values(), _asks_for_kind(lines))
    known = {text.partition(" ")[0] for text in unfollowed}
    if proofs.is_followed:
        known |= {side.text.partition(" ")[0] for side in proofs.sides}
    has_empty = any(kernel.contract.sizes(x).low == 0 for x in "MNK")
    for side in _list_skipped(lines, has_empty):
        if side.line in known:
            continue
        if side.is_of_device:
            unfollowed.append(f"{side.line} {ELSEWHERE}")
        elif side.is_of_operands and side.file == own and not proofs.is_followed:
            unfollowed.append(f"{side.line} was never {str(side.truth).lower()}")
    return list(dict.fromkeys(unfollowed))


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
OPERANDS = {
    *("shape", "size", "stride", "numel", "data_ptr", "storage_offset", "is_contiguous"),
    *("any", "all", "item", "tolist", "amax", "amin", "nonzero", "count_nonzero", "equal"),
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


def _list_skipped(lines: Lines, has_empty: bool) -> Iterator[SkippedSide]:
    """Yield the sides that did not run; `has_empty`: an operand may be empty."""
    functions = _list_functions(lines)
    devices = _list_devices(functions)
    for file, own, node in functions:
        for statement, following in _list_ifs(node.body):
            if statement.test.lineno not in own:
                continue
            named = _names_behind(statement.test, node)
            is_empty = not has_empty and _asks_for_empty(statement.test)
            for truth, body in ((True, statement.body), (False, statement.orelse or following)):
                if body and not _has_run(body, own) and not isinstance(body[-1], ast.Raise):
                    line = f"{Path(file).name}:{statement.lineno}"
                    is_of_operands = bool(named & OPERANDS) and not is_empty
                    yield SkippedSide(line, file, truth, bool(named & devices), is_of_operands)


def _list_both_ran(lines: Lines) -> set[str]:
    """Return the lines of conditions of which both sides ran: one condition beside the device's."""
    both: set[str] = set()
    functions = _list_functions(lines)
    devices = _list_devices(functions)
    for file, own, node in functions:
        for statement, following in _list_ifs(node.body):
            test, other = statement.test, statement.orelse or following
            parts = test.values if isinstance(test, ast.BoolOp) else [test]
            is_one = sum(not _names_behind(x, node) & devices for x in parts) == 1
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


def _has_run(body: Sequence[ast.stmt], lines: set[int]) -> bool:
    return any(body[0].lineno <= n <= (body[0].end_lineno or 0) for n in lines)


def _names(node: ast.AST) -> set[str]:
    """Return the names and attributes within a node."""
    nodes = list(ast.walk(node))
    names = {x.id for x in nodes if isinstance(x, ast.Name)}
    return names | {x.attr for x in nodes if isinstance(x, ast.Attribute)}


def _names_behind(test: ast.expr, function: ast.FunctionDef) -> set[str]:
    """Return the names of a condition, and those that its variables were assigned from."""
    names, waiting = set[str](), [test]
    assigned = [x for x in ast.walk(function) if isinstance(x, ast.Assign | ast.AnnAssign)]
    while waiting:
        new = _names(waiting.pop()) - names
        names |= new
        for statement in assigned:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            stored = {x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)}
            if statement.value is not None and stored & new:
                waiting.append(statement.value)
    return names


def _asks_for_empty(test: ast.expr) -> bool:
    """Return whether a condition compares with 0, or asks whether there are elements."""
    nodes = list(ast.walk(test))
    bare = [test, *(x.operand for x in nodes if isinstance(x, ast.UnaryOp))]
    compared = [x for x in nodes if isinstance(x, ast.Compare)]
    sides = [side for x in compared for side in (x.left, *x.comparators)]
    zeros = [x for x in sides if isinstance(x, ast.Constant) and x.value == 0]
    return bool(zeros) or any(isinstance(x, ast.Call) and "numel" in _names(x.func) for x in bare)

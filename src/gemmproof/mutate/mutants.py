"""The mutants of a kernel, on lines that a check reaches."""

from __future__ import annotations

import ast
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from gemmproof.mutate import operators
from gemmproof.mutate.changed_source import Function, Mutant, SourceFile, make_diff
from gemmproof.mutate.operators import Rule, Surroundings
from gemmproof.mutate.record import Reached
from gemmproof.reference.provenance import owner
from gemmproof.reference.simulation import Run
from gemmproof.reference.simulator.wrapper_lines import trace_calls

# -- generate ------------------------------------------------------------------------------------
OPERATORS: Mapping[str, Rule] = {
    **operators.MASK_RULES,
    **operators.ADDRESS_RULES,
    **operators.LOOP_RULES,
    **operators.NUMBER_RULES,
    **operators.LAUNCH_RULES,
}
# options that tune a launch and change no result
IRRELEVANT = ("num_stages", "num_warps", "num_ctas", "maxnreg", "eviction_policy", "cache_modifier")


def list_mutants(reached: Mapping[str, Reached], shown: Mapping[str, str]) -> list[Mutant]:
    """List every mutant of the files, by path, in the order of lines.

    `shown` has the files' names in messages.
    """
    mutants: list[Mutant] = []
    for path in sorted(reached):
        mutants += _mutate(SourceFile(path), reached[path], shown[path])
    return mutants


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw at most `count` of them, the same for the same seed, in their order."""
    if count >= len(mutants):
        return mutants
    chosen = set(random.Random(f"mutate {seed}").sample(range(len(mutants)), count))
    return [mutant for i, mutant in enumerate(mutants) if i in chosen]


def _mutate(source: SourceFile, reached: Reached, shown: str) -> Iterator[Mutant]:
    """Yield the mutants of one file; a change that two rules make is the first rule's."""
    edits = []
    for node in ast.walk(source.tree):
        scope = _find_scope(node, source, reached)
        if scope is not None:
            edits += [
                (edit, name, scope.compiled)
                for name, rule in OPERATORS.items()
                for edit in rule(node, scope)
            ]
    order = {name: i for i, name in enumerate(OPERATORS)}
    edits.sort(key=lambda key: (key[0].start, key[0].end, order[key[1]], key[0].text))
    seen = {ast.dump(source.tree)}
    for edit, name, compiled in edits:
        text = source.apply(edit)
        try:
            meaning = ast.dump(ast.parse(text))
        except SyntaxError:  # an invalid edit is no mutant
            continue
        if meaning not in seen:
            seen.add(meaning)
            where = "kernel" if compiled else "launch"
            diff = make_diff(source.text, text, shown)
            line = source.line_of(edit.start)
            yield Mutant(source.path, shown, line, name, where, text, diff)


def _find_scope(node: ast.AST, source: SourceFile, reached: Reached) -> Surroundings | None:
    """Return the surroundings of a node that is reached; None if it is not, or is irrelevant."""
    if not isinstance(node, ast.expr | ast.stmt) or isinstance(node, ast.FunctionDef):
        return None
    function = source.enclosing(node, Function.__args__)
    if function is None or _is_outside(node, function, source):
        return None
    lines = _lines_of(node, source)
    compiled = bool(lines & reached.compiled)
    if not compiled and not lines & reached.launching:
        return None
    maker = node if isinstance(node, ast.Lambda) else function
    makes_grid = _first_line(maker) in reached.grids
    assert isinstance(function, Function)
    return Surroundings(source, function, compiled, makes_grid)


def _is_outside(node: ast.AST, function: ast.AST, source: SourceFile) -> bool:
    """Return whether a node is outside a function's body, tunes it, or decides a refusal."""
    inner, above = node, source.parents[node]
    while above is not function:
        if isinstance(above, ast.keyword) and above.arg in IRRELEVANT:
            return True
        if isinstance(above, ast.Assert | ast.Raise) or _refuses(above, inner):
            return True
        inner, above = above, source.parents[above]
    body = function.body if isinstance(function.body, list) else [function.body]  # type: ignore[attr-defined]
    return inner not in body


def _refuses(statement: ast.AST, part: ast.AST) -> bool:
    """Return whether a part of an `if` is the condition of a raise."""
    if not isinstance(statement, ast.If) or part is not statement.test:
        return False
    return any(isinstance(x, ast.Raise) for x in statement.body)


def _lines_of(node: ast.AST, source: SourceFile) -> set[int]:
    """Return the lines that show if a node runs: its statement's, or its own in a compound one."""
    statement = node if isinstance(node, ast.stmt) else source.enclosing(node, ast.stmt)
    compound = ast.For | ast.While | ast.If | ast.With | ast.FunctionDef | ast.Try
    if isinstance(node, compound):
        return {node.lineno}
    owner = node if isinstance(statement, compound) else statement
    assert isinstance(owner, ast.expr | ast.stmt)
    return set(range(owner.lineno, (owner.end_lineno or owner.lineno) + 1))


def _first_line(function: ast.AST) -> int:
    """Return the first line of a function as in its code object, decorators included."""
    assert isinstance(function, Function)
    decorators = getattr(function, "decorator_list", [])
    return min(part.lineno for part in (function, *decorators))


# -- reached lines -------------------------------------------------------------------------------
@dataclass(slots=True)
class Reach:
    """The observed lines: those translated, those run by function, and the callers.

    `launching` are the functions that were running at a launch, `grids` those that Triton, or one
    of them, calls to make a grid.
    """

    compiled: set[tuple[str, int]] = field(default_factory=set)
    ran: dict[CodeType, set[int]] = field(default_factory=lambda: defaultdict(set))
    launching: set[CodeType] = field(default_factory=set)
    grids: set[CodeType] = field(default_factory=set)

    def list_files(self, excluded: str) -> dict[str, Reached]:
        """Return the reached lines by file, without the file that registers kernels."""
        compiled, launching = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
        grids = defaultdict[str, set[int]](set)
        for path, line in self.compiled:
            compiled[os.path.realpath(path)].add(line)
        for code in self.launching | self.grids:
            launching[os.path.realpath(code.co_filename)] |= self.ran[code]
        for code in self.grids:
            grids[os.path.realpath(code.co_filename)].add(code.co_firstlineno)
        files = {*compiled, *launching} - {os.path.realpath(excluded)}
        return {
            path: Reached(*map(frozenset, (compiled[path], launching[path], grids[path])))
            for path in sorted(files)
            if owner(path) == "user" and os.path.isfile(path)
        }


@contextmanager
def watch_kernels(reach: Reach) -> Iterator[None]:
    """Record the lines that Triton's frontend visits, and the functions that run at a launch."""
    from gemmproof.reference.simulator.launch import Kernel
    from gemmproof.reference.triton_hooks import intercept, swap

    launch = Kernel.run

    def note(visit: Any, generator: Any, node: Any) -> Any:
        if hasattr(node, "lineno"):
            reach.compiled.add((generator.file_name, generator.begin_line + node.lineno))
        return visit(generator, node)

    def run(kernel: Any, *args: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if owner(frame.f_code.co_filename) == "user":
                reach.launching.add(frame.f_code)
            frame = frame.f_back
        launch(kernel, *args)

    with intercept(translate=note), swap([(Kernel, "run", run)]):
        yield


def watch_calls(runner: Callable[..., Run], reach: Reach) -> Callable[..., Run]:
    """Return a runner that records every line of the user's code that runs in a call."""

    def run(function: Callable[..., Any], *tensors: Any, **options: Any) -> Run:
        def traced(*arguments: Any) -> Any:
            with trace_calls(lambda frame, event, _: _enter(reach, frame)):
                return function(*arguments)

        return runner(traced, *tensors, **options)

    return run


def _enter(reach: Reach, frame: FrameType) -> Callable[..., Any] | None:
    """Return the tracer of a frame that begins; None for one that is not the user's."""
    code = frame.f_code
    if owner(code.co_filename) != "user":
        return None
    caller = frame.f_back.f_code if frame.f_back is not None else None
    if caller is not None and (caller in reach.grids or _makes_grids(caller)):
        reach.grids.add(code)
    lines = reach.ran[code]

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        lines.add(frame.f_lineno)
        return follow

    return follow


def _makes_grids(caller: CodeType) -> bool:
    """Return whether the caller is Triton's launch."""
    return caller.co_filename.endswith(os.path.join("triton", "runtime", "jit.py"))

"""Which lines of a project a target reaches: what Triton translates, and what runs to a launch."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from gemmproof.mutation.generate import Reached
from gemmproof.reference.provenance import owner
from gemmproof.reference.simulation import Run


@dataclass(slots=True)
class Reach:
    """What was seen: lines that were translated, lines that ran by their function, and who called.

    `launching` are the functions that were under way at a launch, `grids` those that Triton, or
    one of them, calls to make a grid.
    """

    compiled: set[tuple[str, int]] = field(default_factory=set)
    ran: dict[CodeType, set[int]] = field(default_factory=lambda: defaultdict(set))
    launching: set[CodeType] = field(default_factory=set)
    grids: set[CodeType] = field(default_factory=set)

    def list_files(self, left_out: str) -> dict[str, Reached]:
        """What was reached by file, one aside: what registers kernels is no part of them."""
        compiled, launching = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
        grids = defaultdict[str, set[int]](set)
        for path, line in self.compiled:
            compiled[os.path.realpath(path)].add(line)
        for code in self.launching | self.grids:
            launching[os.path.realpath(code.co_filename)] |= self.ran[code]
        for code in self.grids:
            grids[os.path.realpath(code.co_filename)].add(code.co_firstlineno)
        files = {*compiled, *launching} - {os.path.realpath(left_out)}
        return {
            path: Reached(*map(frozenset, (compiled[path], launching[path], grids[path])))
            for path in sorted(files)
            if owner(path) == "user" and os.path.isfile(path)
        }


@contextmanager
def watch_translation(reach: Reach) -> Iterator[None]:
    """Within it every line that Triton's frontend visits is noted."""
    from triton.compiler.code_generator import CodeGenerator

    visit = CodeGenerator.visit

    def note(generator: Any, node: Any) -> Any:
        if hasattr(node, "lineno"):
            reach.compiled.add((generator.file_name, generator.begin_line + node.lineno))
        return visit(generator, node)

    CodeGenerator.visit = note
    try:
        yield
    finally:
        CodeGenerator.visit = visit


@contextmanager
def watch_launches(reach: Reach) -> Iterator[None]:
    """Within it the functions that are under way when a kernel is launched are noted."""
    from gemmproof.reference.simulator.launch import Kernel

    launch = Kernel.run

    def run(kernel: Any, *args: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if owner(frame.f_code.co_filename) == "user":
                reach.launching.add(frame.f_code)
            frame = frame.f_back
        launch(kernel, *args)

    Kernel.run = run  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Kernel.run = launch  # type: ignore[method-assign]


def watch_calls(runner: Callable[..., Run], reach: Reach) -> Callable[..., Run]:
    """A runner that notes every line of the user's that runs in a call."""

    def run(function: Callable[..., Any], *tensors: Any, **options: Any) -> Run:
        def traced(*arguments: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(lambda frame, event, _: _enter(reach, frame))
            try:
                return function(*arguments)
            finally:
                sys.settrace(before)

        return runner(traced, *tensors, **options)

    return run


def _enter(reach: Reach, frame: FrameType) -> Callable[..., Any] | None:
    """What follows a frame that begins; None for one that is not the user's."""
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
    """Whether it is Triton's launch that calls."""
    return caller.co_filename.endswith(os.path.join("triton", "runtime", "jit.py"))

"""The wrapper's paths over symbolic sizes."""

from __future__ import annotations

import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.fake_cuda.multiprocessors import COUNT, multiprocessors
from gemmproof.reference.fake_cuda.tensors import unknown_listeners
from gemmproof.reference.provenance import owner, raising_line, words_of
from gemmproof.reference.simulation import SimulatorError
from gemmproof.reference.symbolic.terms import Atom, Cond, every
from gemmproof.reference.symbolic.tracing.host_values import (
    as_concrete,
    converts_to_show,
    is_users,
)
from gemmproof.reference.symbolic.tracing.symbolic_shapes import (
    Decisions,
    Shapes,
    here,
    without_compiler,
    without_imports,
)
from gemmproof.reference.symbolic.tracing.trace import (
    Guard,
    NotKnown,
    Path,
    Symbolic,
    Trace,
    Unvisited,
    WrapperRun,
)
from gemmproof.reference.symbolic.tracing.traced_launches import Answers, Watch, trace_launches
from gemmproof.reference.triton_hooks import swap
from gemmproof.reference.work import counted_seconds

# -- merge ---------------------------------------------------------------------------------------
# the remaining decisions, and the path that they lead to
_Rest = tuple[list[Guard], Path]


def merge(paths: list[Path]) -> list[Path]:
    """Return the same paths without the decisions that change nothing."""
    merged = _merge([(path.guards, path) for path in paths])
    for guards, path in merged:
        path.guards = guards
    return [path for _, path in merged]


def _merge(rests: list[_Rest]) -> list[_Rest]:
    if len(rests) < 2 or any(not guards for guards, _ in rests):
        return rests
    guard = rests[0][0][0]
    cond = guard[0]
    yes = [(guards[1:], path) for guards, path in rests if guards[0][0] == cond]
    no = [(guards[1:], path) for guards, path in rests if guards[0][0] == ~cond]
    if len(yes) + len(no) < len(rests):  # not decided by the sizes alone
        return rests
    other = next((guards[0] for guards, _ in rests if guards[0][0] != cond), guard)
    yes, no = _merge(yes), _merge(no)
    if _are_same(yes, no):
        return yes
    return [([guard, *guards], path) for guards, path in yes] + [
        ([other, *guards], path) for guards, path in no
    ]


def _are_same(some: list[_Rest], others: list[_Rest]) -> bool:
    if len(some) != len(others):
        return False
    return all(
        [c for c, _ in guards] == [c for c, _ in other_guards] and path.does_as(other)
        for (guards, path), (other_guards, other) in zip(some, others, strict=True)
    )


# -- paths ---------------------------------------------------------------------------------------
Call = Callable[[Mapping[str, object]], Any]
Find = Callable[[Cond], Mapping[Atom, int] | None]


def trace_wrapper(
    call: Call,
    operands: Mapping[str, Symbolic],
    domain: Cond,
    target: str | None,
    hint: Mapping[Atom, int],
    find: Find,
    most_paths: int = 64,
    config: int = 0,
    deadline: float | None = None,
    sms: int | None = None,
) -> Trace:
    """Trace the paths through `call`, which receives tensors for `operands` by their names.

    It runs with the sizes `hint`, which meet `domain`; for each decision, `find` is asked for sizes
    that decide otherwise, as a value for each symbol, and it runs again. Paths that differ in
    decisions alone are merged. `config` selects the configurations of autotuned kernels, `sms` the
    number of multiprocessors, None that of `target`. Tracing ends after `most_paths` runs or at
    `deadline`, in counted seconds. `call` must restore state that the wrapper keeps from call to
    call.
    """
    waiting: deque[tuple[list[Guard], Guard]] = deque()
    seen: dict[tuple[Cond, ...], Path] = {}
    unvisited: list[Unvisited] = []

    def visit(sizes: Mapping[Atom, int], bound: int) -> Path:
        path = _run(call, operands, domain, target, sizes, config, sms, deadline)
        key = tuple(cond for cond, _ in path.guards)
        if key not in seen:
            seen[key] = path
            for i in range(bound, len(path.guards)):
                waiting.append((path.guards[:i], path.guards[i]))
        return path

    visit(hint, 0)
    while waiting:
        before, (cond, where) = waiting.popleft()
        conds = [c for c, _ in before] + [~cond]
        reason, sizes = "", None
        late = deadline is not None and counted_seconds() > deadline
        if late:
            reason = "out of time"
        elif len(seen) >= most_paths:
            reason = "too many paths"
        else:
            sizes = find(every((domain, *conds)))
            reason = "" if sizes is not None else "no sizes were found for it"
        if sizes is not None:
            path = visit({**hint, **sizes}, len(before) + 1)
            decided = [c for c, _ in path.guards[: len(conds)]]
            reason = "" if decided == conds else "a call with sizes for it decided otherwise"
        if reason:
            unvisited.append(Unvisited(every(conds), ~cond, where, reason, late))
    runs = [WrapperRun(tuple(path.guards), path.sizes) for path in seen.values()]
    leaves = list(seen.values())
    return Trace(merge([replace(path) for path in leaves]), unvisited, runs, leaves)


def take_config(trace: Trace, config: int) -> Trace | None:
    """Return the paths in another configuration, or None if some were not seen there."""
    leaves = [path.take(config) for path in trace.leaves]
    switched = [path for path in leaves if path is not None]
    if len(switched) < len(leaves):
        return None
    return replace(trace, paths=merge(switched))


@without_compiler()
def _run(
    call: Call,
    operands: Mapping[str, Symbolic],
    domain: Cond,
    target: str | None,
    hints: Mapping[Atom, int],
    config: int,
    sms: int | None,
    deadline: float | None,
) -> Path:
    """Run the wrapper once with the sizes `hints`."""
    with without_imports():
        sizes = Decisions(domain, dict(hints), deadline)
        no_memory = Shapes(shape_env=sizes, allow_non_fake_inputs=True)
    watch = Watch(sizes, target, config)
    failed, results, asked = None, [], list[str]()
    try:
        with ExitStack() as stack:
            running = (Decisions, "running", sizes)
            showing = (Decisions, "converts_to_show", staticmethod(converts_to_show))
            stack.enter_context(swap((running, showing)))
            stack.enter_context(fake_gpu(target))
            asked = stack.enter_context(multiprocessors(sms))
            stack.enter_context(_keep_unknown(sizes))
            stack.enter_context(swap(as_concrete()))
            # it also raises what it logs
            stack.enter_context(swap(((fake_tensor.log, "disabled", True),)))
            # its notes for a debugger import its compiler
            stack.enter_context(swap(((logging.getLogger("torch.__trace"), "handlers", []),)))
            stack.enter_context(no_memory)
            tensors = {name: watch.operand(name, x) for name, x in operands.items()}
            stack.enter_context(watch)
            stack.enter_context(Answers(watch))
            stack.enter_context(trace_launches(watch))
            results = watch.label_results(call(tensors))
    except Exception as error:
        failed = sizes.failure or _explain(error)
    values = {str(atom): value for atom, value in sizes.hints.items()}
    failed = sizes.failure or failed
    parts = (sizes.decisions, watch.launches, watch.operations, results, values)
    more = (watch.variants, COUNT in asked, dict(sizes.hints), frozenset(watch.choices.dropped))
    return Path(*parts, failed, *more)


@contextmanager
def _keep_unknown(sizes: Decisions) -> Iterator[None]:
    """Keep what the wrapper asks of the device and is not known: a real one would answer."""

    def listen(error: SimulatorError) -> None:
        if is_users(sys._getframe(1)):
            sizes.fail(error.message, error.where)

    unknown_listeners.append(listen)
    try:
        yield
    finally:
        unknown_listeners.remove(listen)


def _explain(error: Exception) -> NotKnown:
    """Return why a run ended, in one line, with the user's line."""
    if isinstance(error, NotKnown):
        return error
    where = getattr(error, "where", None) or raising_line(error) or here()
    text = words_of(error)[:200]
    if isinstance(error, SimulatorError):
        return NotKnown(error.message, where, raised=False)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return NotKnown(f"elements of a tensor are read on the host ({error.func})", where)
    message = f"raises {type(error).__name__}{': ' * bool(text)}{text}"
    if _STAND_INS.search(text):  # a call that has no such argument would not have raised
        return NotKnown(f"not supported for symbolic sizes: {message}", where)
    return NotKnown(message, where, raised=_is_own(error) or type(error) is ZeroDivisionError)


_STAND_INS = re.compile(r"\b(Sym(Int|Bool|Float)|(Fake|Functional)Tensor|\w*StandIn)\b")


def _is_own(error: BaseException) -> bool:
    """Return whether the innermost frame that raised is not library code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and owner(trace.tb_frame.f_code.co_filename) != "library"

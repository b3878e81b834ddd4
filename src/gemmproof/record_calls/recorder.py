"""The recorder of a process: its launches run on the simulator, and calls of wrappers are noted."""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.codec import dump
from gemmproof.record_calls.record import (
    AUTOGRAD,
    FILE,
    FUNCTION,
    METHOD,
    QUIET,
    RecordedArgument,
    RecordedCall,
    RecordedTensor,
    RecordEvent,
)
from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.provenance import format_count, owner
from gemmproof.reference.simulation import Run
from gemmproof.reference.simulator.host_work import Writers
from gemmproof.reference.simulator.launch import Kernel, intercept_launches
from gemmproof.reference.simulator.memory import AddressSpace
from gemmproof.reference.simulator.session import Session
from gemmproof.reference.triton_hooks import swap

EVERY = 5.0  # seconds between two lines about one launch, and before the first
_FORMATS = {TORCH_DTYPES[f.name]: f.name for f in FORMATS.values() if f.stored is f}
_DRIVERS = re.compile(r"(test_.*|.*_test|conftest|bench.*|.*_bench(mark)?)\.py")
_DRIVER_FOLDERS = ("test", "tests", "testing", "bench", "benchmark", "benchmarks")
_DRIVER_FUNCTIONS = re.compile(r"<.*>|test.*|bench.*|main|_?(check|run)_.*")
_PLAIN = (bool, int, float, str, type(None))


# -- functions -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CalledFunction:
    """A function that may be a wrapper: `is_driver` if it belongs to a test or a benchmark."""

    code: CodeType
    name: str
    kind: str
    parameters: tuple[str, ...]
    owner: str
    is_driver: bool


@dataclass(slots=True)
class OpenCall:
    """A call that has not returned: its arguments, and the kernels that it launched as a wrapper.

    `loaded` and `stored` are addresses of storages that kernels accessed; `versions` are those of
    the tensors' contents, which torch counts.
    """

    function: CalledFunction
    frame: FrameType
    arguments: list[RecordedArgument]
    tensors: dict[str, Any]
    versions: dict[str, int]
    programs: dict[str, int] = field(default_factory=dict)
    loaded: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)


def describe_function(code: CodeType) -> CalledFunction | None:
    """Return what is known of a function of the user's, None for any other and for inner ones."""
    whose = owner(code.co_filename)
    name = getattr(code, "co_qualname", code.co_name)
    if whose == "library" or "<" in name:
        return None
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = code.co_varnames[:count]
    kind = FUNCTION
    if "." in name and parameters[:1] == ("ctx",):
        kind = AUTOGRAD
    elif "." in name and parameters[:1] in (("self",), ("cls",)):
        kind = METHOD
    path = Path(code.co_filename)
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    is_driver = (
        _DRIVERS.fullmatch(path.name) is not None
        or path.parent.name in _DRIVER_FOLDERS
        or (main is not None and os.path.realpath(main) == os.path.realpath(path))
    )
    return CalledFunction(code, name, kind, parameters, whose, is_driver)


def choose_wrapper(calls: list[OpenCall]) -> OpenCall | None:
    """Return the call that is the wrapper's, of those on the stack, the outermost first.

    It is the outermost of the user's project outside its tests; in a file that is kernel and test
    in one, the innermost, which launches. Functions of tensors and plain values are preferred, and
    any function to a method, which has a state.
    """
    own = [call for call in calls if not call.function.is_driver]
    users = [call for call in own if call.function.owner == "user"]
    inner = [x for x in reversed(calls) if not _DRIVER_FUNCTIONS.fullmatch(x.function.name)]
    for group in filter(None, (users, own, inner)):
        return min(group, key=_rank)
    return None


def _rank(call: OpenCall) -> tuple[int, bool]:
    is_plain = not any(x.other and not x.is_default for x in call.arguments)
    return (FUNCTION, AUTOGRAD, METHOD).index(call.function.kind), not is_plain


# -- arguments -----------------------------------------------------------------------------------
def _describe(name: str, value: Any, default: Any, by_name: bool) -> RecordedArgument:
    if isinstance(value, torch.Tensor):
        return RecordedArgument(name, _describe_tensor(value), by_name=by_name)
    if isinstance(value, torch.dtype) or type(value) in _PLAIN:
        is_default = type(value) is type(default) and value == default
        return RecordedArgument(name, None, repr(value), "", is_default, by_name)
    return RecordedArgument(name, None, "", _label_other(value), value is default, by_name)


def _label_other(value: Any) -> str:
    if isinstance(value, list | tuple):
        kinds = {type(x).__name__ for x in value}
        return f"a {type(value).__name__} of {', '.join(sorted(kinds)) or 'nothing'}"
    return f"a {type(value).__name__}"


def _describe_tensor(x: torch.Tensor) -> RecordedTensor:
    strided = x.layout == torch.strided
    strides = tuple(x.stride()) if strided else ()
    described = RecordedTensor(_FORMATS.get(x.dtype, ""), str(x.dtype), tuple(x.shape), strides)
    is_integer = not (x.dtype.is_floating_point or x.dtype.is_complex or x.dtype == torch.bool)
    if not strided or not is_integer or not x.numel():
        return described
    low, high = int(x.min()), int(x.max())
    flat = x.reshape(-1)
    in_order = flat.numel() > 2 and low < high and bool((flat[1:] >= flat[:-1]).all())
    return replace(described, low=low, high=high, in_order=in_order)


def _find_defaults(frame: FrameType, function: CalledFunction) -> dict[str, Any]:
    """Return the defaults of a function's parameters, if its module has it by its name."""
    value: Any = frame.f_globals
    for part in function.name.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    try:
        parameters = inspect.signature(inspect.unwrap(value)).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not p.empty}


# -- launches ------------------------------------------------------------------------------------
@dataclass(slots=True)
class LaunchProgress:
    """The progress of a process's launches, which no time limits; a line about each long one.

    It notes the storages that the running launch loads from and stores to.
    """

    stream: Any
    label: str = ""
    began: float = 0.0
    shown: float = 0.0
    loaded: set[int] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)
    notes: bool = True

    def check(self, kernel: str, where: Any) -> None:
        """Say that a launch still runs."""
        now = time.monotonic()
        if self.stream is not None and now - self.shown > EVERY:
            self.shown = now
            self.stream.write(f"gemmproof record: {self.label}, {now - self.began:.0f} s\n")
            self.stream.flush()

    def turn(self, where: Any) -> None:
        """Do nothing: no loop is suspected."""

    def launch(self) -> None:
        """Do nothing: the launch has begun."""

    def touch(self, kind: str, storage: Any, first: Any) -> None:
        """Note an access."""
        if kind != "store":
            self.loaded.add(storage.start)
        if kind != "load":
            self.stored.add(storage.start)


@dataclass(slots=True)
class Recorder:
    """The record of one process: its open calls, and the file that finished ones are added to."""

    path: str
    session: Session
    progress: LaunchProgress
    functions: dict[int, CalledFunction | None] = field(default_factory=dict)
    kept: list[CodeType] = field(default_factory=list)
    calls: list[OpenCall] = field(default_factory=list)
    thread: int = field(default_factory=threading.get_ident)

    def profile(self, frame: FrameType, event: str, given: Any) -> None:
        """Note that a function begins or ends: a profiler of Python."""
        if event == "call":
            code = frame.f_code
            function = self.functions.get(id(code), code)
            if function is code:
                self.kept.append(code)  # its id stays its own
                function = self.functions[id(code)] = describe_function(code)
            if function is not None:
                self._open(frame, function)  # type: ignore[arg-type]
        elif event == "return" and self.calls and self.calls[-1].frame is frame:
            self._close(self.calls.pop())

    def _open(self, frame: FrameType, function: CalledFunction) -> None:
        local = frame.f_locals
        first = 0 if function.kind == FUNCTION else 1
        names = [n for n in function.parameters[first:] if n in local]
        if not any(isinstance(local[n], torch.Tensor | list | tuple) for n in names):
            return
        defaults = _find_defaults(frame, function)
        only = function.parameters[function.code.co_argcount :]
        arguments = [_describe(n, local[n], defaults.get(n, self), n in only) for n in names]
        arguments += _list_variadic(function.code, local)
        tensors = {n: local[n] for n in names if isinstance(local[n], torch.Tensor)}
        versions = {n: x._version for n, x in tensors.items() if not x.is_inference()}
        self.calls.append(OpenCall(function, frame, arguments, tensors, versions))

    def _close(self, call: OpenCall) -> None:
        if not call.programs:
            return
        function = call.function
        arguments = tuple(self._conclude(call, x) for x in call.arguments)
        recorded = RecordedCall(
            os.path.realpath(function.code.co_filename),
            function.name,
            function.kind,
            arguments,
            call.programs,
        )
        line = dump(RecordEvent(recorded, path=tuple(sys.path)))
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _conclude(self, call: OpenCall, argument: RecordedArgument) -> RecordedArgument:
        """Return an argument with what the call did to it."""
        if argument.tensor is None:
            return argument
        tensor = call.tensors[argument.name]
        at = tensor.untyped_storage().data_ptr()
        by_torch = tensor._version != call.versions.get(argument.name, tensor._version)
        written = by_torch or at in call.stored
        described = replace(
            argument.tensor, written=written, read=not written or by_torch or at in call.loaded
        )
        return replace(argument, tensor=described)

    def run(self, original: Any, kernel: Any, x: Any, y: Any, z: Any, *more: Any) -> None:
        """Run a launch, and give it to the wrapper that made it."""
        profiled = threading.get_ident() == self.thread
        sys.setprofile(None) if profiled else None
        call = choose_wrapper(self.calls)
        programs = math.prod(n for n in (x, y, z) if isinstance(n, int))
        progress = self.progress
        progress.label = f"a launch of {kernel.name} with {format_count(programs, 'program')}"
        progress.began = progress.shown = time.monotonic()
        try:
            original(kernel, x, y, z, *more)
        finally:
            if call is not None:
                call.programs[kernel.name] = call.programs.get(kernel.name, 0) + programs
                call.loaded |= progress.loaded
                call.stored |= progress.stored
            progress.loaded, progress.stored = set(), set()
            self._forget()
            sys.setprofile(self.profile) if profiled else None

    def _forget(self) -> None:
        """Forget the launch: a process may make any number, and addresses are used again."""
        session = self.session
        session.run, session.memory = Run(), AddressSpace()
        session.writers = Writers(session.memory)
        session.violations, session.operands, session.origins = [], [], []


def _list_variadic(code: CodeType, local: dict[str, Any]) -> Iterator[RecordedArgument]:
    """Yield *args and **kwargs if they are not empty: no declaration has them."""
    count = code.co_argcount + code.co_kwonlyargcount
    for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
        if code.co_flags & flag:
            name = code.co_varnames[count]
            count += 1
            if local.get(name):
                yield RecordedArgument(name, None, "", f"arguments of {stars}{name}")


_ACTIVE = ExitStack()  # until the process ends


def start() -> None:
    """Run every launch of this process on the simulator, and record the calls of wrappers."""
    quiet = os.environ.get(QUIET) == "1"
    # pytest replaces the stream, and captures the file
    stream = None if quiet else os.fdopen(os.dup(2), "w")
    session, progress = Session({}, seconds=math.inf), LaunchProgress(stream)
    session.progress = progress  # type: ignore[assignment]
    recorder = Recorder(os.environ[FILE], session, progress)
    original = Kernel.run

    def run(kernel: Any, *given: Any) -> None:
        recorder.run(original, kernel, *given)

    _ACTIVE.enter_context(fake_gpu())
    _ACTIVE.enter_context(intercept_launches(session))
    _ACTIVE.enter_context(swap([(Kernel, "run", run)]))
    sys.setprofile(recorder.profile)

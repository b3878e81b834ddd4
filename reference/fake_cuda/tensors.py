"""CUDA tensors and streams on the CPU."""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_stack, walk_tb
from typing import Any, NoReturn, TypeVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from gemmproof.reference.gpus import GPU
from gemmproof.reference.provenance import Line, calling_line, owner, raising_line, words_of
from gemmproof.reference.simulation import Exhausted, SimulatorError, Unsupported

# -- what is unknown without a device ------------------------------------------------------------
# Messages of torch and Triton when they look for a device and find none.
_MISSING = (
    "not compiled with CUDA",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "NVIDIA driver on your system is too old",
    "without ATen_cuda library",
    "not linked with support for cuda",
    "Cannot access accelerator device when none is available",
    "no pinned memory allocator is available",
    "arguments from the 'CUDA' backend",
    "CUDA driver initialization failed",
    "CUDA driver version is insufficient",
    "Cannot re-initialize CUDA in forked subprocess",
    "no CUDA-capable device is detected",
    "non-CUDA tensor type",
    "libcuda.so cannot found",
    "libamdhip64.so",
    "module 'torch._C' has no attribute '_cuda",
    "module 'torch._C' has no attribute '_accelerator",
    # A library of operators in C++ that is not loaded.
    "'_OpNamespace' ",
    # An operator that the CPU lacks for this dtype or device, whatever a GPU has.
    "\" not implemented for '",
    "with arguments from the 'CPU' backend",
)
_LIBRARY = re.compile(r"lib\w*\.so[.\d]*: cannot open shared object file")
_TOOLS = ("nvidia-smi", "nvcc", "ptxas", "cuobjdump", "nvdisasm", "rocm-smi", "amd-smi", "hipcc")
_REFUSED = re.compile(r"tried to allocate (\d+) bytes")


E = TypeVar("E", bound=Unsupported)


class UnknownName(Unsupported, AttributeError, KeyError):
    """An unknown name was requested; callers that expect it to be missing may catch this."""

    __str__ = SimulatorError.__str__


class Facts(types.SimpleNamespace):
    """The known attributes of an object that has more: any other name is refused."""

    def __init__(self, _of: str, **known: Any) -> None:
        super().__init__(**known)
        self.__dict__["_of"] = _of

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise make_unknown_name(f"{self.__dict__['_of']}.{name}")


class Table(dict[str, object]):
    """The known figures of a table that has more: any other key is refused."""

    def __init__(self, _of: str, known: Mapping[str, object]) -> None:
        super().__init__(known)
        self._of = _of

    def __missing__(self, key: str) -> NoReturn:
        raise make_unknown_name(f"{self._of}[{key!r}]")


# called with each error, which a wrapper may catch
unknown_listeners: list[Callable[[Unsupported], None]] = []


def make_unknown(what: str) -> Unsupported:
    """Return the error for `what`, at the user's innermost line on the stack."""
    return _tell(Unsupported(f"{what} is not known to the fake device", calling_line()))


def make_unknown_name(what: str) -> UnknownName:
    """Return the error for an attribute or a key, at the user's innermost line on the stack."""
    return _tell(UnknownName(f"{what} is not known to the fake device", calling_line()))


def _tell(error: E) -> E:
    for listen in unknown_listeners:
        listen(error)
    return error


def explain_lack(error: Exception, gpu: GPU) -> SimulatorError | None:
    """Return the error for a call that failed for lack of a resource here, None for any other.

    A resource is memory which `gpu` has, a Python package, or a part of the GPU's driver.
    """
    text, where = words_of(error)[:200], raising_line(error)
    asked = _find_memory(error, text)
    if 0 < asked <= gpu.memory:
        reason = text or type(error).__name__
        return Exhausted(f"this machine lacks memory for this line ({reason})", where)
    if isinstance(error, ImportError) or (isinstance(error, OSError) and _names_driver(error)):
        return Unsupported(f"this line needs what this machine lacks: {text}", where)
    return None


def explain_missing(error: Exception) -> Unsupported | None:
    """Return the error to raise for one that only a missing device can cause, None for any other.

    A machine with a GPU would not have raised it, so the kernel is not at fault.
    """
    text = words_of(error)
    if not isinstance(error, AssertionError | AttributeError | RuntimeError | TypeError):
        return None
    if not any(message in text for message in _MISSING):
        return None
    called = _find_called(list(walk_tb(error.__traceback__))[::-1]) or "what this line asks of CUDA"
    message = f"{called} is not known to the fake device ({text[:120]})"
    return Unsupported(message, raising_line(error))


def _find_memory(error: Exception, text: str) -> int:
    """Return the bytes that a failed allocation requested; 1 if unknown, 0 if none failed."""
    if isinstance(error, MemoryError):
        return 1
    refused = _REFUSED.search(text) if "can't allocate memory" in text else None
    return int(refused[1]) if refused else 0


def _names_driver(error: OSError) -> bool:
    """Return whether a library, or a tool of the driver's, is missing."""
    tool = isinstance(error, FileNotFoundError) and str(error.filename).rpartition("/")[2] in _TOOLS
    return tool or _LIBRARY.search(words_of(error)) is not None


def no_device() -> NoReturn:
    """Refuse a call of torch that reaches the real device, by the name that was called."""
    raise make_unknown(label_call())


def label_call() -> str:
    """Return what the user's innermost line calls: a function of torch, or its own text."""
    called = _find_called(walk_stack(sys._getframe(1)))
    if called is None:  # a type or a function in C, which has no frame
        for frame, _ in walk_stack(sys._getframe(1)):
            if owner(frame.f_code.co_filename) != "library":
                called = _text_called(frame)
                break
    return called or "what this line asks of CUDA"


def _text_called(frame: types.FrameType) -> str | None:
    """Return the dotted name of the call under way in `frame`, or None if it has no such name."""
    spans = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end, first, last = next(spans, (None, None, None, None))
    if line is None or line != end:
        return None
    text = linecache.getline(frame.f_code.co_filename, line).encode()[first:last].decode()
    name, called, _ = text.partition("(")
    return name if called and all(map(str.isidentifier, name.split("."))) else None


def refusal(name: str, original: Any) -> Any:
    """Replace a function or class that the fake device does not know: calling it raises."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise make_unknown(name)

    if isinstance(original, type):  # still a class: a module may annotate with it, or test for it
        return type(original.__name__, (), {"__new__": refuse, "__module__": original.__module__})
    if hasattr(original, "__wrapped__"):  # which torch's compiler asks for while it is imported
        refuse.__wrapped__ = original.__wrapped__  # type: ignore[attr-defined]
    return refuse


def _find_called(lines: Iterable[Line]) -> str | None:
    """Return what the innermost user's line calls: the outermost function of torch below it."""
    called = None
    for frame, _ in lines:
        if owner(frame.f_code.co_filename) != "library":
            break
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "__torch_function__" and "func" in frame.f_locals:
            called = f"torch's {getattr(frame.f_locals['func'], '__name__', 'function')}"
        elif module.partition(".")[0] in ("torch", "triton"):
            called = f"{module}.{frame.f_code.co_qualname}"
    return called


# -- tensors -------------------------------------------------------------------------------------
CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
_HOST = "_gemmproof_host"


def is_host(tensor: torch.Tensor) -> bool:
    """Return whether a wrapper created the tensor on the host; False if that is unknown."""
    return _HOST in tensor.__dict__


def mark_result_host(function: Any) -> Any:
    """Return `function`, whose calls torch hides from modes, with its result marked as host."""

    def wrapper(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = function(*args, **kwargs)
        _mark(tensor, True)
        return tensor

    return wrapper


class OnCpu(TorchFunctionMode):
    """Every tensor is on the CPU; all but those created on the host appear on CUDA device 0."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        body = _custom_op(func)
        if body is not None:
            with self:
                return body(*args, **kwargs)
        name = getattr(func, "__name__", "")
        own = isinstance(args[0], torch.Tensor) if args else False
        if name == "__get__":
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if attribute in _ATTRIBUTES:
                return _ATTRIBUTES[attribute](args[0])
            if getattr(func, "__self__", None) is _INTERFACE:
                raise make_unknown("Tensor.__cuda_array_interface__")
        elif func is torch.device and args and isinstance(args[0], int):
            return torch.device("cuda", args[0])
        elif own and name in _METHODS:
            return _METHODS[name](*args, **kwargs)
        elif name == "type" and own and len(args) == 1 and not kwargs:
            text = str(func(*args))
            return text if is_host(args[0]) else text.replace("torch.", "torch.cuda.")
        elif _writes(name, kwargs):
            note_change()
        args, device = _on_cpu(func, name, args, kwargs)
        result = func(*args, **kwargs)
        if name == "__set__" and getattr(func.__self__, "__name__", "") == "data":
            _mark(args[0], is_host(args[1]))
        if isinstance(result, torch.Tensor | tuple | list):
            _mark_place(result, device, args, kwargs)
        return result


def _cpu(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if is_host(tensor):
        return tensor
    copy = tensor.clone()
    _mark(copy, True)
    return copy


def _cuda(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.clone() if is_host(tensor) else tensor


def _storage(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of tensors that returns their storage, which keeps whether it is on CUDA."""

    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        torch.Tensor.untyped_storage(tensor).__dict__[_ON_CUDA] = not is_host(tensor)
        return function(tensor, *args, **kwargs)

    return call


_ON_CUDA = "_gemmproof_on_cuda"
_DEVICE = torch.UntypedStorage.device


def real_device(storage: torch.UntypedStorage) -> torch.device:
    """Return the device that a storage has in torch itself."""
    device: torch.device = _DEVICE.__get__(storage)
    return device


def _device_of(storage: torch.UntypedStorage) -> torch.device:
    on_cuda = storage.__dict__.get(_ON_CUDA, False)
    return CUDA if on_cuda else real_device(storage)


# replaces torch.UntypedStorage.device
STORAGE_DEVICE = property(_device_of)

_INTERFACE = vars(torch.Tensor).get("__cuda_array_interface__")
_ATTRIBUTES: dict[str, Callable[..., object]] = {
    "is_cuda": lambda x: not is_host(x),
    "is_cpu": is_host,
    "device": lambda x: CPU if is_host(x) else CUDA,
}
_METHODS: dict[str, Callable[..., object]] = {
    "cpu": _cpu,
    "cuda": _cuda,
    "get_device": lambda x: -1 if is_host(x) else 0,
    "untyped_storage": _storage(torch.Tensor.untyped_storage),
    "storage": _storage(torch.Tensor.storage),
    "pin_memory": lambda x, *args, **kwargs: x,
    "is_pinned": lambda x, *args, **kwargs: is_host(x),
}


class _Changes:
    count = 0
    replays = 0


def note_change() -> None:
    """Count a write to existing memory."""
    _Changes.count += 1


def count_changes() -> int:
    """Return how often `note_change` was called: if it has not grown, nothing was written."""
    return _Changes.count


def count_replays() -> int:
    """Return how often a graph was replayed."""
    return _Changes.replays


def _writes(name: str, kwargs: Mapping[str, object]) -> bool:
    return (
        name in ("__setitem__", "__set__")
        or (name.endswith("_") and not name.endswith("__"))
        or (name.startswith("__i") and name.endswith("__"))
        or kwargs.get("out") is not None
    )


def _custom_op(func: Any) -> Any:
    """Return the Python body of an operator of torch.library (custom_op, triton_op), else None.

    It is called directly, so that its allocations and launches are observed.
    """
    if not isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    from torch._library.custom_ops import OPDEFS

    name = func._qualified_op_name if hasattr(func, "_qualified_op_name") else func.name()
    known = OPDEFS.get(name.split(".")[0])
    return None if known is None else known._init_fn


def _on_cpu(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], str | None]:
    """Return the arguments with the CPU for any CUDA device, and the device that they name."""
    device = _place_of(kwargs.get("device"))
    if device == "cuda":
        kwargs["device"] = "cpu"
    elif _default_is_cuda() and kwargs.get("device") is None and func in _constructors():
        kwargs["device"], device = "cpu", "cuda"
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False  # torch has no pinned memory without a device
    if name not in ("to", "type") or not args or not isinstance(args[0], torch.Tensor):
        return args, device
    first = kwargs.get("other", args[1] if len(args) > 1 else kwargs.get("dtype"))
    if isinstance(first, torch.Tensor):
        device = "cpu" if is_host(first) else "cuda"
    elif name == "type" and isinstance(first, str) and len(args) > 1:
        device = "cuda" if first.startswith("torch.cuda.") else "cpu"
        args = (args[0], first.replace("torch.cuda.", "torch."), *args[2:])
    elif device is None:
        device = _place_of(first)
        args = tuple("cpu" if i and _place_of(x) == "cuda" else x for i, x in enumerate(args))
    here = "cpu" if is_host(args[0]) else "cuda"
    if name == "to" and device not in (None, here) and len(args) < 5:
        kwargs["copy"] = True  # as between two devices
    return args, device


def _place_of(x: Any) -> str | None:
    """Return "cuda" or "cpu" for anything that names a device, None for anything else."""
    if isinstance(x, bool):
        return None
    if isinstance(x, int):
        return "cuda"
    kind = x.type if isinstance(x, torch.device) else x
    if not isinstance(kind, str):
        return None
    kind = kind.partition(":")[0]
    return kind if kind in ("cuda", "cpu") else None


def _mark_place(result: Any, device: str | None, args: Any, kwargs: Mapping[str, object]) -> None:
    """Mark the results of a call of torch with their device: as named, else as the operands."""
    results = [result] if isinstance(result, torch.Tensor) else result
    results = [x for x in results if isinstance(x, torch.Tensor)]
    if not results:
        return
    operands = list(_tensors((*args, *kwargs.values())))
    # without operands: torch's own default, the CPU
    host = all(map(is_host, operands)) if device is None else device == "cpu"
    for tensor in results:
        if tensor.is_cuda:  # a real one, by a path that is not intercepted here
            raise make_unknown("a tensor that torch makes on CUDA here")
        if not any(tensor is x for x in operands):
            _mark(tensor, host)


def _mark(tensor: torch.Tensor, host: bool) -> None:
    if host:
        tensor.__dict__[_HOST] = True
    else:
        tensor.__dict__.pop(_HOST, None)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _constructors() -> Any:
    return _device._device_constructors()


def _default_is_cuda() -> bool:
    device = _device.CURRENT_DEVICE
    return device is not None and device.type == "cuda"


class _Default:
    device: torch.device | None = None


@contextmanager
def default_device() -> Iterator[None]:
    """A default device that is set within it is restored on the next entry, and only there.

    A module may set one when it is imported; tensors of others are not affected.
    """
    before = _device.CURRENT_DEVICE
    if _Default.device is not None:
        torch.set_default_device(_Default.device)
    try:
        yield
    finally:
        _Default.device = None
        if _device.CURRENT_DEVICE != before:
            _Default.device = _device.CURRENT_DEVICE
            torch.set_default_device(before)


# -- streams -------------------------------------------------------------------------------------
# Long, so that a benchmark repeats its call as few times as it may.
MILLISECONDS = 1000.0

_numbers = itertools.count()
_entered: list[Any] = []
_capturing: list[Graph] = []


class Event:
    """torch.cuda.Event: everything that it waits for has happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.cuda_event = CUDA, 0

    def record(self, stream: Any = None) -> None:
        """Do nothing: nothing is in flight that could be recorded."""

    synchronize = wait = record

    def query(self) -> bool:
        """Return True: the event has happened."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Return the same time between any two events."""
        return MILLISECONDS


class Stream:
    """torch.cuda.Stream, and as a context the current one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.device_index, self.device_type = CUDA, 0, 1
        self.cuda_stream = self.stream_id = self.native_handle = next(_numbers)
        self.priority = kwargs.get("priority", 0)

    def synchronize(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: nothing is in flight."""

    wait_event = wait_stream = synchronize

    def query(self) -> bool:
        """Return True: all its work is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """Return the event, or a new one; it has happened."""
        return Event() if event is None else event

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority."""
        return 0, -5

    def __enter__(self) -> Stream:
        _entered.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _entered.pop()


_entered.append(Stream())


def current_stream(device: Any = None) -> Any:
    """Return the stream of the innermost context."""
    return _entered[-1]


def default_stream(device: Any = None) -> Any:
    """Return the stream outside every context."""
    return _entered[0]


def set_stream(stream: Any) -> None:
    """Make `stream` the current one within the innermost context."""
    if stream is not None and len(_entered) > 1:
        _entered[-1] = stream


@contextmanager
def in_stream(stream: Any) -> Iterator[None]:
    """Replace torch.cuda.stream(s)."""
    _entered.append(current_stream() if stream is None else stream)
    try:
        yield
    finally:
        _entered.pop()


class Graph:
    """torch.cuda.CUDAGraph: captured work runs at once, and counts as the first replay."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.captured: int | None = None

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Begin the capture: later launches belong to the graph."""
        _capturing.append(self)

    def capture_end(self) -> None:
        """End the capture: the graph is complete, and has run."""
        _capturing.clear()
        self.captured = count_changes()

    def replay(self) -> None:
        """Do nothing; refuse if memory was written since the capture, which a replay would miss."""
        if self.captured != count_changes():
            raise make_unknown(
                "torch.cuda.CUDAGraph.replay, once memory was written since its capture,"
            )
        _Changes.replays += 1

    def reset(self) -> None:
        """Discard the capture."""
        self.captured = None

    def pool(self) -> tuple[int, int]:
        """Return the handle of a memory pool."""
        return 0, 0


@contextmanager
def capture(cuda_graph: Graph, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Replace torch.cuda.graph(g)."""
    cuda_graph.capture_begin()
    try:
        yield
    finally:
        cuda_graph.capture_end()


def is_capturing() -> bool:
    """Return whether a graph is being captured."""
    return bool(_capturing)


def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the callables: each call runs them again, as a graph's replay does."""
    return callables


def do_bench(
    fn: Callable[[], Any],
    *args: Any,
    quantiles: Any = None,
    return_mode: str = "mean",
    **kwargs: Any,
) -> Any:
    """Replace triton.testing.do_bench: call `fn` once; every time is the same."""
    fn()
    if quantiles is not None:
        return [MILLISECONDS] * len(quantiles) if len(quantiles) != 1 else MILLISECONDS
    return [MILLISECONDS] if return_mode == "all" else MILLISECONDS


class Generator(torch.Generator):
    """torch.Generator(device="cuda"): a CPU generator, as all tensors are on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        """Create a generator for any device."""
        generator = super().__new__(cls)
        generator.requested = device  # type: ignore[attr-defined]
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that was requested."""
        requested = self.requested  # type: ignore[attr-defined]
        return CUDA if torch.device(requested).type == "cuda" else torch.device("cpu")

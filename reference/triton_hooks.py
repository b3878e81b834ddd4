"""Hooks into Triton: nothing else in the package replaces parts of it."""

from __future__ import annotations

import functools
import importlib
import math
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
import triton.testing
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.compiler import make_backend
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.simulation import KernelError

# -- replacement ---------------------------------------------------------------------------------
Change = tuple[Any, str, Any]  # an owner, the name of its attribute, and the replacement


@contextmanager
def swap(changes: Collection[Change]) -> Iterator[None]:
    """Replace attributes within the context."""
    before = [(owner, name, vars(owner).get(name, swap)) for owner, name, _ in changes]
    done = 0
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
            done += 1
        yield
    finally:
        for owner, name, value in reversed(before[:done]):
            if value is swap:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


# -- tuners --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class TunedLaunch:
    """A launch whose configuration a tuner chooses, by `original` if nothing else does."""

    original: Callable[..., Any]
    tuner: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, object]

    @property
    def kernel(self) -> Any:
        """The kernel below the tuner, and below its heuristics."""
        function = self.tuner
        while not isinstance(function, JITFunction):
            kind = interpreted_class()
            function = find_jitted(function) if type(function) is kind else function.fn
        return function

    def prune(self) -> list[Any]:
        """Return the configurations that the kernel's own pruning leaves for these arguments."""
        self.tuner.nargs = dict(zip(self.tuner.arg_names, self.args, strict=False))
        configs = list(self.tuner.prune_configs(self.kwargs))
        if not configs:
            raise KernelError(f"{self.kernel.__name__}: autotune leaves no configuration")
        return configs

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by name."""
        return {**dict(zip(self.tuner.arg_names, self.args, strict=False)), **self.kwargs}

    def run(self, config: Any) -> Any:
        """Launch the kernel in one configuration; Triton does not time a single one."""
        with swap([(self.tuner, "configs", [config])]):
            return self.choose()

    def choose(self) -> Any:
        """Launch the kernel in the configuration that its tuner chooses."""
        return self.original(self.tuner, *self.args, **self.kwargs)

    def try_out(self, config: Any) -> None:
        """Make a trial run, with the hooks that the tuner calls around it and after the last."""
        tuner, given = self.tuner, {**self.kwargs, **config.all_kwargs()}
        named = {**tuner.nargs, **given}
        if config.pre_hook is not None:
            config.pre_hook(named)
        tuner.pre_hook(named)
        tuner.fn.run(*self.args, **given)
        tuner.post_hook(named, exception=None)
        tuner.pre_hook(named, reset_only=True)


def _freeze(value: Any) -> Any:
    """Return a value that equals another's exactly if they do, and has a hash."""
    try:
        hash(value)
    except TypeError:
        return str(value)
    return value


class Choices:
    """The choices of a call's tuners that a number selects: each is independent of the others.

    The number has one digit for each choice, in mixed radix, the first choice's last. The first
    digit is the index of that choice's configuration; each further one is added to it. So the
    numbers below the first count select the same configuration for every tuner.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        # instead of the number, for the choices of one launch that is made again
        self.forced: int | None = None
        # choices and configurations that Triton refused: a tuner does not try them again
        self.dropped: set[tuple[int, int]] = set()
        self._rest, self._first = number, 0
        self._known: dict[Any, tuple[int, int]] = {}

    def pick(self, tuner: Any, named: Mapping[str, Any], count: int) -> tuple[int, int]:
        """Return the number of a choice, and the index of the configuration of `count`.

        `named` are the arguments of the launch. Launches of one tuner with the same values of its
        key, and tensors of the same types, share a choice.
        """
        if count == 1:
            return len(self._known), 0
        values = [_freeze(named[name]) for name in getattr(tuner, "keys", ()) if name in named]
        types = [str(x.dtype) for x in named.values() if hasattr(x, "dtype")]
        key = (id(tuner), count, *values, *types)
        if key not in self._known:
            number = len(self._known)
            self._rest, digit = divmod(self._rest, count)
            self._first = self._first if number else digit
            self._known[key] = number, (digit + self._first * (number > 0)) % count
        number, index = self._known[key]
        return number, index if self.forced is None else self.forced


def select(number: int, counts: Mapping[int, int]) -> dict[int, int]:
    """Return the index that `number` selects for each choice, from the count of each."""
    selected: dict[int, int] = {}
    first = 0
    for choice in sorted(counts):
        number, digit = divmod(number, counts[choice])
        first = first if selected else digit
        selected[choice] = (digit + first * (len(selected) > 0)) % counts[choice]
    return selected


def count_combinations(counts: Mapping[int, int]) -> int:
    """Return how many numbers select different configurations."""
    return math.prod(counts.values())


# -- Triton's interpreter ------------------------------------------------------------------------
def interpreted_class() -> Any:
    """Return the class of kernels under TRITON_INTERPRET=1, or None if it is not loaded."""
    module = sys.modules.get("triton.runtime.interpreter")
    return None if module is None else module.InterpretedFunction


def find_jitted(kernel: Any) -> Any:
    """Return the kernel as it would be without TRITON_INTERPRET=1, created once.

    Kernels that it calls by name are replaced in the same way.
    """
    if "_gemmproof_jitted" not in vars(kernel):
        fn = kernel.fn
        scope = dict(fn.__globals__)
        copy = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, fn.__closure__)
        functools.update_wrapper(copy, fn)
        del vars(copy)["__wrapped__"]
        kernel._gemmproof_jitted = JITFunction(copy, **kernel.kwargs)
        for name in fn.__code__.co_names:
            if type(scope.get(name)) is interpreted_class():
                scope[name] = find_jitted(scope[name])
    kernel._gemmproof_jitted.pre_run_hooks = kernel.pre_run_hooks
    return kernel._gemmproof_jitted


def _without_interpreter(launch: Callable[..., Any]) -> Iterator[Change]:
    """Yield the changes that have `launch` run interpreted kernels as jitted ones."""
    kind = interpreted_class()
    if kind is None:
        return
    yield kind, "run", lambda self, *args, **kwargs: launch(find_jitted(self), *args, **kwargs)
    for name, module in list(sys.modules.items()):
        if name.startswith("triton.language"):
            for word, value in list(vars(module).items()):
                if type(value) is kind:
                    yield module, word, find_jitted(value)
    for word, value in list(vars(tl.tensor).items()):
        cells = getattr(value, "__closure__", None) or ()
        inner = next((c.cell_contents for c in cells if type(c.cell_contents) is kind), None)
        if inner is not None:
            yield tl.tensor, word, find_jitted(inner)


# -- hooks ---------------------------------------------------------------------------------------
Hook = Callable[..., Any]  # called with what it replaces, and the arguments of that


class _Device(int):
    """A device number that keeps Triton's cache of a hook's kernels apart from others."""

    key: str

    def __new__(cls, key: str) -> _Device:
        device = super().__new__(cls, 0)
        device.key = key
        return device

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, _Device) else int(self) == other


_POWER = triton.next_power_of_2  # a function, or an object that holds it as `fn`
# what a hook replaces, by the hook's name
PARTS = {
    "launch": (JITFunction, "run"),  # also of a kernel that Triton would interpret
    "compile": (JITFunction, "_do_compile"),  # of a specialisation that is in no cache
    "tune": (Autotuner, "run"),  # whose hook gets a TunedLaunch instead
    "prune": (Autotuner, "prune_configs"),
    "measure": (Autotuner, "_bench"),  # of one configuration
    "translate": (CodeGenerator, "visit"),  # of one node of a kernel's syntax
    "describe": (TensorDescriptor, "__post_init__"),  # of one made on the host
    "next_power_of_2": (_POWER, "fn") if hasattr(_POWER, "fn") else (triton, "next_power_of_2"),
}


@contextmanager
def intercept(*, device: str | None = None, **hooks: Hook) -> Iterator[None]:
    """Have Triton call hooks within the context, in place of `PARTS` or of the hooks of outer ones.

    A hook gets what it replaces as its first argument. `properties` replaces the query of the
    device's properties; `device` names the cache of kernels that is used.
    """
    changes: list[Change] = []
    if tune := hooks.get("tune"):
        hooks["tune"] = lambda run, tuner, *args, **kw: tune(TunedLaunch(run, tuner, args, kw))
    for part, hook in hooks.items():
        is_query = part == "properties"
        owner, name = (_find_utilities(), "get_device_properties") if is_query else PARTS[part]
        if owner is not None:
            changes.append((owner, name, _around(hook, getattr(owner, name))))
    if "launch" in hooks:
        changes += _without_interpreter(_around(hooks["launch"], JITFunction.run))
    if device is not None:
        key = _Device(device)
        changes.append((driver.active, "get_current_device", lambda: key))
    with swap(changes):
        yield


def _around(hook: Hook, original: Any) -> Any:
    return lambda *args, **kwargs: hook(original, *args, **kwargs)


def _find_utilities() -> Any:
    try:
        return driver.active.utils
    except RuntimeError:  # neither a device nor a fake one: nobody can query Triton
        return None


def compile_with(compiler: Callable[..., Any]) -> Hook:
    """Return the hook of a `compile` step that calls `compiler` in place of Triton's."""

    def compile(original: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        with swap([(kernel, "compile", compiler)]):
            return original(kernel, *args, **kwargs)

    return compile


@contextmanager
def without_assembler(target: Any) -> Iterator[None]:
    """Leave binaries of CUDA empty within the context."""
    backend = type(make_backend(target))
    skipped = [(backend, "make_cubin", lambda *args, **kwargs: b"")]
    with swap(skipped if hasattr(backend, "make_cubin") else []):
        yield


# -- the device ----------------------------------------------------------------------------------
def replace_device(
    active: Any, testing: Mapping[str, Any], imitate: Callable[[type], type]
) -> Iterator[Change]:
    """Yield the changes that make `active` Triton's driver.

    `testing` replaces functions of triton.testing. `imitate` returns the replacement of a class
    that binds a library of the driver: scripts that compare a kernel with cuBLAS create a handle
    when they are imported, and no kernel needs it.
    """
    yield driver, "_active", active
    yield driver, "_default", active
    # times of a fake device mean nothing, and large products take minutes
    yield triton.testing.Mark, "run", lambda *args, **kwargs: None
    for name, answer in testing.items():
        if hasattr(triton.testing, name):
            yield triton.testing, name, answer
    libtriton = importlib.import_module("triton._C.libtriton")
    cublas = getattr(getattr(libtriton, "nvidia", None), "cublas", None)
    if (handle := getattr(cublas, "CublasLt", None)) is not None:  # older Tritons have none
        yield cublas, "CublasLt", imitate(handle)

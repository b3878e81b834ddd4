"""Hooks into Triton: nothing else in the package replaces parts of it."""

from __future__ import annotations

import functools
import importlib
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
    before: list[Change] = []
    try:
        for owner, name, value in changes:
            old = vars(owner).get(name, swap)
            setattr(owner, name, value)
            before.append((owner, name, old))
        yield
    finally:
        for owner, name, value in reversed(before):
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
    kwargs: dict[str, Any]

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


@contextmanager
def intercept(
    *,
    launch: Hook | None = None,
    compile: Hook | None = None,
    tune: Callable[[TunedLaunch], Any] | None = None,
    prune: Hook | None = None,
    measure: Hook | None = None,
    translate: Hook | None = None,
    describe: Hook | None = None,
    next_power_of_2: Hook | None = None,
    properties: Hook | None = None,
    device: str | None = None,
) -> Iterator[None]:
    """Have Triton call these hooks within the context.

    Each gets what it replaces as its first argument: Triton's own function, or the hook of an outer
    context. A `launch` of a kernel, also of one that Triton would interpret; the `compile` step of
    one that is in no cache, which is kept apart by the name of the `device`; a tuned launch
    (`tune`), the pruning of its configurations and the time that it takes to `measure` one; the
    `translate` step of one node of a kernel's syntax; a tensor descriptor made on the host
    (`describe`); `next_power_of_2`; and a query of the device's `properties`.
    """
    power = triton.next_power_of_2  # a function, or an object that holds it as `fn`
    held = (power, "fn") if hasattr(power, "fn") else (triton, "next_power_of_2")
    parts: list[tuple[Hook | None, Any, str]] = [
        (launch, JITFunction, "run"),
        (compile, JITFunction, "_do_compile"),
        (tune and _tune_with(tune), Autotuner, "run"),
        (prune, Autotuner, "prune_configs"),
        (measure, Autotuner, "_bench"),
        (translate, CodeGenerator, "visit"),
        (describe, TensorDescriptor, "__post_init__"),
        (next_power_of_2, *held),
        (properties, properties and _find_utilities(), "get_device_properties"),
    ]
    changes = [
        (owner, name, _around(hook, getattr(owner, name)))
        for hook, owner, name in parts
        if hook is not None and owner is not None
    ]
    if launch is not None:
        changes += _without_interpreter(_around(launch, JITFunction.run))
    if device is not None:
        key = _Device(device)
        changes.append((driver.active, "get_current_device", lambda: key))
    with swap(changes):
        yield


def _around(hook: Hook, original: Any) -> Any:
    return lambda *args, **kwargs: hook(original, *args, **kwargs)


def _tune_with(tune: Callable[[TunedLaunch], Any]) -> Hook:
    def run(original: Any, tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return tune(TunedLaunch(original, tuner, args, kwargs))

    return run


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

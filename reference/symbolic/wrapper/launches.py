"""Launches of a traced wrapper: Triton's own launch path, with its frontend for a compiler.

Heuristics, hooks, pruning and the binder are Triton's, as on the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import triton
from triton.compiler.compiler import make_backend
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.reference.fake_cuda.answers import swap
from gemmproof.reference.simulator.kernel import Kernel
from gemmproof.reference.simulator.launch import intercept_launches
from gemmproof.reference.symbolic.terms import Poly, le, term
from gemmproof.reference.symbolic.wrapper.decisions import Decisions, here
from gemmproof.reference.symbolic.wrapper.host import as_before
from gemmproof.reference.symbolic.wrapper.record import (
    HostDescriptor,
    NotKnown,
    SizedFloat,
    TorchCall,
    TracedLaunch,
)
from gemmproof.reference.symbolic.wrapper.stand_ins import (
    FloatStandIn,
    SizeStandIn,
    restore,
    stand_in,
)
from gemmproof.reference.symbolic.wrapper.watch import Watch
from gemmproof.reference.ttir.frontend import identify, make_ttir
from gemmproof.reference.ttir.module import Function, ReadError
from gemmproof.reference.ttir.reader import read_module

_MOST_MODULES = 256
_modules: dict[str, tuple[str, dict[str, Function]]] = {}


@dataclass(slots=True)
class _Settings:
    """What `intercept_launches` reads and keeps of a session."""

    target: str
    config: int
    configs: int = 1
    written: int = 1
    tries: bool = False
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    """A kernel's TTIR, for whoever looks at what was compiled."""

    text: str


class TracedKernel(Kernel):
    """The stand-in for a compiled kernel, which notes its launches for the running trace."""

    watch: Watch
    settings: _Settings

    def __init__(self, src: Any, target: Any, options: Any, made: Any) -> None:
        text, self.functions = made
        super().__init__(src, target, options, cast(Any, _Text(text)))

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        return None

    def run(
        self, x: Any, y: Any, z: Any, stream: Any, function: Any, packed: Any,
        metadata: Any, enter: Any, exit: Any, *args: Any,
    ) -> None:  # fmt: skip
        _note(self, (x, y, z), args)


def _compile(src: Any, target: Any = None, options: Any = None, **_: Any) -> TracedKernel:
    """What Triton calls to compile a specialisation."""
    backend = make_backend(target)
    given = dict(options or {})
    parsed = backend.parse_options({**given, "debug": True, "sanitize_overflow": False})
    key = f"{identify(src)} {target} {parsed}"
    if key not in _modules:
        try:
            with swap(as_before()):  # no size comes this far, and all of it asks what things are
                text = make_ttir(src, target, parsed)
                _modules[key] = text, read_module(text)
        except ReadError as error:
            raise NotKnown(f"{src.fn.__name__}: TTIR that is not understood: {error}") from None
        if len(_modules) > _MOST_MODULES:
            _modules.pop(next(iter(_modules)))
    return TracedKernel(src, target, backend.parse_options(given), _modules[key])


@contextmanager
def trace_launches(watch: Watch, target: str | None, config: int) -> Iterator[None]:
    """While active, every launch of a Triton kernel is noted in `watch`, and none runs."""
    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        constants = {p.name for p in self.params if p.is_constexpr}
        order = zip(self.arg_names, args, strict=False)
        given = [_settle(watch.sizes, self, n, x) if n in constants else x for n, x in order]
        given += args[len(given) :]
        named = {
            name: x if name in self.arg_names and name not in constants
            else _settle(watch.sizes, self, name, x)
            for name, x in kwargs.items()
        }  # fmt: skip
        for hook in self.pre_run_hooks:
            hook(*given, **named)

        def symbolic(bound: Any) -> Any:
            return grid({name: restore(x) for name, x in bound.items()})

        with swap(((self, "pre_run_hooks", []),)):
            return original(
                self,
                *map(stand_in, given),
                grid=symbolic if callable(grid) else grid,
                warmup=warmup,
                **{name: stand_in(x) for name, x in named.items()},
            )

    original_tune = Autotuner.run

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.tuning += 1
        try:
            return original_tune(self, *args, **kwargs)
        finally:
            watch.tuning -= 1

    settings = _Settings(f"symbolic {target}", config)
    patches = (
        (JITFunction, "run", run),
        (Autotuner, "run", tune),
        (TracedKernel, "watch", watch),
        (TracedKernel, "settings", settings),
        _power_of_2(watch.sizes),
    )
    with ExitStack() as stack:
        stack.enter_context(swap(patches))
        stack.enter_context(intercept_launches(cast(Any, settings), _compile))
        tries = _try_all(watch, settings, Autotuner.run)
        stack.enter_context(swap(((Autotuner, "run", tries),)))
        yield


def _try_all(watch: Watch, settings: _Settings, tune: Any) -> Any:
    """A tuner's run that makes the wanted launch, and notes that of each other configuration.

    Where a hook does more than to set arguments, or a configuration is refused, these have runs of
    the wrapper of their own. The wanted one comes last again, as after tuning.
    """

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        begun, done, wanted = len(watch.launches), len(watch.operations), settings.config
        result = tune(self, *args, **kwargs)
        configs = settings.configs
        if watch.tuning or configs < 2 or len(watch.operations) > done + 1:
            return result
        before = watch.save()
        try:
            for config in (*range(configs), wanted):
                settings.config = config
                tune(self, *args, **kwargs)
            if watch.save()[1:] == before[1:] and len(watch.operations) == done + configs + 2:
                watch.variants[begun] = watch.launches[begun + 1 : -1]
        except Exception:
            watch.variants.pop(begun, None)
        settings.config = wanted
        watch.restore(before)
        return result

    return run


def _settle(sizes: Decisions, kernel: Any, name: str, value: Any) -> Any:
    """A constant of a kernel, which must be a number; a comparison is decided."""
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, torch.SymInt):
        what = sizes.term(value)
        number = sizes.number(what)
        if number is None:
            words = f"{kernel.fn.__name__}: {name} is {what}, made a constant by the launch"
            raise sizes.fail(words)
        return number
    if isinstance(value, torch.SymFloat):
        raise sizes.fail(f"{kernel.fn.__name__}: {name} is a float that the sizes decide")
    if isinstance(value, tuple):
        items = [_settle(sizes, kernel, name, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _power_of_2(sizes: Decisions) -> tuple[Any, str, Any]:
    """triton.next_power_of_2, which decides between the powers: each is a path of its own."""
    known = triton.next_power_of_2
    owner, name = (known, "fn") if hasattr(known, "fn") else (triton, "next_power_of_2")
    original = getattr(owner, name)

    def next_power_of_2(n: Any) -> Any:
        if not isinstance(n, torch.SymInt):
            return original(n)
        what, power = sizes.term(n), 1
        if sizes.decide(le(what, 0)):
            return 0
        while not sizes.decide(le(what, power)):
            power *= 2
        return power

    return owner, name, next_power_of_2


def _note(kernel: TracedKernel, grid: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    watch, settings, src = TracedKernel.watch, TracedKernel.settings, kernel.src
    name = kernel.name
    if any(isinstance(n, float | torch.SymFloat) for n in grid):
        raise watch.sizes.fail(f"{name}: a grid of floats")
    sizes = cast(tuple[Poly, Poly, Poly], tuple(watch.sizes.term(n) for n in grid))
    named = [
        leaf
        for parameter, value in zip(src.fn.arg_names, args, strict=True)
        for leaf in _flatten(watch, parameter, value, src.signature[parameter])
    ]
    public = next(f for f in kernel.functions.values() if f.public)
    if len(public.args) != len(named):
        words = f"{name}: {len(named)} arguments for {len(public.args)} parameters"
        raise watch.sizes.fail(words)
    where = here()
    watch.launches.append(
        TracedLaunch(
            name,
            kernel.functions,
            [parameter for parameter, _ in named],
            [argument for _, argument in named],
            sizes,
            {_parameter(src, k): getattr(x, "value", x) for k, x in src.constants.items()},
            {k: getattr(kernel.metadata, k) for k in ("num_warps", "num_stages", "num_ctas")},
            where,
            settings.config % settings.configs,
            settings.configs,
        )
    )
    watch.operations.append(TorchCall("launch", (len(watch.launches) - 1,), {}, (), where))


def _parameter(src: Any, path: tuple[int, ...]) -> str:
    """The name of a parameter, or of an item of one that is a tuple."""
    return str(src.fn.arg_names[path[0]]) + "".join(f"[{i}]" for i in path[1:])


def _flatten(watch: Watch, name: str, value: Any, signature: Any) -> Iterator[tuple[str, Any]]:
    """What the kernel's function takes for one parameter: nothing, one item, or several."""
    if signature == "constexpr":
        return
    if isinstance(signature, tuple):
        for i, (item, inner) in enumerate(zip(value, signature, strict=True)):
            yield from _flatten(watch, f"{name}[{i}]", item, inner)
        return
    original = restore(value)
    if str(signature).startswith("tensordesc"):
        shape, strides = (
            tuple(map(watch.sizes.term, x)) for x in (original.shape, original.strides)
        )
        tensor, padding = watch.view(original.base), str(getattr(original, "padding", "zero"))
        yield name, HostDescriptor(tensor, shape, strides, tuple(original.block_shape), padding)
        yield from ((f"{name}.shape[{i}]", n) for i, n in enumerate(shape))
        yield from ((f"{name}.strides[{i}]", n) for i, n in enumerate(strides))
    elif str(signature).startswith("*"):
        base = original if isinstance(original, torch.Tensor) else original.base
        yield name, watch.view(base, original.dtype)
    elif isinstance(value, SizeStandIn):
        yield name, watch.sizes.term(original)
    elif isinstance(value, FloatStandIn):
        yield name, SizedFloat(str(original))
    else:
        yield name, float(value) if isinstance(value, float) else term(int(value))

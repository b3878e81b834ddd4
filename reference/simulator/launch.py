"""Launches on the simulator: Triton's own launch path, up to the compiler and the driver.

The binder, specialisation, heuristics, hooks and the autotuner's pruning are Triton's. The
compiler is replaced by its frontend alone, the launcher by the scheduler.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.reference.fake_cuda.answers import swap
from gemmproof.reference.observation import (
    CompileError,
    KernelError,
    SimulatorError,
    Unsupported,
)
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.simulator.interpreted import (
    find_jitted,
    interpreted_class,
    language_patches,
)
from gemmproof.reference.simulator.kernel import Kernel, compile_kernel
from gemmproof.reference.simulator.session import Session


class _Device(int):
    """A device number that keeps Triton's cache of simulated kernels apart from others."""

    key: str

    def __new__(cls, key: str) -> _Device:
        made = super().__new__(cls, 0)
        made.key = key
        return made

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, _Device) else int(self) == other


@contextmanager
def intercept_launches(session: Session, compiler: Any = compile_kernel) -> Iterator[None]:
    """While active, every launch of a Triton kernel runs on the simulator, for `session`.

    `compiler` makes what is launched, for who wants another than the simulator's.
    """
    tuned: dict[int, tuple[int, int]] = {}
    original_run, original_compile = JITFunction.run, JITFunction._do_compile
    original_tune = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        session.configs, session.written = tuned.pop(id(self), (1, 1))
        try:
            return original_run(self, *args, **kwargs)
        except SimulatorError as error:
            error.where = error.where or calling_line()
            raise
        except (TypeError, LookupError, ValueError, AssertionError) as error:
            if not _raised_by_triton(error):
                raise
            words = str(error.args[0]) if error.args else type(error).__name__
            # an option of another backend, or of another version of Triton
            kind = Unsupported if words.endswith("specified but unrecognised") else KernelError
            raise kind(f"{self.fn.__name__}: {words}", calling_line()) from error

    def compile_with_frontend(self: Any, *args: Any, **kwargs: Any) -> Any:
        with swap(((self, "compile", compiler),)):
            return original_compile(self, *args, **kwargs)

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        configs = _prune(self, args, kwargs)
        config = configs[session.config % len(configs)]
        try:
            if session.tries and len(configs) > 1:
                _try_out(self, config, args, kwargs, session)
            tuned[id(_innermost(self))] = len(configs), len(self.configs)
            with swap(((self, "configs", [config]),)):  # a single one is not timed
                return original_tune(self, *args, **kwargs)
        except CompileError as error:
            if len(configs) == 1:
                raise
            shown = " ".join(f"{k}={v}" for k, v in config.kwargs.items())
            raise CompileError(f"{error.message} with [{shown}]", error.where) from error

    def run_interpreted(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(find_jitted(self), *args, **kwargs)

    device = _Device(f"gemmproof {session.target or 'ieee'}{' sampled' * session.sampled}")
    interpreted = interpreted_class()
    patches = (
        (JITFunction, "run", run),
        *([(interpreted, "run", run_interpreted)] if interpreted is not None else []),
        *language_patches(),
        (JITFunction, "_do_compile", compile_with_frontend),
        (Autotuner, "run", tune),
        (driver.active, "get_current_device", lambda: device),
        (Kernel, "session", session),
    )
    with swap(patches), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION")
        yield


def _raised_by_triton(error: BaseException) -> bool:
    """Whether Triton's own launch path raised: the call is wrong, not what it called."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    file = frame.f_code.co_filename
    return "/triton/" in file or file.startswith("<") or "dynamic_func" in file


def _try_out(
    tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any], session: Session
) -> None:
    """A trial run, with the hooks that Triton's tuner calls around one and after the last.

    Its launch and accesses are not those of the call; what it leaves in memory is.
    """
    trace, launches = session.trace, list(session.run.launches)
    given = {**kwargs, **config.all_kwargs()}
    named = {**tuner.nargs, **given}
    session.trace = None
    if config.pre_hook is not None:
        config.pre_hook(named)
    tuner.pre_hook(named)
    tuner.fn.run(*args, **given)
    tuner.post_hook(named, exception=None)
    tuner.pre_hook(named, reset_only=True)
    session.trace, session.run.launches = trace, launches


def _innermost(tuner: Any) -> Any:
    function = tuner
    while not isinstance(function, JITFunction):
        function = find_jitted(function) if type(function) is interpreted_class() else function.fn
    return function


def _prune(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The configurations that the kernel's own pruning leaves for these arguments."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = list(tuner.prune_configs(kwargs))
    if not pruned:
        raise KernelError(f"{_innermost(tuner).__name__}: autotune leaves no configuration")
    return pruned

"""Triton's autotuners under a check, and the multiprocessor count that they query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources, PTXASError

from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.reference.fake_cuda.tensors import Facts, Table


# -- multiprocessors -----------------------------------------------------------------------------
@contextmanager
def multiprocessors(count: int | None) -> Iterator[list[int]]:
    """Within this context the device has `count` multiprocessors; None leaves it unchanged.

    Yields a list that grows by one entry whenever the device's properties are queried. A program
    of a persistent kernel loops over several tiles only if there are more tiles than programs;
    a low multiprocessor count makes that happen at small sizes.
    """
    asked: list[int] = []
    of_torch = torch.cuda.get_device_properties

    def torch_properties(device: Any = None) -> Any:
        asked.append(1)
        answer = of_torch(device)
        if count is None:
            return answer
        known = {name: getattr(answer, name) for name in dir(answer) if not name.startswith("_")}
        known["multi_processor_count"] = count
        return Facts("torch.cuda.get_device_properties()", **known)

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda, "get_device_properties", torch_properties))
        try:
            utils = driver.active.utils
        except RuntimeError:  # neither a device nor a fake one: nobody can query Triton
            utils = None
        if utils is not None:
            of_triton = utils.get_device_properties

            def triton_properties(device: int = 0) -> dict[str, Any]:
                asked.append(1)
                known: dict[str, Any] = of_triton(device)
                if count is None:
                    return known
                name = "driver.active.utils.get_device_properties()"
                return Table(name, {**known, "multiprocessor_count": count})

            stack.enter_context(patch.object(utils, "get_device_properties", triton_properties))
        yield asked


# -- autotune ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of one tuned launch, and how many its tuner chose from."""

    config: Any
    among: int

    def __str__(self) -> str:
        return str(self.config)


@contextmanager
def choose(index: int, choices: Sequence[Choice] = ()) -> Iterator[list[Choice]]:
    """Within this context the simulator runs tuned launches in `choices`, then in the index-th.

    Yields the list of chosen configurations.
    """
    prune = Autotuner.prune_configs
    chosen: list[Choice] = []

    def pick(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        pruned = list(prune(self, kwargs))
        if not pruned:
            return pruned
        chosen.append(_next(choices, len(chosen), index, pruned))
        return [chosen[-1].config]

    with patch.object(Autotuner, "prune_configs", pick):
        yield chosen


@contextmanager
def force(index: int, choices: Sequence[Choice] = ()) -> Iterator[list[Choice]]:
    """Within this context tuned launches measure nothing: they run in `choices`, then the index-th.

    Yields the list of chosen configurations. A launch raises CaseNotRunnable if the tuner would
    reject the configuration.
    """
    chosen: list[Choice] = []

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        choice = _next(choices, len(chosen), index, list(self.prune_configs(kwargs)))
        chosen.append(choice)
        config = self.best_config = choice.config
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        try:
            result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        except (OutOfResources, PTXASError, CompileTimeAssertionFailure) as error:
            if choice.among == 1:
                raise
            raise CaseNotRunnable(
                f"configuration {config}: {' '.join(str(error).split())}"
            ) from None
        self.nargs = None
        return result

    with patch.object(Autotuner, "run", run):
        yield chosen


@contextmanager
def watch_tuners(beat: Callable[[], None]) -> Iterator[list[Choice]]:
    """Within this context tuners measure and choose freely; yields the list of their choices.

    `beat` is called before each measurement.
    """
    run, bench = Autotuner.run, Autotuner._bench
    chosen: list[Choice] = []

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        chosen.append(Choice(self.best_config, len(self.configs)))
        return result

    def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
        beat()
        return bench(self, *args, **kwargs)

    with patch.object(Autotuner, "run", watched), patch.object(Autotuner, "_bench", measured):
        yield chosen


def _next(choices: Sequence[Choice], turn: int, index: int, pruned: list[Any]) -> Choice:
    if turn < len(choices):
        return choices[turn]
    return Choice(pruned[index % len(pruned)], len(pruned))

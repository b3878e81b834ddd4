"""Triton's autotuners under a check, and the multiprocessor count that they query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.reference.fake_cuda.tensors import Facts, Table
from gemmproof.reference.triton_hooks import TunedLaunch, intercept, swap


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

    def triton_properties(original: Any, device: int = 0) -> dict[str, object]:
        asked.append(1)
        known: dict[str, object] = original(device)
        if count is None:
            return known
        name = "driver.active.utils.get_device_properties()"
        return Table(name, {**known, "multiprocessor_count": count})

    with (
        swap([(torch.cuda, "get_device_properties", torch_properties)]),
        intercept(properties=triton_properties),
    ):
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
    chosen: list[Choice] = []

    def pick(original: Any, tuner: Any, kwargs: Mapping[str, object]) -> list[Any]:
        pruned = list(original(tuner, kwargs))
        if not pruned:
            return pruned
        chosen.append(_next(choices, len(chosen), index, pruned))
        return [chosen[-1].config]

    with intercept(prune=pick):
        yield chosen


@contextmanager
def force(index: int, choices: Sequence[Choice] = ()) -> Iterator[list[Choice]]:
    """Within this context tuned launches measure nothing: they run in `choices`, then the index-th.

    Yields the list of chosen configurations. A launch raises CaseNotRunnable if the tuner would
    reject the configuration.
    """
    chosen: list[Choice] = []

    def tune(launch: TunedLaunch) -> Any:
        choice = _next(choices, len(chosen), index, launch.prune())
        chosen.append(choice)
        try:
            return launch.run(choice.config)
        except (OutOfResources, PTXASError, CompileTimeAssertionFailure) as error:
            if choice.among == 1:
                raise
            reason = " ".join(str(error).split())
            raise CaseNotRunnable(f"configuration {choice.config}: {reason}") from None

    with intercept(tune=tune):
        yield chosen


@contextmanager
def watch_tuners(beat: Callable[[], None]) -> Iterator[list[Choice]]:
    """Within this context tuners measure and choose freely; yields the list of their choices.

    `beat` is called before each measurement.
    """
    chosen: list[Choice] = []

    def tune(launch: TunedLaunch) -> Any:
        result = launch.choose()
        chosen.append(Choice(launch.tuner.best_config, len(launch.tuner.configs)))
        return result

    def measure(original: Any, tuner: Any, *args: Any, **kwargs: Any) -> Any:
        beat()
        return original(tuner, *args, **kwargs)

    with intercept(tune=tune, measure=measure):
        yield chosen


def _next(choices: Sequence[Choice], turn: int, index: int, pruned: list[Any]) -> Choice:
    if turn < len(choices):
        return choices[turn]
    return Choice(pruned[index % len(pruned)], len(pruned))

"""Triton's autotuners under a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.reference.triton_hooks import Choices, TunedLaunch, intercept


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of one tuned launch, and how many its tuner chose from."""

    config: Any
    among: int

    def __str__(self) -> str:
        return str(self.config)


@contextmanager
def choose(index: int, choices: Sequence[Choice] = ()) -> Iterator[list[Choice]]:
    """Within this context the simulator runs tuned launches in `choices`, then by the index.

    Yields the list of chosen configurations.
    """
    chosen: list[Choice] = []
    others = Choices(index)

    def pick(original: Any, tuner: Any, kwargs: Mapping[str, object]) -> list[Any]:
        pruned = list(original(tuner, kwargs))
        if not pruned:
            return pruned
        named = {**tuner.nargs, **kwargs}
        chosen.append(_next(choices, len(chosen), others, tuner, named, pruned))
        return [chosen[-1].config]

    with intercept(prune=pick):
        yield chosen


@contextmanager
def force(index: int, choices: Sequence[Choice] = ()) -> Iterator[list[Choice]]:
    """Within this context tuned launches measure nothing: they run in `choices`, then by the index.

    Yields the list of chosen configurations. A launch raises CaseNotRunnable if the tuner would
    reject the configuration.
    """
    chosen: list[Choice] = []
    others = Choices(index)

    def tune(launch: TunedLaunch) -> Any:
        pruned = launch.prune()
        choice = _next(choices, len(chosen), others, launch.tuner, launch.named, pruned)
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


def _next(
    choices: Sequence[Choice], turn: int, others: Choices, tuner: Any,
    named: Mapping[str, Any], pruned: list[Any],
) -> Choice:  # fmt: skip
    if turn < len(choices):
        return choices[turn]
    _, index = others.pick(tuner, named, len(pruned))
    return Choice(pruned[index], len(pruned))

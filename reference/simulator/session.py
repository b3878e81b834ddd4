"""State shared by the launches of one simulated call: memory, options, sightings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.observation import Run
from gemmproof.reference.reserved import MOST_FILLED
from gemmproof.reference.simulator.memory import (
    AddressSpace,
    Argument,
    Storage,
    StridedView,
    element_dtype,
    view_of,
)
from gemmproof.reference.simulator.progress import SAMPLED_SECONDS, Brief, Progress


@dataclass(slots=True)
class Session:
    """One call of a wrapper. `names` are the tensors that faults have by name ("a", "b"), `words`
    what messages call them, where that is something else, `axes` the problem's names for the
    dimensions of those that are not a, b or c.

    `fill` is what uninitialised memory holds, `config` the autotune configuration (modulo
    how many there are), `trace` a list that collects every access, or None. `seconds` is the time
    limit (counted, see progress.py), `target` the GPU whose dots are imitated, None for exact IEEE
    dots, `configs` how many configurations the running kernel has, which its tuner left of those
    `written`, `tries` whether tuners make trial runs first. `sampled`: some programs of each launch
    run (sampled.py), and `partial`: what one stored, or an operator of torch gave, is not known.
    """

    names: dict[str, Any]
    fill: str = "nan"
    target: str | None = None
    config: int = 0
    seconds: float = 60.0
    trace: list[Any] | None = None
    tries: bool = False
    sampled: bool = False
    partial: bool = False
    memory: AddressSpace = field(default_factory=AddressSpace)
    run: Run = field(default_factory=Run)
    sightings: list[Any] = field(default_factory=list)
    operands: list[Argument] = field(default_factory=list)
    origins: list[Any] = field(default_factory=list)
    configs: int = 1
    written: int = 1
    progress: Progress = field(init=False)
    words: dict[str, str] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[Storage, tuple[str, StridedView]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.progress = Brief(SAMPLED_SECONDS) if self.sampled else Progress(self.seconds)
        for name, tensor in self.names.items():
            storage, view = self.memory.storage_of(tensor), view_of(tensor)
            storage.views.append(view)
            self._known.setdefault(storage, (name, view))

    def operand(self, parameter: str, tensor: Any) -> Argument:
        """A kernel's argument as an operand, named as the caller knows it."""
        storage, view = self.memory.storage_of(tensor), view_of(tensor)
        name, known = self._known.get(storage, (parameter, view))
        own = name if storage in self._known else ""
        axes = match_axes(view, known, self.axes.get(own) or axes_of(own, len(known.shape)))
        word = self.words.get(name, "") if storage in self._known else ""
        operand = Argument(name, element_dtype(tensor), view, storage, axes, word)
        self.operands.append(operand)
        return operand

    def knows(self, storage: Storage) -> bool:
        """Whether memory holds what it holds in a whole call: always, unless some programs run."""
        return not self.sampled or (storage in self._known and storage.data.size <= MOST_FILLED)

    def storage_name(self, storage: Storage) -> str | None:
        """What the caller calls the tensor in a storage, None if it named none there."""
        return self._known[storage][0] if storage in self._known else None


def match_axes(view: StridedView, known: StridedView, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The problem's names for a view's dimensions, matched by length and stride with a known view.

    `axes` are those of the known view. Numbers where the match is ambiguous.
    """
    dims, own = (list(zip(v.shape, v.strides, strict=True)) for v in (view, known))
    if dims == own:
        return axes
    if sorted(dims) == sorted(own) and len(set(own)) == len(own):
        return tuple(axes[own.index(d)] for d in dims)
    return axes_of("", len(dims))


def axes_of(name: str, ndim: int) -> tuple[str, ...]:
    """The problem's names for the dimensions of a, b and c; numbers for any other tensor."""
    words = {"a": ("M", "K"), "b": ("K", "N"), "c": ("M", "N")}.get(name)
    if words is None or ndim not in (2, 3):
        return tuple(map(str, range(ndim)))
    return words if ndim == 2 else ("batch", *words)

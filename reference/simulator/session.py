"""What one simulated call shares between its launches: memory, options, what was found."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.observation import Run
from gemmproof.reference.simulator.memory import Memory, Operand, Storage, element_dtype, view_of


@dataclass(slots=True)
class Session:
    """One call of a wrapper. `names` are the tensors that messages call by name ("a", "b").

    `dirt` is what memory that nothing defined holds, `config` the autotune configuration (modulo
    how many there are), `trace` a list that collects every access, or None. `seconds` is the time
    limit, `target` the GPU whose dots are imitated, None for exact IEEE dots, `configs` how many
    configurations the running kernel has.
    """

    names: dict[str, Any]
    dirt: str = "nan"
    target: str | None = None
    config: int = 0
    seconds: float = 60.0
    trace: list[Any] | None = None
    memory: Memory = field(default_factory=Memory)
    run: Run = field(default_factory=Run)
    events: list[Any] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)
    deadline: float = 0.0
    configs: int = 1
    _known: dict[Storage, list[tuple[str, Any, tuple[str, ...]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.seconds
        for name, tensor in self.names.items():
            self.know(name, tensor)

    def know(self, name: str, tensor: Any) -> None:
        """Let `tensor` be called `name`; its elements may be touched wherever its storage is."""
        storage = self.memory.storage_of(tensor)
        storage.views.append(view_of(tensor))
        known = self._known.setdefault(storage, [])
        known.append((name, tensor, axes_of(name, tensor.dim())))

    def operand(self, parameter: str, tensor: Any) -> Operand:
        """A kernel's argument as an operand, named as the caller knows it."""
        storage = self.memory.storage_of(tensor)
        name, axes = self.name_of(storage, tensor) or (parameter, _numbered(tensor.dim()))
        operand = Operand(name, element_dtype(tensor), view_of(tensor), storage, axes)
        self.operands.append(operand)
        return operand

    def storage_name(self, storage: Storage) -> str | None:
        """What the caller calls the tensor in a storage, None if it named none there."""
        return next((name for name, _, _ in self._known.get(storage, ())), None)

    def name_of(self, storage: Storage, tensor: Any) -> tuple[str, tuple[str, ...]] | None:
        """The name and axes of a view of a known tensor's storage, matched by its strides."""
        for name, known, axes in self._known.get(storage, ()):
            dims = list(zip(tensor.shape, tensor.stride(), strict=True))
            own = list(zip(known.shape, known.stride(), strict=True))
            if dims == own:
                return name, axes
            if sorted(dims) == sorted(own) and len(set(own)) == len(own):
                return name, tuple(axes[own.index(d)] for d in dims)
            return name, _numbered(tensor.dim())
        return None


def axes_of(name: str, ndim: int) -> tuple[str, ...]:
    """The problem's words for the dimensions of a, b and c."""
    words = {"a": ("M", "K"), "b": ("K", "N"), "c": ("M", "N")}.get(name)
    if words is None or ndim not in (2, 3):
        return _numbered(ndim)
    return words if ndim == 2 else ("batch", *words)


def _numbered(ndim: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(ndim))

"""The number of multiprocessors that a wrapper sees."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any

import torch

from gemmproof.reference.fake_cuda.tensors import Facts, Table
from gemmproof.reference.gpus import COUNTS, DEFAULT, GPUS
from gemmproof.reference.provenance import is_ours, owner
from gemmproof.reference.triton_hooks import intercept, swap

PROPERTIES, COUNT = "properties", "count"  # what a wrapper asks for
_NAMES = ("multi_processor_count", "multiprocessor_count")


def list_other_counts(target: str | None) -> tuple[int, ...]:
    """Return the numbers of multiprocessors of the GPUs, but for that of the target.

    Those with the fewest factors of two come first: they are what a kernel that works in groups of
    programs gets wrong, and there may be no time for all.
    """
    own = GPUS[target or DEFAULT].multiprocessors
    return tuple(sorted(set(COUNTS) - {own}, key=lambda count: (count & -count, count)))


# files whose code keeps the number, or the properties, from when they were imported
_keeping: set[str] = set()
_active: list[int | None] = []  # the numbers of the contexts


def keeps_number(files: Iterable[str]) -> bool:
    """Return whether code of these files keeps the number of the device that it was imported on."""
    return not _keeping.isdisjoint(files)


def _note_reading() -> None:
    """Note the line that reads the device's own number: no context can change what it keeps."""
    for frame, _ in walk_stack(sys._getframe(2)):
        file = frame.f_code.co_filename
        if owner(file) != "library" and (_active or frame.f_code.co_name == "<module>"):
            _keeping.add(file)
            return
        if is_ours(file):
            return


class DeviceProperties(Facts):
    """The properties of the fake device, in torch's words."""

    @property
    def multi_processor_count(self) -> int:
        """The number of multiprocessors."""
        _note_reading()
        own: int = self.__dict__["_own"]
        return own


class DeviceFigures(Table):
    """The properties of the fake device, in Triton's words."""

    def __getitem__(self, name: str) -> object:
        if name == _NAMES[1]:
            _note_reading()
        return super().__getitem__(name)


@contextmanager
def multiprocessors(count: int | None) -> Iterator[list[str]]:
    """Within this context the device has `count` multiprocessors; None leaves it unchanged.

    Yields a list that grows by PROPERTIES whenever the device's properties are queried, and by
    COUNT whenever the number is read from those of the fake device. A program of a persistent
    kernel loops over several tiles only if there are more tiles than programs; a low number makes
    that happen at small sizes.
    """
    asked: list[str] = []
    of_torch = torch.cuda.get_device_properties

    class Properties(Facts):
        """The properties, with the number in place of the device's."""

        @property
        def multi_processor_count(self) -> int:
            asked.append(COUNT)
            own: int = self.__dict__["_own"]
            return own if count is None else count

    class Figures(Table):
        """Triton's table of them."""

        def __getitem__(self, name: str) -> object:
            if name != _NAMES[1]:
                return super().__getitem__(name)
            asked.append(COUNT)
            return super().__getitem__(name) if count is None else count

        def get(self, name: str, default: object = None) -> object:
            return self[name] if name == _NAMES[1] else super().get(name, default)

    def torch_properties(device: Any = None) -> Any:
        asked.append(PROPERTIES)
        answer = of_torch(device)
        if count is None and not isinstance(answer, DeviceProperties):
            return answer
        names = (name for name in dir(answer) if not name.startswith("_") and name != _NAMES[0])
        known = {name: getattr(answer, name) for name in names}
        known["_own"] = answer.__dict__["_own"] if isinstance(answer, DeviceProperties) else count
        return Properties("torch.cuda.get_device_properties()", **known)

    def triton_properties(original: Any, device: int = 0) -> Any:
        asked.append(PROPERTIES)
        known: dict[str, object] = original(device)
        if count is None and not isinstance(known, Table):
            return known
        return Figures("driver.active.utils.get_device_properties()", known)

    with (
        swap([(torch.cuda, "get_device_properties", torch_properties)]),
        intercept(properties=triton_properties),
    ):
        _active.append(count)
        try:
            yield asked
        finally:
            _active.pop()

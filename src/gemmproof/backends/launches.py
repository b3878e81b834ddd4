"""A CUDA device as a backend: a wrapper is called with operands in its memory, between guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gemmproof.backends.autotune import Choice
from gemmproof.backends.multiprocessors import multiprocessors
from gemmproof.backends.on_device import Placed, find_changes
from gemmproof.engine.observe import PassedOver
from gemmproof.engine.wrapper_state import keep_state
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import PlacedOperand, Touched
from gemmproof.properties.judges.exact_values import list_shapes
from gemmproof.properties.observation import Observation, list_given
from gemmproof.reference.simulation import Run

# What free memory holds, launch after launch: NaN in every float format, zeros, large numbers.
FILLS = (0xFF, 0x00, 0x7B)
CUDA = "cuda"

Emit = Callable[[dict[str, Any]], None]


class Launches:
    """Calls a wrapper on `device`, its tuned launches in `choices`; None leaves that to the tuner.

    `ran` are the configurations that the first call ran in. Operands without room there, and a
    configuration that does not fit, raise PassedOver.
    """

    name = CUDA
    fills: tuple[str, ...] = tuple(f"0x{byte:02x}" for byte in FILLS)

    def __init__(self, device: Any, target: str | None, choices: list[Choice] | None, emit: Emit):
        self.device, self.target, self.choices, self.emit = device, target, choices, emit
        self.ran: list[Choice] = []
        self._placed: dict[str, Placed] = {}
        self._failed = False

    def place(self, operand: PlacedOperand, case: Case) -> torch.Tensor:
        """The operand in the device's memory, between the same guards."""
        wanted = operand.parent.nbytes
        try:
            if wanted > self.device.room():
                raise torch.OutOfMemoryError
            placed: Placed = self.device.place(operand, operand.dtype)
        except torch.OutOfMemoryError:
            raise PassedOver(f"an operand of {wanted / 2**30:.1f} GiB") from None
        self._placed[operand.role.name] = placed
        return placed.tensor

    def call(
        self, observation: Observation, case: Case, tensors: Mapping[str, torch.Tensor], number: int
    ) -> Run:
        """Call the wrapper, and wait for its launches."""
        if number == 0:
            keep_state(observation.kernel.launch).restore()
        count = len(list_shapes(observation))

        def launch(*arguments: torch.Tensor) -> object:
            given = dict(zip(tensors, arguments, strict=True))
            with multiprocessors(case.sms):
                return observation.kernel.call(case, given, count)

        self.device.fill_uninitialised(FILLS[number])
        self._failed = True
        try:
            result, ran = self.device.call(
                launch, tuple(tensors.values()), case.config, self.choices, self._beat
            )
        except torch.OutOfMemoryError:
            raise PassedOver("operands that leave no memory for the result") from None
        self._failed = False
        self._beat()
        self.ran = self.ran or ran
        observation.device, observation.how = self.device.name, self._describe()
        kind = tensors["a"].device.type
        given = tuple(_fetch(one, kind) for one in list_given(result, count))
        return Run(result=given[0] if count == 1 else given)

    def _describe(self) -> str:
        """In which configuration it ran; "" where nothing was tuned."""
        how = ", ".join(str(choice) for choice in self.ran if choice.among > 1)
        by = "the tuner's configuration" if self.choices is None else "configuration"
        return how and f", in {by} {how}"

    def find_changes(self, operand: PlacedOperand) -> list[Touched]:
        """What launches changed of an operand; after a failed call the memory may be unreadable."""
        return [] if self._failed else find_changes(self._placed[operand.role.name])

    def _beat(self) -> None:
        self.emit({"event": "launched"})  # what compiles or measures is no hang


def _fetch(result: object, kind: str) -> torch.Tensor | None:
    """A result in the host's memory; None for what is none of such a device."""
    fits = isinstance(result, torch.Tensor) and result.device.type == kind
    return result.detach().cpu() if fits else None  # type: ignore[attr-defined]

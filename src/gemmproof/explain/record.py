"""The request of an explanation, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmproof.properties.address_map import AddressMap
from gemmproof.target import KernelRef


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """The address map of a kernel at the configuration `config` of its tuner.

    `case` is the JSON of the case that a picture is drawn of, if it `draws` one.
    """

    kernel: KernelRef
    gpu: str | None
    config: int
    case: str | None
    draws: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """An address map, and its Picture if one was requested."""

    addresses: AddressMap
    picture: Mapping[str, object] | None = None

"""The requests of `gemmproof reproduce` to its workers."""

from __future__ import annotations

from dataclasses import dataclass

from gemmproof.properties.finding import Finding
from gemmproof.target import KernelRef

# of a test: the message of its failure, "" if it passes, or None and the reason why it did not run
Outcome = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class ReproduceRequest:
    """A finding to be reduced; `calls` is false if a call of the kernel may end its process."""

    kernel: KernelRef
    gpu: str | None
    finding: Finding
    calls: bool


@dataclass(frozen=True, slots=True)
class WrittenTest:
    """The text of a test, and the path that it will have."""

    text: str
    path: str

"""The calls of wrappers that a command made, as the command's process wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmproof.properties.codec import parse

# the variable that names the file of the record; it begins recording in a process of Python
FILE = "GEMMPROOF_RECORD"
QUIET = "GEMMPROOF_RECORD_QUIET"
# kinds of wrappers: those of METHOD are not declared
FUNCTION, AUTOGRAD, METHOD = "function", "autograd", "method"


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """A tensor that a wrapper was given, as it was when the call began.

    `format` is "" for a dtype without one. `low` and `high` are the lowest and highest integer of
    a tensor of integers, `in_order` whether they never decrease. `written`: the call changed it;
    `read`: a kernel loaded from it, or torch changed it.
    """

    format: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int | None = None
    high: int | None = None
    in_order: bool = False
    written: bool = False
    read: bool = True


@dataclass(frozen=True, slots=True)
class RecordedArgument:
    """An argument by the name of its parameter: a tensor, or else the text of a value.

    Of one that is neither a tensor nor a plain value, `text` is "" and `other` says what it is.
    """

    name: str
    tensor: RecordedTensor | None = None
    text: str = ""
    other: str = ""
    is_default: bool = False
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a wrapper that launched kernels: `programs` of each, by the kernel's name."""

    file: str
    function: str
    kind: str
    arguments: tuple[RecordedArgument, ...]
    programs: dict[str, int]

    @property
    def tensors(self) -> dict[str, RecordedTensor]:
        """The tensors by parameter."""
        return {x.name: x.tensor for x in self.arguments if x.tensor is not None}


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """A line of the record: a call, or why a process records nothing; `path` is its sys.path."""

    call: RecordedCall | None = None
    failure: str = ""
    path: tuple[str, ...] = ()


def read_events(path: Path) -> Iterator[RecordEvent]:
    """Yield the lines of a record; the last one may be cut off by the end of a process."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield parse(RecordEvent, line, "record")
        except ValueError:
            continue

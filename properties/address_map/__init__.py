"""The records of an address map."""

from __future__ import annotations

from dataclasses import dataclass

# -- record --------------------------------------------------------------------------------------
PROVED, MASKED, INSIDE, MISSING, OPEN = (
    "proved",
    "from the mask",
    "not needed",
    "missing",
    "not decided",
)


@dataclass(frozen=True, slots=True)
class Need:
    """A condition on an index: proved, from the mask, missing, and so on."""

    text: str
    status: str


@dataclass(frozen=True, slots=True)
class Index:
    """The index along one axis of an operand's own view, as a formula."""

    axis: str
    formula: str
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class Fix:
    """The missing condition: as text, as Python to be joined to the mask, and the call with it.

    `condition` and `call` are "" if the source has no names for it. `proved`: the solver showed
    that with it every need of the access follows. `besides`: further conditions of the mask that no
    need asks for, as text: lanes in view may be masked off by it.
    """

    text: str
    condition: str
    call: str
    proved: bool
    besides: str = ""


@dataclass(frozen=True, slots=True)
class AccessMap:
    """One load, store or atomic: its operand, its position in the source, its index and its mask.

    `status` is that of the whole: proved, missing or not decided; `why` is the reason why it is not
    decided, `case` the sizes at which it fails.
    """

    kind: str
    operand: str
    file: str
    line: int
    column: int | None
    shape: tuple[int, ...]
    indices: tuple[Index, ...]
    mask: str
    status: str
    why: str = ""
    case: str = ""
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class KernelMap:
    """One launch of a kernel: its grid, and its accesses in the order of the source.

    `path` is the condition on the sizes under which the wrapper launches it, "" for none.
    `constants` are those of its configuration. `failed`: the reason why it could not be followed.
    """

    kernel: str
    grid: tuple[str, ...]
    path: str
    constants: tuple[tuple[str, str], ...]
    accesses: tuple[AccessMap, ...] = ()
    failed: str = ""


@dataclass(frozen=True, slots=True)
class AddressMap:
    """The address map of a wrapper; `open` lists the reasons why parts could not be followed."""

    kernels: tuple[KernelMap, ...]
    open: tuple[str, ...]
    scope: str

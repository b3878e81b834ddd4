"""What a contract promises of the compiled kernel: the words, their properties, the GPUs meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gemmproof.reference.gpus import DEFAULT, GPUS

if TYPE_CHECKING:
    from gemmproof.properties.contract import Contract

TENSOR_CORES = "uses_tensor_cores"
SPILLS = "spills_no_more"
FITS = "fits_on_its_gpus"
# what judges them: no case on a simulator or a device, but Triton's compiler
COMPILER = "compiler"
# of each property -> whether a contract promises it
PROMISED: Mapping[str, Callable[[Contract], bool]] = MappingProxyType(
    {
        TENSOR_CORES: lambda contract: contract.tensor_cores,
        SPILLS: lambda contract: contract.spills is not None,
        FITS: lambda contract: len(contract.fits) > 0,
    }
)

# the words of a contract that promises none of them
WITHOUT: Mapping[str, Any] = MappingProxyType({"tensor_cores": False, "spills": None, "fits": ()})


def require_compiled(tensor_cores: object, spills: object, fits: object) -> None:
    """Raise ValueError, in one line, for values that these words of a contract do not have."""
    if not isinstance(tensor_cores, bool):
        raise ValueError(f"contract tensor_cores: got {tensor_cores!r}, expected True or False")
    if spills is not None and (type(spills) is not int or spills < 0):
        expected = "bytes of a thread, from 0, or None"
        raise ValueError(f"contract spills: got {spills!r}, expected {expected}")
    known: tuple[Any, ...] = fits if isinstance(fits, tuple) else (None,)
    if any(not isinstance(name, str) or name not in GPUS for name in known):
        raise ValueError(f"contract fits: got {fits!r}, expected a tuple of {' '.join(GPUS)}")
    if len(set(known)) < len(known):
        raise ValueError(f"contract fits: got {fits!r}, expected each GPU once")


def list_promised(contract: Contract) -> tuple[str, ...]:
    """The properties of compiled code that a contract promises; none costs anything else."""
    return tuple(name for name, promises in PROMISED.items() if promises(contract))


def list_gpus(contract: Contract, target: str | None) -> tuple[str, ...]:
    """The GPUs that all of them are judged on: those of `fits`, or else the target."""
    return contract.fits or (target or DEFAULT,)

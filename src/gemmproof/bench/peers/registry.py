"""The names of torch's own peers, and the peer of a name for what a kernel takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch

from gemmproof.bench.calls import Callee
from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.peers.epilogues import make_addmm, make_addmm_activation, make_compiled
from gemmproof.bench.peers.packed import make_int4pack
from gemmproof.bench.peers.products import make_bmm, make_int_mm, make_matmul, make_scaled_mm
from gemmproof.reference.formats import Format
from gemmproof.target import TargetError

PEERS: Mapping[str, Callable[[Stated, Format], Callee]] = MappingProxyType(
    {
        "matmul": make_matmul,
        "bmm": make_bmm,
        "int_mm": make_int_mm,
        "scaled_mm": make_scaled_mm,
        "scaled_mm_fast": partial(make_scaled_mm, fast=True),
        "addmm": make_addmm,
        "addmm_relu": partial(make_addmm_activation, gelu=False),
        "addmm_gelu": partial(make_addmm_activation, gelu=True),
        "compile": make_compiled,
        "compile_relu": partial(make_compiled, activation="relu"),
        "compile_gelu": partial(make_compiled, activation="gelu"),
        "compile_gelu_tanh": partial(make_compiled, activation="gelu_tanh"),
        "compile_silu": partial(make_compiled, activation="silu"),
        "int4pack_mm": make_int4pack,
    }
)


def make_peer(name: str | None, stated: Stated, out: Format) -> Callee:
    """The peer of that name for what a kernel takes; None for torch's own product of the format.

    Raises TargetError, in one line, for what it cannot be, and for what this torch does not have.
    """
    fmt = stated.fmt
    if name is None:
        name = "scaled_mm" if fmt.is_fp8 else "int_mm" if fmt.kind == "int" else "matmul"
    try:
        return PEERS[name](stated, out)
    except AttributeError:
        got = f"torch {torch.__version__}, which does not have it"
        raise TargetError(f"--against {name}: got {got}, expected another peer") from None
    except ValueError as mistake:
        raise TargetError(f"--against {name}: {mistake}") from None


def require_known(where: str, name: str) -> None:
    """Raise ValueError, in one line, for a name that no peer has."""
    if name not in PEERS:
        raise ValueError(f"{where}: got {name!r}, expected a function or one of {' '.join(PEERS)}")

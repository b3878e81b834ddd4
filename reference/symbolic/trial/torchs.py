"""What torch computes between launches, done by torch itself on the numbers of a trial."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from gemmproof.reference.symbolic.terms import Poly
from gemmproof.reference.symbolic.trial.lattice import Unclear
from gemmproof.reference.symbolic.trial.memory import Buffer, Count, place
from gemmproof.reference.symbolic.trial.numbers import keep
from gemmproof.reference.symbolic.wrapper.record import TensorView, TorchCall

# operations that are the same on float64 as on any type that holds their numbers
_KNOWN = (
    "sum", "add", "add_", "mul", "mul_", "sub", "clone", "copy_", "_to_copy", "zeros", "zeros_like",
    "new_zeros", "zero_", "fill_", "ones", "full",
)  # fmt: skip


def calculate(call: TorchCall, find: Callable[[TensorView], Buffer], count: Count) -> None:
    """Do what a call does. Raises Unclear for one that is not known."""
    namespace, name, overload = (*call.name.split("."), "default")[:3]
    if namespace != "aten" or name not in _KNOWN or len(call.outputs) != 1:
        raise Unclear("an operation that is not known")
    (view,) = call.outputs
    held, at = find(view), place(view, count)
    undefined = False

    def read(view: TensorView) -> torch.Tensor:
        nonlocal undefined
        given, here = find(view), place(view, count)
        if given.unclear:
            raise Unclear(given.unclear)
        undefined |= bool(given.bad[here].any())
        return torch.from_numpy(given.data[here])

    args, kwargs = tree_map_only(Poly, count, (call.args, dict(call.kwargs)))
    first = args[:1] if name in ("copy_", "zero_", "fill_") else ()
    if first:  # it is not read
        args = (torch.zeros(tuple(map(count, first[0].shape)), dtype=torch.float64), *args[1:])
    args, kwargs = tree_map_only(TensorView, read, (args, kwargs))
    kwargs = {
        k: x for k, x in kwargs.items() if k not in ("dtype", "device", "layout", "pin_memory")
    }
    if name in ("zeros", "ones", "full", "new_zeros"):
        kwargs["dtype"] = torch.float64
    made = getattr(getattr(torch.ops.aten, name), overload)(*args, **kwargs).numpy()
    held.data[at] = keep(np.asarray(made, np.float64), view.dtype)
    held.bad[at] = undefined
    if not undefined:
        held.empty[at] = False
    if at.size == held.data.size:
        held.unclear = ""

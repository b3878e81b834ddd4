"""Operands on a device: the same views between the same guard bands, and what a launch changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch

from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.cases.operands import POISON_FLOAT, POISON_INT, PlacedOperand, Touched
from gemmproof.properties.cases.operands import find_changes as find_host_changes
from gemmproof.reference.formats import FORMATS

CHUNK = 2**28  # bytes that are compared at once


@dataclass(frozen=True, slots=True)
class Placed:
    """An operand's whole storage on a device, as bytes, and the view of it that a kernel is given.

    Memory of a huge parent that the operand does not watch holds `poison` here.
    """

    operand: PlacedOperand
    tensor: torch.Tensor
    storage: torch.Tensor
    poison: int


def place(operand: PlacedOperand, dtype: str, device: torch.device) -> Placed:
    """The operand as it is, on `device`. Raises torch.OutOfMemoryError if it has no room there."""
    poison = POISON_INT if FORMATS[dtype].kind == "int" else POISON_FLOAT
    storage = torch.full((operand.parent.nbytes,), poison, dtype=torch.uint8, device=device)
    width = operand.parent.itemsize
    for (start, stop), before in zip(operand.watched, operand.before, strict=True):
        storage[start * width : stop * width] = torch.from_numpy(before.view(np.uint8)).to(device)
    skip = 3 - operand.tensor.dim()
    view = operand.view
    elements = storage.view(TORCH_DTYPES[dtype])
    tensor = torch.as_strided(elements, view.shape[skip:], view.strides[skip:], view.first)
    return Placed(operand, tensor, storage, poison)


def find_changes(placed: Placed) -> list[Touched]:
    """What launches changed of an operand since it was placed, at most one entry per kind."""
    operand, width = placed.operand, placed.operand.parent.itemsize
    parent = operand.parent.view(np.uint8)
    for start, stop in operand.watched:
        here = slice(start * width, stop * width)
        parent[here] = placed.storage[here].cpu().numpy()
    found = find_host_changes(replace(operand, tensor=placed.tensor))
    edges = [0, *chain.from_iterable(operand.watched), operand.view.extent]
    for start, stop in zip(edges[::2], edges[1::2], strict=True):  # what is not watched
        for begin in range(start * width, stop * width, CHUNK):
            part = placed.storage[begin : min(begin + CHUNK, stop * width)]
            wrong = part != placed.poison
            if bool(wrong.any()):
                at = (begin + int(wrong.nonzero()[0])) // width - operand.view.first
                where = f"{operand.role.name} offset {at}"
                return [*found, Touched(operand.role.name, "gap", where, int(wrong.sum()))]
    return found

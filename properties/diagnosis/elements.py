"""Elements that may have stood in an operand's place: other numbers, strides, indices or bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.contract import ROLES
from gemmproof.properties.diagnosis.readings import list_readings, list_strided
from gemmproof.properties.naming import axes_of, axis_named, introduce
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FORMATS

MOST_CUTS = 16  # places at which an operand may end too early
# AWQ's places of the eight nibbles of a word
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Elements:
    """What may have stood in an operand's place: the class, the words, elements, and the axis along
    which entries were mixed up, if any."""

    fault: str
    words: str
    used: Array
    axis: int | None = None


def list_elements(observation: Observation, name: str, own: Array) -> Iterator[Elements]:
    """Everything that may have stood in an operand's place, the simplest first."""
    placed, stated = observation.operands[name], name in observation.kernel.tensors
    if name not in ROLES:
        yield from _list_numbers(observation, name, own)
    if own.dtype.kind in "iu" and stated:
        yield from _list_bits(own)
    # one row has no strides to exchange
    for words, other in list_readings(placed) if own.ndim > 1 else ():
        yield Elements("operand_strides", f"were read with {words}", other)
    if own.ndim >= 2 and own.shape[-1] == own.shape[-2]:
        yield Elements("operand_transposed", "were transposed", np.swapaxes(own, -1, -2))
    blocks = list_blocks(observation, 0, 1, 2)
    for axis in range(own.ndim):
        code, label = own.view(f"u{own.itemsize}"), axes_of(observation, name)[axis]
        for fault, words, place in _list_places(own.shape[axis], blocks):
            # of a matrix along M or N it is the same as rows or columns of c that are lost
            if fault == "operand_cut" and own.ndim > 1 and axis_named(label) != "K":
                continue
            used = np.take(code, place.clip(0), axis)
            kept = (place >= 0).reshape([-1 if d == axis else 1 for d in range(own.ndim)])
            used = np.where(kept, used, code.dtype.type(0)).view(own.dtype)
            yield Elements(fault, words, used, axis)
    for words, other in list_strided(placed) if stated and own.size else ():
        yield Elements("operand_strides", f"were read with {words}", other)


def _list_places(n: int, blocks: Sequence[int]) -> Iterator[tuple[str, str, Array]]:
    """Which of n entries may have been read in the place of each; -1 for a zero."""
    index, last = np.arange(n), n - 1
    if n < 2:
        return
    yield "operand_broadcast", "had the first entry everywhere", index * 0
    yield "operand_shifted", "were one behind", (index - 1) % n
    yield "operand_shifted", "were one ahead", (index + 1) % n
    yield "operand_shifted", "were one behind, the first twice", (index - 1).clip(0)
    yield "operand_shifted", "were one ahead, the last twice", (index + 1).clip(0, last)
    for size in (s for s in (2, 4, 8) if s < n):
        words = f"had the first of every {size} entries in place of them all"
        yield "operand_broadcast", words, index // size * size
    yield "operand_groups", "were read at half the index", index // 2
    yield "operand_groups", "were read at twice the index", (index * 2).clip(0, last)
    # a tile has a few groups of k
    for block in (b for b in sorted({2, 4, 8, *blocks}) if b < n):
        yield "operand_wrapped", f"were read at the index modulo {block}", index % block
    for first in range(max(1, n - MOST_CUTS), n):
        yield "operand_cut", f"were 0 from index {first} on", np.where(index < first, index, -1)


def _list_numbers(observation: Observation, name: str, own: Array) -> Iterator[Elements]:
    """Other numbers in the place of a scale, a bias, a zero point."""
    fmt = FORMATS[observation.operands[name].dtype]
    # 127 is 1 in e8m0
    for value in (1, 0, 127) if fmt.name == "uint8" else (1, 0):
        yield Elements("operand_forgotten", f"were {value}", np.full_like(own, value))
    # in a format that loses nothing of what a kernel makes of them
    held = np.float32 if fmt.kind == "float" else np.int32
    wide = own if fmt.itemsize >= 4 else own.astype(held)
    with np.errstate(all="ignore"):
        yield Elements("operand_applied_twice", "were applied twice", wide * wide)
        for times, words in ((2, "twice"), (3, "three times"), (4, "four times")):
            added = (wide * times).astype(wide.dtype)
            yield Elements("operand_applied_twice", f"were added {words}", added)
        if fmt.kind == "float":
            yield Elements("operand_multiplied", "were halved", (wide / 2).astype(wide.dtype))
            yield Elements("operand_inverted", "were inverted", (1 / wide).astype(wide.dtype))
        else:
            yield Elements("operand_off_by_one", "were one less", wide - 1)
            yield Elements("operand_off_by_one", "were one more", wide + 1)
        yield Elements("operand_negated", "were negated", np.negative(wide))
    for other, one in observation.operands.items():
        same = (one.dtype, one.tensor.shape) == (fmt.name, own.shape)
        if same and other != name:
            words = f"were {introduce(observation, other)}"
            yield Elements("operand_replaced", words, stored_elements(one))


def _list_bits(own: Array) -> Iterator[Elements]:
    """Integers read with the other sign, or with the nibbles of their words in another order."""
    bits = 8 * own.itemsize
    code = own.view(f"u{own.itemsize}")
    if bits < 32:
        other = code if own.dtype.kind == "i" else own.view(f"i{own.itemsize}")
        sign = "unsigned" if own.dtype.kind == "i" else "signed"
        yield Elements("operand_sign", f"were {sign}", other.astype(np.int32))
    orders = {"reversed": tuple(range(bits // 4))[::-1]}
    if bits // 4 == len(AWQ):
        orders |= {
            "in AWQ's order": AWQ,
            "taken as if they were in AWQ's order": tuple(np.argsort(AWQ).tolist()),
        }
    wide = code.astype(np.uint64)
    for words, order in orders.items():
        made = np.zeros_like(wide)
        for to, of in enumerate(order):
            made |= ((wide >> np.uint64(4 * of)) & np.uint64(15)) << np.uint64(4 * to)
        used = made.astype(code.dtype).view(own.dtype)
        yield Elements("operand_nibbles", f"had the nibbles of its words {words}", used)


def list_blocks(observation: Observation, *axes: int) -> list[int]:
    """The sides of tiles along these axes of M, N, K; what they may be where no dot has one."""
    known = sorted({tile[axis] for tile in observation.tiles for axis in axes})
    return known or [2**i for i in range(3, 11)]

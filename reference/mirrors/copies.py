"""Operands that the copy engine cannot address, and the copies that stand for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmproof.reference.mirrors.call import MirrorCall, MirrorTensor, Part, StatedLaunch, look
from gemmproof.reference.mirrors.launch import MirrorLaunch

ENGINE_BYTES = 16


def pad_row(length: int, itemsize: int) -> int:
    """The elements from one row of a copy to the next: as few as end at a multiple of 16 bytes."""
    step = ENGINE_BYTES // itemsize
    return -(-length // step) * step


def can_address(x: MirrorTensor, dense: int) -> bool:
    """Whether the engine takes a matrix that is dense along the axis `dense`.

    Its first address and the distance from a row (a column) to the next, which is not 0, are
    multiples of 16 bytes.
    """
    pitch = x.strides[1 - dense]
    aligned = x.address % ENGINE_BYTES == 0 and pitch * x.itemsize % ENGINE_BYTES == 0
    return x.strides[dense] == 1 and pitch > 0 and aligned


def copy_call(call: MirrorCall) -> tuple[MirrorCall, dict[str, Part]]:
    """The call on copies of what the engine cannot address, and the names of the copies.

    Copies of a have dense rows, of b dense columns, as 8 bits must be anyway. A result is addressed
    where its rows also end at 16 bytes.
    """
    a, b, c = (call.tensors[name] for name in "abc")
    K, N = b.shape
    either = (0, 1)
    fits = {
        "a": any(can_address(a, dense) for dense in ((1,) if a.itemsize == 1 else either)),
        "b": any(can_address(b, dense) for dense in ((0,) if b.itemsize == 1 else either)),
        "c": can_address(c, 1) and N * c.itemsize % ENGINE_BYTES == 0,
    }
    along_k = pad_row(K, a.itemsize)
    copies = {"a": (along_k, 1), "b": (1, along_k), "c": (pad_row(N, c.itemsize), 1)}
    tensors = dict(call.tensors)
    for name in (name for name in "abc" if not fits[name]):
        tensors[name] = replace(tensors[name], strides=copies[name])
    names = {name: Part(f"{name}_desc") for name in "abc" if not fits[name]}
    return replace(call, tensors=tensors), names


def state_padded(
    call: MirrorCall, product: Callable[[MirrorLaunch], list[StatedLaunch]]
) -> list[StatedLaunch]:
    """`product`, on copies where it goes by descriptors. What copies them is no launch.

    The copy engine stores whole parts of 16 bytes: the rows of a copied result to their end.
    """
    if "A_IS_T" not in call.constants:
        return product(call.launch)
    copied, names = copy_call(call)
    launch = copied.launch
    if "c" in names:
        launch = replace(launch, spare=launch.stride_cm - launch.N)

    def stand_in(stated: StatedLaunch) -> StatedLaunch:
        return replace(stated, run=lambda mem: stated.run(look(mem, **names)))

    return [stand_in(stated) for stated in product(launch)]

"""What a cubin's own tables say of its kernel: registers, stack, shared memory, threads.

NVIDIA does not document the attributes of the sections `.nv.info`; their names and numbers are
those that its own `cuobjdump -elf` prints beside them. An attribute is a byte for the form, one for
the name and two for a value (forms 1 to 3) or for the length of the bytes that follow (form 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO

_BYTES_FOLLOW = 4  # EIFMT_SVAL
_REQNTID, _FRAME_SIZE, _MIN_STACK_SIZE, _REGCOUNT = 0x10, 0x11, 0x12, 0x2F


@dataclass(frozen=True, slots=True)
class CubinFacts:
    """Of one kernel: registers of a thread, bytes of its stack, static shared memory, threads."""

    registers: int
    stack: int
    shared: int
    threads: int | None


def read_cubin(binary: bytes, kernel: str) -> CubinFacts:
    """The facts of a kernel by its name. Raises ValueError, in one line, where they are missing."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        elf = ELFFile(BytesIO(binary))
        sections = {section.name: section for section in elf.iter_sections()}
        symbols = next(x for x in sections.values() if isinstance(x, SymbolTableSection))
        of_all = list(_list_attributes(sections[".nv.info"].data()))
        own = list(_list_attributes(sections[f".nv.info.{kernel}"].data()))
    except (ELFError, KeyError, StopIteration, struct.error) as error:
        raise ValueError(f"cubin: got {error}, expected an ELF with .nv.info.{kernel}") from None

    def find(name: int) -> int:
        for attribute, value in of_all:
            if attribute == name and len(value) == 8:
                index, number = struct.unpack("<II", value)
                if symbols.get_symbol(index).name == kernel:
                    return int(number)
        raise ValueError(f"cubin: got no attribute {name:#x} of {kernel}, expected one")

    shared = sections.get(f".nv.shared.{kernel}")
    threads = next((_product(x) for name, x in own if name == _REQNTID and len(x) == 12), None)
    stack = max(find(_FRAME_SIZE), find(_MIN_STACK_SIZE))  # the other has what it calls in it
    return CubinFacts(
        find(_REGCOUNT), stack, 0 if shared is None else int(shared["sh_size"]), threads
    )


def _list_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, name, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _BYTES_FOLLOW:
            yield name, data[at : at + size]
            at += size


def _product(value: bytes) -> int:
    x, y, z = struct.unpack("<III", value)
    return int(x * y * z)

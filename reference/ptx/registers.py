"""How elements of tensors lie in the registers of inline assembly, by Triton's rules.

An invocation takes `pack` elements of each tensor. Elements below 32 bits share a register,
min(32 / bits, pack) of them, the first in the low bits; wider ones have a register each. A register
wider than what it holds is filled with zeros, which Triton leaves undefined.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.ptx.operand import Register
from gemmproof.reference.ptx.operation import UnknownAsm

# LLVM's register classes of NVPTX
_WIDTHS = {"c": 16, "h": 16, "r": 32, "f": 32, "l": 64, "d": 64}


@dataclass(frozen=True, slots=True)
class TensorRegisters:
    """The registers of one tensor, each with `shared` of its elements."""

    dtype: np.dtype[Any]
    registers: tuple[Register, ...]
    shared: int


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """All operands of an invocation, results first, and the elements an invocation takes."""

    outputs: tuple[TensorRegisters, ...]
    inputs: tuple[TensorRegisters, ...]
    registers: dict[str, Register]
    pack: int

    @property
    def given(self) -> list[str]:
        """The registers that hold a value at the start."""
        return [r.name for group in self.inputs for r in group.registers]

    @property
    def results(self) -> list[str]:
        """The registers that must hold one at the end."""
        return [r.name for group in self.outputs for r in group.registers]

    def load(self, inputs: Sequence[Array], count: int) -> tuple[dict[str, Array], int]:
        """The registers of all invocations at their start, and the number of invocations."""
        shapes = [(np.dtype(a.dtype), a.shape) for a in inputs]
        if shapes != [(group.dtype, (count,)) for group in self.inputs]:
            wanted = " ".join(f"{group.dtype}[{count}]" for group in self.inputs)
            raise ValueError(f"asm inputs: got {shapes}, expected {wanted}")
        groups = -(-count // self.pack)
        env: dict[str, Array] = {}
        for array, group in zip(inputs, self.inputs, strict=True):
            padded = np.zeros(groups * self.pack, group.dtype)
            padded[:count] = array
            size = group.shared * group.dtype.itemsize
            rows = padded.view(np.uint8).reshape(groups, len(group.registers), size)
            for i, register in enumerate(group.registers):
                raw = np.zeros((groups, register.width // 8), np.uint8)
                raw[:, :size] = rows[:, i]
                env[register.name] = raw.reshape(-1).view(f"u{register.width // 8}")
        return env, groups

    def store(self, env: dict[str, Array], count: int) -> list[Array]:
        """The result tensors out of the registers at the end."""
        out = []
        for group in self.outputs:
            size = group.shared * group.dtype.itemsize
            rows = [
                env[r.name].view(np.uint8).reshape(-1, r.width // 8)[:, :size]
                for r in group.registers
            ]
            raw = np.ascontiguousarray(np.concatenate(rows, axis=1)).reshape(-1)
            out.append(raw.view(group.dtype)[:count])
        return out


def lay_out(
    constraints: str, ins: Sequence[np.dtype[Any]], outs: Sequence[np.dtype[Any]], pack: int
) -> RegisterLayout:
    """The layout for dtypes of operands and LLVM's constraint string; UnknownAsm if they differ."""
    words = [word.strip() for word in constraints.split(",")]
    words = [word for word in words if word and not word.startswith("~")]
    wanted = [(np.dtype(d), True) for d in outs] + [(np.dtype(d), False) for d in ins]
    registers: dict[str, Register] = {}
    groups: list[TensorRegisters] = []
    for dtype, is_result in wanted:
        shared = _share(dtype, pack)
        row = []
        for _ in range(pack // shared):
            index = len(registers)
            word = words[index] if index < len(words) else ""
            register = _allot(index, word, is_result, registers, constraints)
            if register.width < 8 * dtype.itemsize * shared:
                raise UnknownAsm(
                    f"constraints: got {word} for {shared} of {dtype}, expected a wider register"
                )
            registers[f"#{index}"] = register
            row.append(register)
        groups.append(TensorRegisters(dtype, tuple(row), shared))
    if len(words) != len(registers):
        raise UnknownAsm(
            f"constraints: got {constraints!r}, expected {len(registers)} operands for these types"
            f" and pack={pack}"
        )
    return RegisterLayout(tuple(groups[: len(outs)]), tuple(groups[len(outs) :]), registers, pack)


def _share(dtype: np.dtype[Any], pack: int) -> int:
    if dtype == np.bool_:
        raise UnknownAsm("asm operand: got bool, expected a type of 8 bits or more")
    shared = min(max(4 // dtype.itemsize, 1), pack)
    if pack < 1 or pack % shared:
        raise UnknownAsm(f"asm: got pack={pack} for {dtype}, expected a multiple of {shared}")
    return shared


def _allot(
    index: int, word: str, is_result: bool, before: dict[str, Register], constraints: str
) -> Register:
    letter = word.lstrip("=").replace("&", "")
    if word.startswith("=") == is_result:
        if letter in _WIDTHS:
            return Register(f"#{index}", _WIDTHS[letter])
        if not is_result and f"#{letter}" in before:
            return before[f"#{letter}"]  # tied: the operand starts in that result's register
    raise UnknownAsm(
        f"constraints: got {word!r} at {index} of {constraints!r}, expected a"
        f" {'result (=)' if is_result else 'source'} of {' '.join(_WIDTHS)}"
    )

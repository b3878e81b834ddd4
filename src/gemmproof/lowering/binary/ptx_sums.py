"""Where the sums of tensor cores are added to others: the promotion of fp8's short sums.

The units of Hopper and Ada keep few bits of a running fp8 sum, so a kernel may have them sum a few
products from zero and add that to an fp32 accumulator. In PTX that is a chain of instructions whose
first has the constant 0 as its accumulator, and, in the same loop, additions of what they give.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmproof.lowering.binary.ptx import PtxProgram, PtxStatement
from gemmproof.lowering.binary.ptx_dots import CoreInstruction
from gemmproof.lowering.binary.ptx_values import written

# as it is, scaled, or put into a pair: older compilers do that by shifts
_PASSED_ON = ("mov", "mul", "cvt", "shl", "or")


def find_promotion(
    program: PtxProgram, dot: Sequence[CoreInstruction], cores: Sequence[CoreInstruction]
) -> tuple[int, int | None]:
    """Of the instructions of one dot, among all `cores` of the program: additions of a thread to
    other sums, and the most elements of k that such a sum has, with those that another dot handed
    to it; 0 and None where none is added in the loop that makes it."""
    loops = program.loops()
    own = {x.statement.number for x in dot}
    additions: set[int] = set()
    longest: int | None = None
    for loop in {_innermost(loops, x.statement.number) for x in dot} - {None}:
        assert loop is not None
        inside = [x for x in cores if loop[0] <= x.statement.number <= loop[1]]
        sums = [(x, k) for x, k in _list_sums(inside) if x.statement.number in own]
        begun = [k for _, k in sums if k is not None]
        if not begun:
            continue
        body = program.statements[loop[0] : loop[1] + 1]
        # what begins with no 0 may go on with such a sum: that of a split is passed by a select
        found = _find_additions(body, [x for x, _ in sums])
        if found:
            additions |= found
            longest = max(longest or 0, *begun)
    widths = (2 if program.statements[n].opcode.endswith("x2") else 1 for n in additions)
    return sum(widths), longest


def _innermost(loops: list[tuple[int, int]], number: int) -> tuple[int, int] | None:
    around = [(start, stop) for start, stop in loops if start <= number <= stop]
    return min(around, key=lambda loop: loop[1] - loop[0], default=None)


def _find_additions(body: list[PtxStatement], dot: Sequence[CoreInstruction]) -> set[int]:
    """The numbers of what adds a result of the dot, or one that was moved or scaled."""
    held = {register for x in dot for register in x.result if register.startswith("%")}
    if any(x.unit == "tcgen05" for x in dot):  # whose results are read from tensor memory
        reads = (x for x in body if x.words[:2] == ("tcgen05", "ld"))
        held |= {register for x in reads for register in written(x)}
    known = -1
    while known != len(held):  # what a loop carries is used before it stands in the text
        known = len(held)
        for one in body:
            if one.words[0] in _PASSED_ON and _sources(one) & held:
                held |= set(written(one))
    return {
        one.number
        for one in body
        if one.words[0] in ("add", "fma")
        and one.words[-1] in ("f32", "f32x2")
        and _sources(one) & held
    }


def _sources(one: PtxStatement) -> set[str]:
    return {register for i in range(1, len(one.operands)) for register in one.registers(i)}


def _list_sums(cores: Sequence[CoreInstruction]) -> list[tuple[CoreInstruction, int | None]]:
    """The last instruction of each chain, and the chain's elements of k if it begins with 0.

    One whose result is the accumulator of another, also of another dot, is not the last.
    """
    lengths: dict[int, int | None] = {}
    makers: dict[tuple[str, ...], int] = {}
    for i, one in enumerate(cores):
        k = one.shape[2] if one.shape else 0
        before = None if one.begins == "zero" else makers.get(one.added)
        held = 0 if one.begins == "zero" else None
        if before is not None:
            held = lengths.pop(before, None)
        lengths[i] = None if held is None else held + k
        makers[one.result] = i
    return [(cores[i], k) for i, k in lengths.items()]

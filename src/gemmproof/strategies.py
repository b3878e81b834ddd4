"""Hypothesis strategies of cases, sizes, layouts and operands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from gemmproof.engine.request import JudgedCase
from gemmproof.properties.cases import strategies
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey, Tile
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.contract import MAX_SIDE, Contract
from gemmproof.properties.kernel import KernelUnderTest, require_kernel, short

if TYPE_CHECKING:
    import torch

__all__ = ["cases", "layouts", "operands", "sizes"]

Subject = Contract | KernelUnderTest


def cases(
    subject: Subject, *, format: str | None = None, tile: Tile | None = None
) -> st.SearchStrategy[Case]:
    """Return the cases of a contract, or of a kernel and its contract.

    Covers every field of a case: configurations; sizes as `sizes` gives them; layouts as `layouts`
    gives them; the kinds and seeds of data; numbers of multiprocessors, if the wrapper asks for it;
    one call or three; the further operands; relations with another call. One in four is aligned:
    sizes are multiples of 16 and operands are dense, as copy engines need them. A few cases run
    first, in this process, when a test with this strategy starts: they show the tiles and the
    constants of a kernel.

    Shrinks towards the first format, the first configuration, sizes of 1, row-major operands, index
    data with seed 0, and one call.

    Args:
        subject: The kernel or the contract.
        format: The format of all cases; by default any of the contract's.
        tile: The (BLOCK_M, BLOCK_N, BLOCK_K) that sizes are drawn around. By default those of the
            kernel, and (16, 16, 16) of a contract.

    Raises:
        TypeError: `subject` is neither.
        ValueError: The contract does not have this format, or `tile` has a wrong size.
    """
    contract = _contract_of("cases", subject)
    _require_tile("cases", tile)
    if format is not None and format not in contract.formats:
        known = " ".join(contract.formats)
        raise ValueError(f"cases: got format {format!r}, expected one of {known}")
    formats = (format,) if format else contract.formats

    def draw() -> st.SearchStrategy[Case]:
        surveys = {name: _survey(subject, name, tile) for name in formats}
        strategies_by_format = {
            name: strategies.cases(contract, survey, name) for name, survey in surveys.items()
        }
        if len(formats) == 1:
            return strategies_by_format[formats[0]]
        return st.sampled_from(formats).flatmap(strategies_by_format.__getitem__)

    return st.deferred(draw)


def sizes(subject: Subject, *, tile: Tile | None = None) -> st.SearchStrategy[dict[str, int]]:
    """Return admitted sizes by axis: {"M": 65, "N": 1, "K": 33}, with "batch" if there is one.

    Covers all sizes up to three tiles; half of the draws are on and beside multiples of a tile. In
    one of three, the sizes belong together: whole tiles, a long K, constants that the source of a
    kernel compares with, groups of programs, and, if the contract is `huge`, results of more than
    2**31 elements. Shrinks towards sizes of 1, one axis after another.

    Args:
        subject: The kernel or the contract.
        tile: As for `cases`.

    Raises:
        TypeError: `subject` is neither.
        ValueError: `tile` has a wrong size.
    """
    contract = _contract_of("sizes", subject)
    _require_tile("sizes", tile)
    first = contract.formats[0]
    return st.deferred(lambda: strategies.sizes(contract, _survey(subject, first, tile)))


def layouts(subject: Subject) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Return admitted layouts of a and b, as the `layouts` of a case.

    Covers each layout of the contract for each of them, the first one more often. Shrinks towards
    dense, row-major operands.

    Args:
        subject: The kernel or the contract.

    Raises:
        TypeError: `subject` is neither.
    """
    return strategies.layouts(_contract_of("layouts", subject))


def operands(
    case: Case, kernel: KernelUnderTest | None = None
) -> st.SearchStrategy[dict[str, torch.Tensor]]:
    """Return operands for a case by name, as CPU tensors: a, b and the further ones of a kernel.

    Covers the kinds of data that the format has, and their seeds; sizes and layouts are the case's.
    Each tensor is a view of a larger storage. Shrinks towards small integers.

    Args:
        case: The case.
        kernel: The kernel whose further operands are made as well.

    Raises:
        TypeError: `case` is not a Case, or `kernel` is not a KernelUnderTest.
        ValueError: The case has a result of more than 2**26 elements, or the kernel does not take
            it.
    """
    if not isinstance(case, Case):
        raise TypeError(f"operands: got {short(case)}, expected a Case")
    if case.is_sampled:
        raise ValueError(f"operands: got {case}, expected a case whose result fits in memory")
    if kernel is not None:
        require_kernel("operands", kernel)
        kernel.require_batch(case)
        kernel.require(case)
    return strategies.data(case).map(partial(tensors_of, kernel=kernel))


def _contract_of(name: str, subject: Subject) -> Contract:
    if isinstance(subject, Contract):
        return subject
    try:
        require_kernel(name, subject)
    except TypeError as error:
        raise TypeError(f"{error} or a Contract") from None
    return subject.contract


def _require_tile(name: str, tile: Tile | None) -> None:
    is_tile = isinstance(tile, tuple) and len(tile) == 3
    if tile is not None and not (
        is_tile and all(type(n) is int and 1 <= n <= MAX_SIDE for n in tile)
    ):
        expected = f"expected a tuple of three integers from 1 to {MAX_SIDE}"
        raise ValueError(f"{name}: got tile {tile!r}, {expected}")


def _survey(subject: Subject, format: str, tile: Tile | None) -> Survey:
    """Return what sizes are drawn around: the declared tile, or what a kernel's first runs show."""
    if isinstance(subject, Contract) or subject.device_only:
        return Survey() if tile is None else Survey((((tile),),))
    from gemmproof.engine.single_case import survey as survey_alone

    survey = survey_alone(subject, format)
    if isinstance(survey, JudgedCase):  # an operand has no values
        raise ValueError(survey.unknown)
    return survey if tile is None else replace(survey, tiles=((tile,),) * survey.configs)

"""Extensions of a contract: for each guarantee that could be wider, cases that would show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import list_far
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.cases.generate import Tile, is_admitted, smallest
from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, HUGE, LAYOUTS, ROW
from gemmproof.properties.contract import AXES, ROLES, Contract
from gemmproof.properties.kernel import WRITTEN, KernelUnderTest, OneOf, Operand, list_parameters
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, OPERANDS

# result formats to try as keyword arguments, the widest first
WIDENED = tuple(
    sorted(
        (n for n in FLOAT_OPERANDS if FORMATS[n].stored is FORMATS[n] and not FORMATS[n].is_fp8),
        key=lambda n: -FORMATS[n].p,
    )
)


@dataclass(frozen=True, slots=True)
class Extension:
    """One step beyond a contract, as text, and the option that promises it.

    `changes` are the fields of the wider contract, `operands` the wrapper's additional operands,
    `cases` the cases to try, the simplest first.
    """

    name: str
    option: str
    changes: dict[str, Any]
    cases: tuple[Case, ...]
    operands: Mapping[str, Operand | OneOf] = field(default_factory=dict)

    def widen(self, kernel: KernelUnderTest) -> KernelUnderTest:
        """Return the kernel under the wider contract."""
        contract = replace(kernel.contract, **self.changes)
        return replace(kernel, contract=contract, operands={**kernel.operands, **self.operands})


def list_beyond(contract: Contract, tile: Tile) -> Iterator[Extension]:
    """Yield every step beyond a contract that has cases; tile is the kernel's (BLOCK_M, N, K)."""
    for name, option, fields_, cases in _list_steps(contract, _middle_case(contract, tile), tile):
        wider = replace(contract, **fields_)
        tried = tuple(case for case in dict.fromkeys(cases) if is_admitted(case, wider))
        if tried:
            yield Extension(name, option, fields_, tried)


def list_keywords(kernel: KernelUnderTest, tile: Tile) -> Iterator[Extension]:
    """Yield the wrapper's undeclared keyword parameters that can be tried: out=, out_dtype=."""
    contract, takes = kernel.contract, list_parameters(kernel.launch)
    case = _middle_case(contract, tile)
    dtype = contract.out or case.dtype
    if kernel.spec is not None or kernel.written or dtype not in WIDENED:
        return
    if "out" in takes and "out" not in kernel.operands:
        shape = ("batch", "M", "N") if contract.batched else ("M", "N")
        option = f"--operand 'out={dtype}[{', '.join(shape)}] written'"
        out = Operand(dtype, shape, use=WRITTEN)
        yield Extension("out=", option, {}, (replace(case, calls=3),), {"out": out})
    wider = next((x for x in WIDENED if x != case.dtype and contract.out is None), None)
    if "out_dtype" in takes and "out_dtype" not in kernel.operands and wider is not None:
        asked = TORCH_DTYPES[wider]
        tried = (case, replace(case, fill="normal", seed=1))
        option = f"--operand out_dtype={asked} --out-dtype {wider}"
        yield Extension("out_dtype=", option, {"out": wider}, tried, {"out_dtype": OneOf(asked)})


def _middle_case(contract: Contract, tile: Tile) -> Case:
    """Return a case with some of everything: a ragged tile along each axis."""
    sides = {axis: block + 1 for axis, block in zip("MNK", tile, strict=True)}
    if contract.batched:
        sides["batch"] = 2
    fitted: dict[str, Any] = contract.fit(sides) or {"M": 1, "N": 1, "K": 1}
    return Case(dtype=contract.formats[0], **fitted)


_Step = tuple[str, str, dict[str, Any], list[Case]]


def _list_steps(contract: Contract, case: Case, tile: Tile) -> Iterator[_Step]:
    blocks, changes = dict(zip("MNK", tile, strict=True)), dict[str, Any]()
    for axis in AXES if contract.batched else AXES[:3]:
        sizes = contract.sizes(axis)
        if sizes.low == sizes.high:
            continue  # a kernel for one size, such as a GEMV, makes no claim about others
        if sizes.step > 1 or sizes.low > 1:
            changes = {axis: f"1..{sizes.high}"}
            block = blocks.get(axis, 1)
            others = (1, sizes.low - 1, sizes.low + 1, block + 1, 2 * block - 1, sizes.step // 2)
            tried = [_with(case, axis, n) for n in others if n > 0 and n not in sizes]
            yield f"{axis} not in {sizes}", f"--sizes {axis}=1..", changes, tried
        elif 0 not in sizes:
            changes = {axis: f"0..{sizes.high}"}
            yield f"{axis} = 0", f"--sizes {axis}=0..", changes, [_with(case, axis, 0)]
    if contract.layouts == CONTIGUOUS:
        strided = [n for n in LAYOUTS if n not in (*HUGE, ROW, "misaligned")]
        yield "any strides", "--layouts any", {"layouts": ANY}, _lay_out(case, strided)
        yield "misaligned", "--layouts any", {"layouts": ANY}, _lay_out(case, ["misaligned"])
    if not contract.huge:
        far = list(list_far(smallest(contract, case.dtype), contract))
        views = _lay_out(case, [*HUGE])
        if contract.layouts != ANY:
            yield "2**31 elements of c", "--huge", {"huge": True}, far
        if contract.layouts in (CONTIGUOUS, ANY):
            changes = {"layouts": ANY, "huge": True}
            option = "--huge" if contract.layouts == ANY else "--huge --layouts any"
            yield "2**31 elements", option, changes, [*views, *far]
    for dtype in OPERANDS:
        if dtype not in contract.formats:
            changes = {"formats": (*contract.formats, dtype)}
            other = replace(case, dtype=dtype)
            # integers of a few bits do not show that fp32 operands are read as tf32
            tried = [other, replace(other, fill="normal", seed=1)]
            yield dtype, f"--dtype {dtype}", changes, tried


def _with(case: Case, axis: str, n: int) -> Case:
    sides: dict[str, Any] = {axis: n}
    return replace(case, **sides)


def _lay_out(case: Case, names: list[str]) -> list[Case]:
    return [
        (case if name != "narrow_batch" else replace(case, batch=3)).with_layout(operand, name)
        for name in names
        if case.batch is not None or name not in BATCHED
        for operand in ROLES
    ]

"""Steps from a contract to a wider one, with cases that would show a failure, or a narrower one."""

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
class ContractStep:
    """A contract wider or narrower than another, as text, and the option that promises it.

    `changes` are the other contract's fields, `operands` the wrapper's additional operands, `cases`
    those of a wider contract that the narrower one lacks, the simplest first.
    """

    name: str
    option: str
    changes: Mapping[str, Any]
    cases: tuple[Case, ...] = ()
    operands: Mapping[str, Operand | OneOf] = field(default_factory=dict)

    def apply(self, kernel: KernelUnderTest) -> KernelUnderTest:
        """Return the kernel under the other contract."""
        contract = replace(kernel.contract, **self.changes)
        return replace(kernel, contract=contract, operands={**kernel.operands, **self.operands})


def narrow(contract: Contract, axis: str, divisor: int) -> ContractStep:
    """Return the step to the multiples of a number along an axis."""
    declared = contract.sizes(axis)
    sizes = replace(declared, low=-(-declared.low // divisor) * divisor, step=divisor)
    name = f"{axis} in {divisor}..:{divisor}"
    return ContractStep(name, f"--sizes {axis}={divisor}..:{divisor}", {axis: sizes})


def list_beyond(contract: Contract, tile: Tile) -> Iterator[ContractStep]:
    """Yield every step beyond a contract that has cases; tile is the kernel's (BLOCK_M, N, K)."""
    for step in _list_wider(contract, _middle_case(contract, tile), tile):
        wider = replace(contract, **step.changes)
        cases = tuple(case for case in dict.fromkeys(step.cases) if is_admitted(case, wider))
        if cases:
            yield replace(step, cases=cases)


def list_keywords(kernel: KernelUnderTest, tile: Tile) -> Iterator[ContractStep]:
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
        yield ContractStep("out=", option, {}, (replace(case, calls=3),), {"out": out})
    wider = next((x for x in WIDENED if x != case.dtype and contract.out is None), None)
    if "out_dtype" in takes and "out_dtype" not in kernel.operands and wider is not None:
        asked = TORCH_DTYPES[wider]
        tried = (case, replace(case, fill="normal", seed=1))
        option = f"--operand out_dtype={asked} --out-dtype {wider}"
        yield ContractStep("out_dtype=", option, {"out": wider}, tried, {"out_dtype": OneOf(asked)})


def _middle_case(contract: Contract, tile: Tile) -> Case:
    """Return a case with some of everything: a ragged tile along each axis."""
    sides = {axis: block + 1 for axis, block in zip("MNK", tile, strict=True)}
    if contract.batched:
        sides["batch"] = 2
    return Case(1, 1, 1, contract.formats[0]).with_sides(contract.fit(sides) or {})


def _list_wider(contract: Contract, case: Case, tile: Tile) -> Iterator[ContractStep]:
    blocks = dict(zip("MNK", tile, strict=True))
    for axis in AXES if contract.batched else AXES[:3]:
        sizes = contract.sizes(axis)
        if sizes.low == sizes.high:
            continue  # a kernel for one size, such as a GEMV, makes no claim about others
        if sizes.step > 1 or sizes.low > 1:
            block = blocks.get(axis, 1)
            others = (1, sizes.low - 1, sizes.low + 1, block + 1, 2 * block - 1, sizes.step // 2)
            tried = tuple(case.with_sides({axis: n}) for n in others if n > 0 and n not in sizes)
            name, option = f"{axis} not in {sizes}", f"--sizes {axis}=1.."
            yield ContractStep(name, option, {axis: f"1..{sizes.high}"}, tried)
        elif 0 not in sizes:
            changes = {axis: f"0..{sizes.high}"}
            yield ContractStep(
                f"{axis} = 0", f"--sizes {axis}=0..", changes, (case.with_sides({axis: 0}),)
            )
    if contract.layouts == CONTIGUOUS:
        strided = [n for n in LAYOUTS if n not in (*HUGE, ROW, "misaligned")]
        for name, layouts in (("any strides", strided), ("misaligned", ["misaligned"])):
            yield ContractStep(name, "--layouts any", {"layouts": ANY}, _lay_out(case, layouts))
    if not contract.huge:
        far = tuple(list_far(smallest(contract, case.dtype), contract))
        if contract.layouts != ANY:
            yield ContractStep("2**31 elements of c", "--huge", {"huge": True}, far)
        if contract.layouts in (CONTIGUOUS, ANY):
            option = "--huge" if contract.layouts == ANY else "--huge --layouts any"
            views = (*_lay_out(case, [*HUGE]), *far)
            yield ContractStep("2**31 elements", option, {"layouts": ANY, "huge": True}, views)
    for dtype in OPERANDS:
        # sums in units of 13 bits are those of fp8 alone
        can_sum = contract.accumulator in ("fp32", *FORMATS[dtype].declarable_sums)
        if dtype not in contract.formats and can_sum:
            other = replace(case, dtype=dtype)
            # integers of a few bits do not show that fp32 operands are read as tf32
            tried = (other, replace(other, fill="normal", seed=1))
            yield ContractStep(
                dtype, f"--dtype {dtype}", {"formats": (*contract.formats, dtype)}, tried
            )


def _lay_out(case: Case, names: list[str]) -> tuple[Case, ...]:
    return tuple(
        (case if name != "narrow_batch" else replace(case, batch=3)).with_layout(operand, name)
        for name in names
        if case.batch is not None or name not in BATCHED
        for operand in ROLES
    )

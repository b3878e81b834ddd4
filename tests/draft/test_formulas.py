"""The formula of a result is read from its kernels, for kernels of every family."""

import numpy as np
import pytest
import torch
from tests.corpora.families.table import RIGHT

from gemmproof.draft.declaration import declare
from gemmproof.draft.formula import IndexedTensor, Reader, Sum, SummedProduct
from gemmproof.draft.index_functions import IndexFunction, read_function
from gemmproof.draft.polynomials import Unreadable
from gemmproof.draft.search import DraftedCall
from gemmproof.draft.write_formula import FormulaWriter
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.reference.simulator import run
from gemmproof.reference.simulator.element_terms import ElementTerms

SIZES = [(20, 48, 36), (6, 16, 64), (5, 64, 128), (5, 1, 64)]
KERNELS = {kernel.name: kernel for kernel in RIGHT}
AXES = {2: ("M", "N"), 3: ("batch", "M", "N")}
# The formulas of the families as their kernels compute them.
READ = {
    "with_bias": "(a @ b) + bias",
    "into_out": "a @ b",
    "bmm": "a @ b",
    "linear": "(lambda y: (1 + erf(y * 0.70710677)) * (y * 0.5))((a @ b) + bias)",
    "swiglu": "(lambda y: (y * sigmoid(y)) * (a @ w_up))(a @ b)",
    "gemv": "np.sum(a * b[:, 0], axis=-1)[:, None] + bias[:, None]",
    "grouped_mm": "(a[:, None, :] @ b[np.where(offsets[1:, None] <= np.arange(a.shape[0]), 1, 0)"
    ".sum(axis=0)])[:, 0, :]",
    "fused_moe": "np.sum((a[:, None, None, :] @ b[topk_ids].mT)[:, :, 0, :]"
    " * topk_weights[:, :, None], axis=1)",
    "fp8_mm": "np.clip((a @ b) * scale_a[0] * scale_b[0] / scale_c[0], -448, 448)",
    "int8_mm": "((a - zero[:, None]) @ b) * scale_a[:, None] * scale_b",
    "scaled_mm": "(a @ b) * scale_a[:, None] * scale_b + bias",
    "split_k_mm": "np.maximum((a @ b) + bias, 0)",
    "w8a16_mm": "(a @ b) * scale",
}


def call(kernel, terms=None):
    """Return the result of a kernel's first admitted case, and its tensors."""
    contract, batch = kernel.contract, 2 if kernel.contract.batched else None
    sides = [dict(zip("MNK", sizes, strict=True)) for sizes in SIZES]
    sides = next(s for s in sides if contract.admits({**s, **({"batch": 2} if batch else {})}))
    case = Case(**sides, dtype=contract.formats[0], batch=batch)
    tensors = tensors_of(case, kernel)

    def launch(*given):
        return kernel.call(case, dict(zip(tensors, given, strict=True)))

    return run(launch, *tensors.values(), operands=tensors, terms=terms).result, tensors


def read(kernel):
    """Return the formula of a kernel's result, as it is written."""
    terms = ElementTerms()
    result, tensors = call(kernel, terms)
    numbers = terms.of_tensor(terms.storage_of(result), result)
    integers = {n: x.numpy() for n, x in tensors.items() if x.dtype in (torch.int32, torch.int64)}
    reader = Reader(terms, integers)
    formula = reader.read(numbers, AXES[numbers.ndim])
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    return FormulaWriter(reader.sizes, shapes).write(formula, AXES[numbers.ndim])


@pytest.mark.lane("full")
@pytest.mark.parametrize("name", READ)
def test_the_formula_of_a_family_is_read(name):
    assert read(KERNELS[name]) == READ[name]


@pytest.mark.parametrize("name", ["with_bias", "split_k_mm"])
def test_terms_change_no_result(name):
    plain, _ = call(KERNELS[name])
    followed, _ = call(KERNELS[name], ElementTerms())
    assert torch.equal(plain, followed)


AT = np.arange(12)
ROWS, COLUMNS = (x.reshape(-1) for x in np.broadcast_arrays(AT[:, None], AT[None, :]))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (0 * ROWS + 3, IndexFunction(start=3)),
        (ROWS, IndexFunction("i")),
        (COLUMNS + 2, IndexFunction("j", start=2)),
        (COLUMNS // 3, IndexFunction("j", step=3)),
        (COLUMNS % 4 * 8, IndexFunction("j", period=4, scale=8)),
        (np.array([0, 4, 1, 5])[ROWS % 4], IndexFunction("i", period=4, table=(0, 4, 1, 5))),
    ],
)
def test_the_rule_of_an_index_is_read(values, expected):
    assert read_function(values, {"i": ROWS, "j": COLUMNS}) == expected


def test_an_index_is_looked_up_where_it_follows_no_rule():
    ids = np.array([3, 0, 2, 2, 1, 3, 0, 1, 1, 0, 3, 2])
    axes = {"i": ROWS, "j": COLUMNS}
    looked_up = read_function(ids[ROWS], axes, {"ids": ids})
    assert looked_up == IndexFunction(gather="ids", axes=("i",))
    offsets = np.array([0, 3, 3, 8, 12])
    group = (offsets[1:, None] <= ROWS).sum(axis=0)
    counted = read_function(group, axes, {"offsets": offsets})
    assert counted == IndexFunction("i", start=1, gather="offsets", counts=True)
    for values in (ids[ROWS], ROWS * COLUMNS):
        with pytest.raises(Unreadable):
            read_function(values, axes)


def test_offsets_are_not_declared_as_numbers_in_any_order():
    group = IndexFunction("M", start=1, gather="offsets", counts=True)
    product = SummedProduct(IndexFunction(start=1), (IndexedTensor("b", (group,)),))
    drafted = DraftedCall(None, Sum((product,)), AXES[2], None, {})
    with pytest.raises(Unreadable, match="offsets of groups, which are not drafted"):
        declare(None, drafted, "grouped_mm")

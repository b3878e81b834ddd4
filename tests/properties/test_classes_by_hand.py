"""Wrong results made by hand are diagnosed: which part of c, of k, which strides, which format."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.properties.results_by_hand import outcome_of, product

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.properties.diagnosis.diagnose import diagnose
from gemmproof.properties.diagnosis.hypotheses import _list_bits
from gemmproof.properties.judges import exact_values
from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.formats import FORMATS as KNOWN

TILED = Case(40, 20, 33)  # tiles of 16: 3 x 2 tiles, the last ones partial, 3 blocks of k
A_BY_COLUMNS = Case(9, 5, 9, layouts=(("a", "column"),))
B_BY_COLUMNS = Case(9, 7, 5, layouts=(("b", "column"),))
SQUARE = Case(6, 6, 6, fill="normal", seed=2)
BATCH = Case(3, 4, 5, batch=3)


def changed(change):
    """The product with some elements changed."""
    return lambda a, b: product(a, b, "fp32", change)


def of(operands):
    """The product of changed operands."""

    def launch(a, b):
        x, y = operands(a, b)
        return product(x.contiguous(), y.contiguous(), "fp32")

    return launch


def added(where):
    """Numbers added to some elements."""

    def change(c):
        c = c.copy()
        c[where] += 1 + np.arange(c.size).reshape(c.shape)[where] % 7
        return c

    return changed(change)


def repeat_the_second_block(a, b):
    return torch.cat((a, a[:, 16:32]), 1), torch.cat((b, b[16:32]), 0)


def a_by_row(a, b):
    return torch.as_strided(a, a.shape, (9, 1)), b


def b_by_row(a, b):
    return a, torch.as_strided(b, b.shape, (7, 1))


def second_matrix(c):
    return c + np.array([0, 1, 0])[:, None, None]


def last_block_lost_in_some_columns(a, b):
    c = product(a, b, "fp32")
    c[:, :16] = product(a[:, :32], b[:32, :16], "fp32")
    return c


def both_by_the_first_block(a, b):
    k = torch.arange(33) % 16
    return a[:, k], b[k]


# case, function, fault, operand and axis of the diagnosis
DIAGNOSED = {
    "rows 32..39": (TILED, added(np.s_[34:]), ("tile_edge", "c", "M")),
    "columns 16..19": (TILED, added(np.s_[:, 17]), ("tile_edge", "c", "N")),
    "whole tile": (TILED, added(np.s_[16:32, :16]), ("whole_tile", "c", None)),
    "row": (TILED, added(np.s_[5, 3:9]), ("row", "c", "M")),
    "column": (TILED, added(np.s_[3:9, 5]), ("column", "c", "N")),
    "everywhere": (TILED, added(np.s_[:]), ("everywhere", "c", None)),
    "scattered": (TILED, added(([1, 18], [3, 4])), ("scattered", "c", None)),
    "nan": (TILED, changed(lambda c: np.where(c > 0, np.nan, c)), ("not_finite", "c", None)),
    "beyond k": (Case(3, 4, 17), changed(lambda c: c + 15 * 4), ("k_tail", "c", "K")),
    "a matrix of the batch": (BATCH, changed(second_matrix), ("batch", "c", "batch")),
    "last block": (TILED, of(lambda a, b: (a[:, :32], b[:32])), ("last_k_block", "c", "K")),
    "last block, here": (TILED, last_block_lost_in_some_columns, ("last_k_block", "c", "K")),
    "first block": (TILED, of(lambda a, b: (a[:, 16:], b[16:])), ("k_block", "c", "K")),
    "tail": (TILED, of(lambda a, b: (a[:, :16], b[:16])), ("last_k_block", "c", "K")),
    "block added twice": (TILED, of(repeat_the_second_block), ("k_block", "c", "K")),
    "a by row": (A_BY_COLUMNS, of(a_by_row), ("operand_strides", "a", None)),
    "b by row": (B_BY_COLUMNS, of(b_by_row), ("operand_strides", "b", None)),
    "both transposed": (SQUARE, of(lambda a, b: (a.t(), b.t())), ("operand_strides", "a", None)),
    "both modulo a block": (TILED, of(both_by_the_first_block), ("operand_wrapped", "a", "K")),
    "one row for all": (
        TILED,
        of(lambda a, b: (a[:1].expand(40, 33), b)),
        ("operand_broadcast", "a", "M"),
    ),
    "one b for all": (
        BATCH,
        of(lambda a, b: (a, b[:1].expand(3, 5, 4))),
        ("operand_strides", "b", None),
    ),
    "result": (Case(6, 6, 4), lambda a, b: product(a, b).t(), ("operand_transposed", "c", None)),
}
# and what its message holds
MESSAGES = {
    "beyond k": "the 15 lanes from k = 17 to the end of its block held products of 4",
    "last block": "k 32 is left",
    "last block, here": "where it is wrong, k 32 is left out",
    "both modulo a block": "as if a along K and b along K were read at the index modulo 16",
    "first block": "k 0..15 are left out",
    "tail": "k 16..32 are left out",
    "block added twice": "k 16..31 are added twice",
    "a by row": "as if a were read with its strides swapped or row-major dense strides",
    "b by row": "as if b were read with row-major dense strides",
    "both transposed": "as if a and b were read with",
    "one b for all": "as if b were read with a batch stride of 0",
    "result": "the result is transposed",
}


def diagnosis_of(case, function):
    outcome = outcome_of(case, function)
    findings = [*exact_values.judge_exact(outcome), *exact_values.judge_bound(outcome)]
    return diagnose(findings[0], outcome, [outcome])


@pytest.mark.parametrize("name", DIAGNOSED)
def test_a_wrong_result_is_diagnosed(name):
    case, function, expected = DIAGNOSED[name]
    diagnosis = diagnosis_of(case, function)
    assert (diagnosis.fault, diagnosis.operand, diagnosis.axis) == expected
    assert MESSAGES.get(name, "") in diagnosis.message


def test_what_one_case_alone_shows_is_not_the_diagnosis():
    """Fewer values fit several hypotheses: it has to explain every case with the fault."""
    own = outcome_of(TILED, DIAGNOSED["last block"][1])
    other = outcome_of(replace(TILED, seed=1), added(np.s_[:]))
    (finding, *_) = exact_values.judge_exact(own)
    assert diagnose(finding, own, [own]).fault == "last_k_block"
    assert diagnose(finding, own, [own, other]).fault == "everywhere"


def test_one_wrong_element_has_no_class():
    assert diagnosis_of(Case(1, 1, 3), changed(lambda c: c + 0.5)).fault == "wrong_value"


@pytest.mark.parametrize(("dtype", "fewer"), [("fp16", "bf16"), ("fp32", "tf32"), ("fp32", "fp16")])
def test_operands_of_fewer_bits_are_named(dtype, fewer):
    def launch(a, b):
        own = KNOWN[dtype].storage
        x, y = (widen(round_to(as_array(t), KNOWN[fewer])).astype(own) for t in (a, b))
        return as_tensor(round_to(exact_product(x, y)[0], KNOWN["fp32"]), "fp32")

    diagnosis = diagnosis_of(Case(4, 4, 8, dtype, fill="normal", seed=1), launch)
    assert diagnosis.fault == "rounding"
    rounded = diagnosis.message.partition(": what operands rounded to ")[2]
    assert fewer in rounded


def test_the_order_of_nibbles_is_named_by_what_kernels_of_awq_read():
    """They shift column j down by 4 * ((j % 2) * 4 + j // 2): the order 0 4 1 5 2 6 3 7."""
    packed = np.arange(6, dtype=np.int32) * 0x01234567 - 5
    numbers = np.arange(8)

    def unpack(packed, order):
        return (packed[:, None] >> (4 * order)) & 15

    used = {x.text: x.used for x in _list_bits(packed) if x.fault == "operand_nibbles"}
    (text,) = (text for text in used if text.endswith("0 4 1 5 2 6 3 7, which is AWQ's order"))
    of_awq = unpack(packed, (numbers % 2) * 4 + numbers // 2)
    assert np.array_equal(unpack(used[text], numbers), of_awq)
    (text,) = (text for text in used if "0 2 4 6 1 3 5 7, the inverse of AWQ's" in text)
    assert np.array_equal(
        unpack(used[text], (numbers % 2) * 4 + numbers // 2), unpack(packed, numbers)
    )

"""Wrong results made by hand are diagnosed: which part of c, of k, which strides, which format."""

import numpy as np
import pytest
import torch
from results_by_hand import outcome_of, product

from gemmproof.properties import values
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.tensors import as_array, as_tensor
from gemmproof.properties.diagnosis.diagnose import diagnose
from gemmproof.reference.arithmetic.conversions import round_to, widen
from gemmproof.reference.exact import exact_product
from gemmproof.reference.formats import FORMATS as KNOWN

TILED = Case(40, 20, 33)  # tiles of 16: 3 x 2 tiles, the last ones partial, 3 blocks of k
CLASSES = {
    "rows 32..39": (lambda c: _add(c, np.s_[34:]), ("tile_edge", "c", "M")),
    "columns 16..19": (lambda c: _add(c, np.s_[:, 17]), ("tile_edge", "c", "N")),
    "whole tile": (lambda c: _add(c, np.s_[16:32, :16]), ("whole_tile", "c", None)),
    "row": (lambda c: _add(c, np.s_[5, 3:9]), ("row", "c", "M")),
    "column": (lambda c: _add(c, np.s_[3:9, 5]), ("column", "c", "N")),
    "everywhere": (lambda c: _add(c, np.s_[:]), ("everywhere", "c", None)),
    "scattered": (lambda c: _add(c, ([1, 18], [3, 4])), ("scattered", "c", None)),
    "nan": (lambda c: np.where(c > 0, np.nan, c), ("not_finite", "c", None)),
}


def _add(c, where):
    c = c.copy()
    c[where] += 1 + np.arange(c.size).reshape(c.shape)[where] % 7
    return c


@pytest.mark.parametrize("name", CLASSES)
def test_a_wrong_part_of_c_is_classified_by_where_it_lies(name):
    change, expected = CLASSES[name]
    outcome = outcome_of(TILED, lambda a, b: product(a, b, "fp32", change))
    (finding,) = values.judge_exact(outcome)
    found = diagnose(finding, outcome)
    assert (found.fault, found.operand, found.axis) == expected


def test_numbers_in_the_lanes_beyond_k_are_named():
    outcome = outcome_of(Case(3, 4, 17), lambda a, b: product(a, b, "fp32", lambda c: c + 15 * 4))
    found = diagnose(next(values.judge_exact(outcome)), outcome)
    assert (found.fault, found.axis) == ("k_tail", "K")
    assert "the 15 lanes from k = 17 to the end of its block held products of 4" in found.message


def test_one_wrong_element_has_no_class():
    outcome = outcome_of(Case(1, 1, 3), lambda a, b: product(a, b, "fp32", lambda c: c + 0.5))
    assert diagnose(next(values.judge_exact(outcome)), outcome) is None


OPERANDS = {
    "last block left out": (lambda a, b: (a[:, :32], b[:32]), "last_k_block", "k 32..32 is left"),
    "first block left out": (lambda a, b: (a[:, 16:], b[16:]), "k_block", "k 0..15 is left out"),
    "tail left out": (lambda a, b: (a[:, :16], b[:16]), "last_k_block", "k 16..32 is left out"),
    "block added twice": (
        lambda a, b: (torch.cat((a, a[:, 16:32]), 1), torch.cat((b, b[16:32]), 0)),
        "k_block",
        "k 16..31 is added twice",
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_a_wrong_part_of_k_is_named(name):
    change, fault, words = OPERANDS[name]
    outcome = outcome_of(TILED, lambda a, b: product(*change(a, b), "fp32"))
    (finding,) = values.judge_exact(outcome)
    found = diagnose(finding, outcome)
    assert (found.fault, found.axis) == (fault, "K")
    assert words in found.message


@pytest.mark.parametrize(
    ("case", "change", "operand", "words"),
    [
        (
            Case(9, 5, 9, layouts=(("a", "column"),)),
            lambda a, b: (torch.as_strided(a, a.shape, (9, 1)), b),
            "a",
            "as if a had its strides swapped or row-major dense strides",
        ),
        (
            Case(9, 7, 5, layouts=(("b", "column"),)),
            lambda a, b: (a, torch.as_strided(b, b.shape, (7, 1))),
            "b",
            "as if b had row-major dense strides",
        ),
        (
            Case(6, 6, 6, fill="normal", seed=2),
            lambda a, b: (a.t(), b.t()),
            "a",
            "as if a and b had",
        ),
        (
            Case(3, 4, 5, batch=3),
            lambda a, b: (a, b[:1].expand(3, 5, 4)),
            "b",
            "as if b had a batch stride of 0",
        ),
    ],
)
def test_wrong_strides_name_the_operand(case, change, operand, words):
    def launch(a, b):
        x, y = change(a, b)
        return product(x.contiguous(), y.contiguous(), "fp32")

    outcome = outcome_of(case, launch)
    finding = next(iter([*values.judge_exact(outcome), *values.judge_bound(outcome)]))
    found = diagnose(finding, outcome)
    assert (found.fault, found.operand) == ("wrong_strides", operand)
    assert words in found.message


def test_a_transposed_result_is_named():
    outcome = outcome_of(Case(6, 6, 4), lambda a, b: product(a, b).t())
    found = diagnose(next(values.judge_exact(outcome)), outcome)
    assert "the result is transposed" in found.message


@pytest.mark.parametrize(("dtype", "fewer"), [("fp16", "bf16"), ("fp32", "tf32"), ("fp32", "fp16")])
def test_operands_of_fewer_bits_are_named(dtype, fewer):
    def launch(a, b):
        own = KNOWN[dtype].storage
        x, y = (widen(round_to(as_array(t), KNOWN[fewer])).astype(own) for t in (a, b))
        return as_tensor(round_to(exact_product(x, y)[0], KNOWN["fp32"]), "fp32")

    outcome = outcome_of(Case(4, 4, 8, dtype, fill="normal", seed=1), launch)
    found = diagnose(next(values.judge_bound(outcome)), outcome)
    assert found.fault == "rounding"
    assert fewer in found.message.partition(": what operands rounded to ")[2]


def test_batches_are_named():
    def second(c):
        c[1] += 1
        return c

    outcome = outcome_of(Case(3, 4, 5, batch=3), lambda a, b: product(a, b, "fp32", second))
    found = diagnose(next(values.judge_exact(outcome)), outcome)
    assert (found.fault, found.axis) == ("batch", "batch")

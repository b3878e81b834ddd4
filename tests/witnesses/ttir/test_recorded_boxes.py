"""Faults of older Tritons' block pointers in their terms, where an access leaves the operand."""

import functools

import pytest
import torch
from tests.witnesses.ttir.recorded_ttir import FOLDER, case_named, read, replay

CASE = case_named("block_pointers")
texts_of = functools.cache(lambda version: read(FOLDER / f"{version}.json.xz")["block_pointers"])


def strays(version, x, change=lambda text: text):
    seen = replay([change(text) for text in texts_of(version)], CASE.launch, [x])
    return [f for f in seen.faults if f.kind == "out_of_bounds"]


@pytest.mark.parametrize("version", ["3.6.0", "3.7.0"])
def test_a_forgotten_boundary_check_is_told_as_such(version, texts):
    """x has 13 of 16 columns, as its block pointer says; the load checks rows alone."""
    parent = torch.arange(256, dtype=torch.float32).reshape(16, 16)

    def uncheck(text):
        checked = "boundaryCheck = array<i32: 0, 1>, padding"
        assert checked in text
        return text.replace(checked, checked.replace("0, 1", "0"))

    x = parent[:, :13]
    unpadded = [f.got for f in strays(version, x)]
    assert not any("boundary_check lacks" in got for got in unpadded)
    (fault,) = (f for f in strays(version, x, uncheck) if f.got not in unpadded)
    assert (fault.access, fault.operand, fault.axis) == ("load", "a", "K")
    assert (fault.programs, fault.expected) == (1, "columns 0..12")
    texts("an axis that boundary_check lacks", fault.got)


@pytest.mark.parametrize("version", ["3.6.0", "3.7.0"])
def test_a_block_pointer_with_another_shape_than_its_operand_says_both(version, texts):
    """The last row is not x's: the block pointer of the columns says that it has 16."""
    faults = strays(version, torch.zeros(15, 16))
    (fault,) = (f for f in faults if "of block [16, 8]" in f.got)
    texts("a block pointer of another shape", fault.got)


@pytest.mark.parametrize("version", ["3.6.0", "3.7.0"])
def test_lanes_left_out_without_padding_are_told_in_terms_of_the_block_pointer(version, texts):
    def unpad(text):
        assert ", padding = 1 : i32" in text
        return text.replace(", padding = 1 : i32", "")

    unchecked = [unpad(x).replace("boundaryCheck = array<i32: 1>", "") for x in texts_of(version)]
    seen = replay(unchecked, lambda x: CASE.launch(x)[0], [torch.zeros(16, 16)])
    (fault,) = (f for f in seen.faults if f.kind == "undefined_stored")
    texts("lanes that boundary_check leaves out", fault.got)

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
def test_a_forgotten_boundary_check_is_told_as_such(version):
    """x has 13 of 16 columns, as its block pointer says; the load checks rows alone."""
    parent = torch.arange(256, dtype=torch.float32).reshape(16, 16)

    def uncheck(text):
        assert "boundaryCheck = array<i32: 0, 1>, padding" in text
        return text.replace("array<i32: 0, 1>, padding", "array<i32: 0>, padding")

    x = parent[:, :13]
    unpadded = [f.got for f in strays(version, x)]
    assert not any("boundary_check lacks" in got for got in unpadded)
    (fault,) = (f for f in strays(version, x, uncheck) if f.got not in unpadded)
    assert (fault.access, fault.operand, fault.axis) == ("load", "a", "K")
    assert (fault.programs, fault.expected) == (1, "columns 0..12")
    assert fault.got.startswith("columns 13..15 ")
    assert fault.got.endswith("its boundary_check lacks axis 1")


@pytest.mark.parametrize("version", ["3.6.0", "3.7.0"])
def test_a_block_pointer_with_another_shape_than_its_operand_says_both(version):
    """The last row is not x's: the block pointer of the columns says that it has 16."""
    faults = strays(version, torch.zeros(15, 16))
    (fault,) = (f for f in faults if "of block [16, 8]" in f.got)
    assert fault.got == (
        "row 15 of a (M=15) is read by 1 program through a block pointer of block [16, 8] at"
        " offsets [0, 8] of shape [16, 16] with strides [1, 16], where a has [15, 16] with"
        " strides [16, 1]"
    )


@pytest.mark.parametrize("version", ["3.6.0", "3.7.0"])
def test_lanes_left_out_without_padding_are_told_in_terms_of_the_block_pointer(version):
    def unpad(text):
        assert ", padding = 1 : i32" in text
        return text.replace(", padding = 1 : i32", "")

    texts = [unpad(text).replace("boundaryCheck = array<i32: 1>", "") for text in texts_of(version)]
    seen = replay(texts, lambda x: CASE.launch(x)[0], [torch.zeros(16, 16)])
    (fault,) = (f for f in seen.faults if f.kind == "undefined_stored")
    assert fault.got.endswith("lanes of a that boundary_check leaves out, with no `padding_option`")

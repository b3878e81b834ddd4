"""Formats as other projects spell them, and slips of the keyboard."""

from __future__ import annotations

import pytest

from gemmproof.calling import read_operand
from gemmproof.cli import _parse
from gemmproof.reference.formats import FORMATS
from gemmproof.settings import list_words
from gemmproof.spelling import find_format, suggest

SPELLINGS = {
    "fp16": ("float16", "torch.float16", "half", "FP16", "f16", "tl.float16"),
    "bf16": ("bfloat16", "torch.bfloat16"),
    "fp32": ("float32", "float", "torch.float", "f32"),
    "tf32": ("TF32", "tfloat32"),
    "fp8e4m3": ("float8_e4m3fn", "torch.float8_e4m3fn", "e4m3", "fp8_e4m3", "float8e4nv"),
    "fp8e5m2": ("float8_e5m2", "fp8-e5m2", "tl.float8e5"),
    "int8": ("i8", "torch.int8"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_format_has_many_spellings(name):
    for spelled in SPELLINGS[name]:
        assert find_format(spelled) == name
        assert _parse(["check", "f.py:f", "--dtype", spelled]).dtype == [name]


def test_an_operand_may_be_spelled_so_too():
    assert read_operand("x=float16[M]")[1].format == "fp16"


def test_our_own_names_stand_for_themselves():
    assert {name: find_format(name) for name in FORMATS} == {name: name for name in FORMATS}
    for unknown in ("fp8", "int", "", "torch.", "x.y"):
        assert find_format(unknown) == unknown


def test_what_is_near_is_suggested_and_nothing_else():
    options = ("--max-examples", "--memory-limit", "--seed")
    assert suggest("--max", options) == "; did you mean '--max-examples'?"
    assert suggest("--memory-limt", options) == "; did you mean '--memory-limit'?"
    assert suggest("--jobs", options) == ""
    assert suggest("gpu", ("cpu", "cuda")) == ""


def test_a_setting_is_suggested_too():
    with pytest.raises(ValueError, match=r"got 'time-limt', .*; did you mean 'time-limit'\?$"):
        list(list_words({"time-limt": 3}, ["--time-limit", "--seed"], [], []))

"""A text that is cut short, garbled or unknown is one clear error, never a crash."""

from __future__ import annotations

import random

import pytest
from tests.support.lanes import first_of_each
from tests.witnesses.ttir.recorded_ttir import FOLDER, read

from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator.translate import lower
from gemmproof.reference.ttir import ReadError, read_module

TEXTS = [text for texts in read(sorted(FOLDER.glob("*.xz"))[0]).values() for text in texts]
SHORT = sorted(TEXTS, key=len)[:16]
HEAD = "module {\n  tt.func public @k(%x: i32, %p: !tt.ptr<f32>) {\n"
TAIL = '\n    tt.return\n  }\n}\n#loc = loc("kernel.py":7:3)\n'


def outcome(text: str) -> str:
    """Return the outcome for a text: "read", or the one line of its error."""
    try:
        lower(read_module(text))
    except (ReadError, Unsupported) as error:
        return str(error)
    return "read"


def garble(text: str, draw: random.Random) -> str:
    """A text with a character changed, a line lost, a piece lost, or all behind a place lost."""
    at, way = draw.randrange(len(text)), draw.randrange(4)
    if way == 0:
        return text[:at] + draw.choice('(){}<>[]%":,x^#0-> ') + text[at + 1 :]
    if way == 1:
        lines = text.split("\n")
        del lines[draw.randrange(len(lines))]
        return "\n".join(lines)
    return text[:at] + (text[at + draw.randrange(99) :] if way == 2 else "")


@pytest.mark.parametrize("number", first_of_each(range(len(SHORT)), lambda n: n // 8))
def test_a_garbled_text_is_read_or_refused(number):
    draw = random.Random(number)
    seen = [outcome(garble(SHORT[number], draw)) for _ in range(60)]
    assert any(result != "read" for result in seen)
    assert not any("\n" in result for result in seen)


@pytest.mark.parametrize("text", SHORT[:4])
def test_a_text_without_its_end_is_refused(text):
    """Cut behind the first operation, in the body of the kernel."""
    cut = text[: text.index("\n", text.index("tt.func") + 200)]
    assert outcome(text) == "read"
    assert outcome(cut).startswith("the text ends behind: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y = arith.addi %x, %x : i31 loc(#loc)", "type i31 in: %y = arith.addi"),
        ("%y = tt.load %p : !tt.odd<f32> loc(#loc)", "type !tt.odd<f32> in: %y = tt.load"),
        ("%y = arith.addi %x, %x loc(#loc)", "no type in: %y = arith.addi"),
        ("this is no operation", "this is no operation"),
        ("%y = arith.addi %x, %z : i32 loc(#loc)",
         "kernel.py:7: the tile simulator cannot read this arith.addi, please report it: KeyError"),
        ("cf.br ^bb9 loc(#loc)\n^bb1:", "kernel, please report it: KeyError: '^bb9'"),
        ("tt.call @nowhere(%x) : (i32) -> () loc(#loc)", "kernel.py:7: a call of nowhere"),
    ],
)  # fmt: skip
def test_an_error_names_what_is_wrong_and_the_line(line, message):
    assert message in outcome(HEAD + "    " + line + TAIL)


@pytest.mark.parametrize("text", ["", "module {", "module {\n}\n", HEAD])
def test_a_module_without_a_kernel_is_refused(text):
    assert outcome(text) != "read"

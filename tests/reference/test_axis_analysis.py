"""Vectors predicted from TTIR are those that Triton compiles, and launches end as simulated."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from unittest import mock

import pytest
import scripts.gpu.vector_hints as measured
import torch
import triton
from triton.compiler.compiler import make_backend

from gemmproof.reference.simulator import run
from gemmproof.reference.simulator.axis_analysis import list_vectors, list_widenings
from gemmproof.reference.triton_frontend import make_ttir
from gemmproof.reference.ttir import read_module

ROWS = list(measured.list_rows())
EVIDENCE = json.loads(measured.EVIDENCE.read_text(encoding="utf-8"))["rows"]
SOURCE = Path(measured.__file__).read_text(encoding="utf-8").splitlines()
LINES = [i for i, text in enumerate(SOURCE, 1) if text.endswith("# load of a")]
BY_MASK = dict(zip(("k", "rows and k", "none"), LINES, strict=True))


def label(row):
    return f"{row.rows}, {row.mask}, {row.layout} {row.M} {row.lead} {row.dtype}"


class Translated(Exception):
    """Ends a compilation once its TTIR is known."""


def translate(row):
    """Return the functions of a launch's TTIR, with its arguments as Triton specialises them."""

    def stop(source, target, **_):
        text = make_ttir(source, target, make_backend(target).parse_options({}))
        raise Translated(text, source)

    with mock.patch.object(triton, "compile", stop), pytest.raises(Translated) as raised:
        measured.compile_row(row)
    text, source = raised.value.args
    names = source.fn.arg_names
    kept = [i for i, name in enumerate(names) if source.signature[name] != "constexpr"]
    return read_module(text), [16 if (i,) in source.attrs else 3 for i in kept]


def predict(row):
    """Return the bytes in which a is loaded, by the analysis of the launch's TTIR."""
    functions, arguments = translate(row)
    kernel = next(f for f in functions.values() if f.public)
    vectors = list_vectors(functions, arguments, 4, hinted=True)
    size = getattr(torch, row.dtype).itemsize
    loops = (op for op in kernel.body[0].ops if op.name == "scf.for")
    loads = (op for loop in loops for op in loop.regions[0][0].ops if op.name == "tt.load")
    return [vectors[(op.text,)].width * size for op in loads if op.loc.line == BY_MASK[row.mask]]


def test_the_evidence_has_every_row():
    names = [field.name for field in fields(measured.Row)]
    assert [tuple(row[name] for name in names) for row in EVIDENCE] == [
        tuple(getattr(row, name) for name in names) for row in ROWS
    ]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=map(label, ROWS))
def test_the_vectors_are_those_of_the_code_that_a_gpu_ran(number):
    assert predict(ROWS[number]) == EVIDENCE[number]["bytes"]


@pytest.mark.lane("full")
@pytest.mark.parametrize("row", ROWS, ids=label)
def test_the_vectors_are_those_of_the_code_that_is_compiled_here(row):
    assert predict(row) == measured.read_widths(measured.compile_row(row))


def simulate(row):
    """Return the texts of the false hints in a simulated launch."""

    def launch(a, b):
        c = torch.zeros((row.M, measured.N), device=a.device)
        shapes = (row.M, measured.N, measured.K, *a.stride(), *b.stride(), *c.stride())
        grid = (triton.cdiv(row.M, measured.BLOCK), 1)
        options = {"ROWS": row.rows, "MASK": row.mask, "BLOCK": measured.BLOCK}
        measured.product_kernel[grid](a, b, c, *shapes, **options)
        return c

    _, a, b = measured.make_arguments(row, "cpu")
    return [fault.got for fault in run(launch, a, b).faults if fault.kind == "false_hint"]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=map(label, ROWS))
def test_a_launch_ends_on_a_gpu_as_it_is_simulated(number):
    """A hint is false where the launch aborts, or where a mask alone prevents that."""
    row, outcome = ROWS[number], EVIDENCE[number]["outcome"]
    texts = simulate(row)
    if outcome != "ok":
        assert texts, outcome
        assert not any("only because the mask" in text for text in texts)
    elif texts:
        assert row.mask == "rows and k"
        assert all("only because the mask" in text for text in texts)


def test_an_aligned_vector_of_rows_that_are_not_consecutive_is_wrong():
    """It loads the rows behind its first one."""
    permuted = measured.Row("permuted, hinted", "k", "column", 48)
    assert measured.expect(permuted, 16) == "wrong values"
    assert any("of addresses that are not consecutive" in text for text in simulate(permuted))


def test_a_hint_widens_nothing_where_rows_are_dense():
    """Columns of M elements are aligned only if M is, and then wrapped rows are."""
    functions, _ = translate(measured.Row("wrapped, hinted", "none", "column", 35))
    names = [name for name, _ in next(f for f in functions.values() if f.public).args]
    free = [None if name.endswith("_ptr") else name for name in names]
    (widening,) = list_widenings(functions, free)
    assert (widening.axis, widening.width, widening.required) == (0, 8, {"%sak": 16})
    assert not list_widenings(functions, ["%M" if name == "%sak" else name for name in free])

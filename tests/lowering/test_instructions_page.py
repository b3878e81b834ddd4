"""The page on instructions agrees with its data, the data with the compiler."""

import hashlib
import re
from dataclasses import replace

import pytest
from scripts.docs.instructions import (
    PAGE,
    USUAL,
    compile_cells,
    dot_of,
    has_cores,
    label_cell,
    list_dots,
    make_page,
    make_tables,
    read_data,
)
from tests.support.triton_versions import DIFFERENCES, version_of

from gemmproof.reference.gpus import GPUS

SAMPLED = 24  # compiled cells, of all GPUs and kinds of answers
DATA = read_data()
CELLS = {(row["gpu"], dot_of(row)): row for row in DATA["cells"]}
NVIDIA = [name for name, gpu in GPUS.items() if not gpu.is_amd and gpu.triton_uses_cores]


def order(row):
    """Return a sort key that depends on the date of the data: each recording has another sample."""
    return hashlib.sha256(f"{DATA['date']} {row['gpu']} {dot_of(row)}".encode()).digest()


def draw():
    """Return small cells in a pseudorandom order: the first of each GPU, then any."""
    small = [row for row in DATA["cells"] if max(row["tile"]) <= 64]
    rows = sorted(small, key=order)
    firsts = {row["gpu"]: row for row in reversed(rows)}
    others = [row for row in rows if row not in firsts.values()]
    return [*firsts.values(), *others][:SAMPLED]


def test_the_page_is_what_the_data_say():
    assert make_page(check=True) == 0


def test_every_cell_is_there_once():
    assert len(CELLS) == len(DATA["cells"])
    for gpu in GPUS:
        assert {dot for name, dot in CELLS if name == gpu} == set(list_dots(gpu))


def test_a_cell_of_another_compiler_would_change_the_page():
    rows = [dict(row) for row in DATA["cells"]]
    at = next(i for i, row in enumerate(rows) if row["gpu"] == "sm_90" and "refused" not in row)
    rows[at]["instructions"] = [["mma", [16, 8, 16], "f16", "f32", ["registers", "registers"]]]
    before, after = make_tables(DATA), make_tables({**DATA, "cells": rows})
    assert before["usual"] != after["usual"]


def test_the_table_of_versions_says_with_which_triton_the_page_was_measured():
    page = DIFFERENCES["instructions_page"]
    assert page.first == page.last == version_of(DATA["triton"])


@pytest.mark.triton("instructions_page")
def test_a_sample_of_the_cells_is_compiled_to_what_they_say():
    """Other versions of Triton choose other instructions, which is no fault."""
    rows = draw()
    assert {row["gpu"] for row in rows} == set(GPUS)
    cells = {}
    for row in rows:
        cells.setdefault(row["gpu"], []).append(dot_of(row))
    compiled_rows = list(compile_cells(cells, 1))
    recorded = {(row["gpu"], dot_of(row)): row for row in rows}
    # the message of a refusal may contain paths of this machine
    compiled = {(row["gpu"], dot_of(row)): row for row in compiled_rows}
    assert {key: strip(row) for key, row in compiled.items()} == {
        key: strip(row) for key, row in recorded.items()
    }


def strip(row):
    return {**row, "refused": True} if "refused" in row else row


def cell(gpu, **fields):
    return CELLS[gpu, replace(USUAL, **fields)]


def test_what_the_page_says_in_words_is_so():
    """This checks each sentence below a table that has a number or a name."""
    page = PAGE.read_text()
    assert f"Triton {DATA['triton']}" in page
    formats = {dot.dtype for _, dot in CELLS}
    for gpu in ("sm_70", "sm_75"):
        assert not any(has_cores(row) for (name, _), row in CELLS.items() if name == gpu)
    for gpu in NVIDIA:
        assert "of tf32" in label_cell(cell(gpu, dtype="fp32"))
        assert label_cell(cell(gpu, dtype="fp32", precision="ieee")) == "fma"
        assert has_cores(cell(gpu, dtype="int8"))
        assert ("refused" in cell(gpu, dtype="fp8e4m3")) == (gpu in ("sm_80", "sm_86"))
        assert has_cores(cell(gpu, dtype="fp64")) == (gpu in ("sm_80", "sm_90", "sm_100"))
        # no tile is too small in M or N
        for (name, dot), row in CELLS.items():
            if name == gpu and dot.dtype not in ("fp8e4m3", "fp64") and dot.precision != "ieee":
                label = label_cell(row)
                assert "fma" not in label
                assert label != "refused" or dot.tile[2] < 32 or (gpu, dot.tile[1]) == ("sm_100", 8)
    refused = {gpu for (gpu, _), row in CELLS.items() if "refused" in row and GPUS[gpu].is_amd}
    assert all(
        dot.precision for (gpu, dot), row in CELLS.items() if gpu in refused and "refused" in row
    )
    for (gpu, dot), row in CELLS.items():
        if gpu in ("sm_90", "sm_100") and dot.dtype in formats - {"fp64"} and dot.imprecise != 0:
            few = dot.tile[0] < 64 or dot.tile[1] < 8 or dot.warps % 4
            if has_cores(row):
                assert label_cell(row).startswith("mma") == bool(few), (gpu, dot)
    assert label_cell(cell("sm_90", warps=8)) == "wgmma m64n32k16"
    deep = {"tile": (64, 64, 128), "dtype": "fp8e4m3"}
    assert label_cell(cell("sm_90", **deep, imprecise=0)).endswith("of f16")
    assert [cell("sm_90", **deep, imprecise=n)["promoted_k"] for n in (32, 64)] == [32, 64]
    assert all(cell("sm_89", **deep, imprecise=n)["promoted_k"] is None for n in (32, 64, 0))
    assert all(cell(gpu, **deep)["promoted_k"] is None for gpu in NVIDIA[2:])


def test_the_page_has_no_empty_table():
    empty = re.findall(r"<!-- (\w+) -->\n<!-- end of \1 -->", PAGE.read_text())
    assert empty == []

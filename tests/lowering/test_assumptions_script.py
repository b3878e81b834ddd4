"""`scripts/measure.py assumptions` on a few kernels: the sample that CI runs."""

import json
import re
import sys
from pathlib import Path

import pytest
from tests.support.triton_versions import holds, version_of

from gemmproof.reference.gpus import TARGETS

ROOT = Path(__file__).parents[2]
#: Weights of eight and four bits, widened in registers: the permuted orders of k.
SAMPLE = (("families", "w8a16_mm", "sm_80"), ("families", "nvfp4_mm", "sm_90"))


@pytest.fixture(scope="module")
def rows():
    sys.path.insert(0, str(ROOT))
    from scripts.gpu.compare_assumptions import compare

    return [compare(*task) for task in SAMPLE]


def is_compiled(row):
    return row["kernel"] != "nvfp4_mm" or holds("nvfp4_on_sm_90")


@pytest.mark.lane("full")
def test_every_prediction_of_the_sample_is_what_is_compiled(rows):
    for row in filter(is_compiled, rows):
        assert row["expected"], row
        assert 0 < row["agreed"] == row["dots"], row
        assert (row["differ"], row["not_known"], row["contradicted"]) == (0, 0, [])
        assert not row["not_simulated"]


@pytest.mark.lane("full")
def test_what_triton_refuses_to_compile_neither_agrees_nor_contradicts(rows):
    for row in rows:
        if not is_compiled(row):
            assert (row["expected"], row["dots"], row["contradicted"]) == (False, 0, [])
            assert len(row["failed"]) == row["launches"]
            assert all(": not compiled: " in x for x in row["failed"])


@pytest.mark.lane("full")
def test_the_counts_are_shown_by_target(rows):
    from scripts.gpu.compare_assumptions import describe, table

    launches = sum(row["launches"] for row in rows if row["target"] == "sm_90")
    shown = [[word.strip() for word in line.split("|")] for line in table(rows)]
    assert [line[0] for line in shown] == ["target", "sm_80", "sm_90"]
    counts = [launches] * 3 + [0] * 3 if is_compiled(rows[1]) else [launches, *[0] * 4, launches]
    assert shown[2][1:] == list(map(str, counts))
    line = "file.py:70: predicted as ..."
    assert describe({**rows[0], "contradicted": [line]}).endswith(f"\n    {line}")


def test_the_page_has_the_figures_of_the_evidence_which_is_of_every_target_and_kernel():
    from scripts.gpu.compare_assumptions import SETS, _kernels

    evidence = json.loads((ROOT / "docs" / "evidence" / "assumptions.json").read_text())
    version, evidence = version_of(evidence["triton"]), evidence["kernels"]
    names = {(group, name) for group in SETS for name in _kernels(group)}
    if not holds("block_pointers", version):
        names = {(group, name) for group, name in names if "block_pointers" not in name}
    whole = {(*name, target) for name in names for target in TARGETS}
    assert {(x["set"], x["kernel"], x["target"]) for x in evidence} == whole
    page = (ROOT / "docs" / "how-to" / "see-what-was-compiled.md").read_text()
    launches, dots = (sum(x[key] for x in evidence) for key in ("launches", "dots"))
    assert all(x["agreed"] == x["dots"] for x in evidence)
    figures = re.search(r"all (\S+) dots of (\S+) launches were compiled as predicted", page)
    assert figures.groups() == (f"{dots:,}", f"{launches:,}")
    for target in TARGETS:
        assert f"{target} {sum(x['dots'] for x in evidence if x['target'] == target)}" in page
    older = json.loads((ROOT / "docs" / "evidence" / "assumptions-3.6.json").read_text())["kernels"]
    dots, agreed = (sum(x[key] for x in older) for key in ("dots", "agreed"))
    assert dots == agreed
    figures = re.search(r"all (\S+) dots that it compiles are as predicted", page)
    assert figures[1] == f"{dots:,}"

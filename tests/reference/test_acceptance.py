"""The derived bound accepts a right kernel and rejects every fault of the acceptance table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts.docs import acceptance as rules
from scripts.docs.markdown import fill, update

from gemmproof.reference.arithmetic import round_float, widen

FORMATS = ("fp16", "bf16")


@pytest.mark.parametrize("target", [None, "sm_90", "sm_80"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_every_fault_is_rejected_and_a_right_kernel_is_not(fmt: str, target: str | None) -> None:
    problem, outputs = rules.outputs(128, 128, 1024, fmt, target)
    rejected = {name for name, out in outputs.items() if not rules.RULES["derived"](out, problem)}
    accepted = {"none: a right kernel"}
    if target is None and fmt == "fp16":  # any order: K u |A||B| is more than cutting to fp16 loses
        accepted.add("store truncates")
    assert set(outputs) - rejected == accepted
    assert len(outputs) == 9


@pytest.mark.lane("full")
def test_the_page_holds_the_table_of_a_run_at_1024() -> None:
    page = fill(rules.PAGE, {"bf16": rules.compare_rules(1024, "bf16")})
    assert page == rules.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_page_shows_all_faults_found_by_the_derived_rule(fmt: str) -> None:
    page = rules.PAGE.read_text(encoding="utf-8")
    shown = page.partition(f"<!-- {fmt} -->\n")[2].partition(f"<!-- end of {fmt} -->")[0]
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in shown.splitlines()]
    ours = cells[0].index("derived")
    assert [row[ours] for row in cells[2:]] == ["", *["found"] * 8]


@pytest.mark.parametrize("accepts", rules.RULES.values(), ids=rules.RULES)
def test_a_rule_accepts_the_reference_and_nothing_undefined(accepts: rules.Rule) -> None:
    problem, _ = rules.outputs(16, 16, 64, "fp16")
    assert accepts(problem.reference, problem)
    assert not accepts(np.full_like(problem.reference, np.nan), problem)


def test_a_store_that_truncates_never_leaves_zero() -> None:
    x = np.array([1.0, 1.001, -1.001, 1.9999, 0.0, -2.9999], np.float32)
    for fmt, unit in (("fp16", 2.0**-10), ("bf16", 2.0**-7)):
        cut = widen(round_float(x, fmt, "rz"))
        assert (np.abs(cut) <= np.abs(x)).all()
        assert (np.abs(x) - np.abs(cut) < unit * np.maximum(np.abs(cut), 1)).all()


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="got no marks for 'fp16', expected <!-- fp16 -->"):
        fill(page, {"fp16": ""})


@pytest.mark.parametrize(
    ("now", "differs"),
    [("held (3 s)\n| a | 0.20 |\n", 0), ("held (2 s)\n| b | 0.13 |\n", 1), ("held (2 s)\n", 1)],
)
def test_a_page_is_compared_but_for_times(tmp_path: Path, now: str, differs: int) -> None:
    page = tmp_path / "page.md"
    page.write_text("held (2.8 s)\n| a | 0.13, 0.25 |\n")
    assert update(page, now, check=True) == differs
    assert page.read_text() != now
    assert update(page, now, check=False) == 0
    assert page.read_text() == now

"""The tile simulator predicts every bit that an H200 gave, on every code path of Triton's dot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.lanes import first_of_each
from tests.witnesses.recorded.cases import Recorded, cases, inputs
from tests.witnesses.recorded.kernel import launch, tensor

from gemmproof.reference.simulator import run

ARCHIVE = Path(__file__).parent / "recorded" / "h200.npz"


def _paths() -> dict[str, list[Recorded]]:
    by_path: dict[str, list[Recorded]] = {}
    for case in cases():
        key = f"{case.path}-{case.a_format}-{case.b_format}"
        by_path.setdefault(key, []).append(case)
    return by_path


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    with np.load(ARCHIVE) as archive:
        return dict(archive)


def test_the_archive_holds_every_case_and_nothing_else(recorded: dict[str, np.ndarray]) -> None:
    """A case without a recording, or a recording without a case, would be compared with nothing."""
    assert set(recorded) == {case.name for case in cases()}


@pytest.mark.parametrize("path", first_of_each(_paths(), lambda path: path.split("-")[0]))
def test_predicted_bits_are_the_recorded_ones(path: str, recorded: dict[str, np.ndarray]) -> None:
    """Every data kind of a code path, chained to K = 4096: no bit differs, NaN included."""
    for case in _paths()[path]:
        formats = (case.a_format, case.b_format, case.acc_format)
        arrays = [tensor(x, f, "cpu") for x, f in zip(inputs(case), formats, strict=True)]
        c = run(lambda *t, case=case: launch(case, *t), *arrays, target="sm_90").result
        expected = recorded[case.name]
        got = c.view(torch.from_numpy(expected).dtype).numpy()
        wrong = np.argwhere(got != expected)
        where = tuple(wrong[0]) if len(wrong) else ()
        assert not len(wrong), (
            f"{case.name}: c{list(map(int, where))}: got {int(got[where]):#x}, "
            f"expected {int(expected[where]):#x}; {len(wrong)} of {got.size} differ"
        )

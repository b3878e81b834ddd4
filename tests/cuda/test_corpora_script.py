"""scripts/measure.py corpora, on the fake device: what is stated of a kernel is what is judged."""

from __future__ import annotations

import pytest
from fake_gpu import FakeGpu
from mutants.table import MUTANTS
from no_false_alarm.table import KERNELS
from scripts import corpora
from scripts.command import run

RIGHT = {kernel.name: kernel for kernel in KERNELS}
WRONG = {mutant.name: mutant.kernel for mutant in MUTANTS}


@pytest.mark.parametrize(
    ("kernel", "stated", "expected"),
    [
        (RIGHT["rows_in_two_launches"], "right", True),
        (RIGHT["batch_on_the_third_axis"], "right", True),
        (RIGHT["packed_bytes_interleaved"], "right", True),
        (WRONG["k_tiles_rounded_down"], "right", False),
        (WRONG["k_tiles_rounded_down"], "runs", True),
        (WRONG["k_tiles_rounded_down"], "raises", False),
        (WRONG["loop_left_with_break"], "raises", True),
        (WRONG["loop_left_with_break"], "runs", False),
    ],
)
def test_a_kernel_is_as_stated(kernel, stated, expected, monkeypatch):
    monkeypatch.setattr(corpora, "Gpu", FakeGpu)
    row = corpora.launch(kernel, stated)
    assert row["expected"] == expected
    assert corpora.describe(row).startswith("ok " if expected else "BAD")


def test_a_device_that_gives_other_bits_is_not_as_stated(monkeypatch):
    monkeypatch.setattr(corpora, "Gpu", lambda: FakeGpu(lambda call, c, t: c + 1))
    row = corpora.launch(RIGHT["rows_in_two_launches"], "right")
    assert not row["expected"]
    assert row["found"][0].startswith("M=33 N=47 K=50 fp16, a row, b column, 3 calls: c[0, 0]")


def test_parameters_are_options(monkeypatch):
    given = []

    def command(page, size: int = 3, check: bool = False, out=None) -> int:
        given.append((str(page), size, check, out and str(out)))
        return size

    for words in (["p"], ["p", "--size", "5", "--check", "--out", "o"]):
        monkeypatch.setattr("sys.argv", ["script", "do", *words])
        run("A script.", {"do": command})
    assert given == [("p", 3, False, None), ("p", 5, True, "o")]

"""`gemmproof tune`: the table that it writes for gemm to read, and refusals in one line."""

from __future__ import annotations

import json

import pytest
from tests.report.schemas import validate
from tests.support.cli_project import NO_ROOM, refuse

from gemmproof.bench import command as bench_command
from gemmproof.bench import tune
from gemmproof.bench.command import BenchOptions
from gemmproof.bench.record import BenchReport, Interval, TimedRow
from gemmproof.cli import main
from gemmproof.kernels import KERNELS
from gemmproof.kernels.tables import SCHEMA, read_table

FACTS = {"device": "a card", "triton": "3.6.0", "date": "2026-11-23"}


def timed(kernel, speed, verdict="faster", M=64, batch=None, **more):
    sizes = {"M": M, "N": 128, "K": 256, "batch": batch}
    ratio = None if speed is None else Interval(speed, 0.9 * speed, 1.1 * speed)
    fields = {"format": "bf16", "out_format": "bf16", "shape": "", "ratio": ratio, **more}
    return TimedRow(kernel=kernel, peer="torch", verdict=verdict, **sizes, **fields)


ROWS = (
    timed("torch again", 1.0, "control"),
    timed("matmul_tma", 1.00006),
    timed("matmul_ws", 1.25, "within noise"),
    timed("matmul", None, "wrong", wrong="c[0, 0]: got 1, expected 2"),
    timed("matmul_tma", 0.9, M=4096),
    timed("matmul_tma", 0.9, batch=4),
)


@pytest.fixture
def measured(monkeypatch):
    """Fake the rows that the worker measured, and record the options of each request."""
    asked: list[BenchOptions] = []

    def measure(options, command):
        asked.append(options)
        bench_command.request_of(options)
        return BenchReport(FACTS, (), ROWS)

    monkeypatch.setattr(bench_command, "measure", measure)
    return asked


def test_a_table_without_room_is_incomplete_and_the_winners_are_printed(measured, capsys):
    assert main(["tune", "/dev/full", "--shapes", "64x128x256"]) == 3
    out, err = capsys.readouterr()
    assert "matmul_ws" in out
    assert err == f"gemmproof tune: TABLE: {NO_ROOM}\n"


def test_gemm_reads_what_was_written(measured, tmp_path, capsys):
    """A row for each plain product of kernels whose results were right, without the control."""
    table = tmp_path / "table.json"
    measurements = tmp_path / "bench.json"
    options = ["--shapes", "64x128x256", "--json", str(measurements)]
    assert main(["tune", str(table), *options]) == 0
    validate("bench", measurements)
    device, (small, large) = read_table(table)
    assert device == "a card"
    assert (small.M, small.N, small.K, small.described) == (64, 128, 256, True)
    assert small.speeds == {"matmul_tma": 1.0, "matmul_ws": 1.25}
    assert small.find_fastest(lambda name: True) == "matmul_ws"
    assert (large.M, large.speeds) == (4096, {"matmul_tma": 0.9})
    assert json.loads(table.read_text())["triton"] == "3.6.0"
    assert sum(line.startswith('  {"format"') for line in table.read_text().splitlines()) == 2
    out = capsys.readouterr().out
    assert "bf16 64x128x256" in out
    assert "matmul_ws, matmul_tma 0.800" in out
    assert "table.json: 2 products on the a card" in out


def test_every_kernel_is_asked_for_with_columns_of_b(measured, tmp_path):
    assert main(["tune", str(tmp_path / "t.json")]) == 0
    (options,) = measured
    assert options.columns
    assert options.dtype == ("bf16",)
    assert options.against == options.targets[0]
    assert options.targets == tuple(f"gemmproof.kernels.{x}:{x}" for x in tune.KERNELS)
    assert set(tune.KERNELS) == set(KERNELS)
    assert tune.SCHEMA == SCHEMA


def test_one_kernel_can_be_named(measured, tmp_path):
    assert main(["tune", str(tmp_path / "t.json"), "--kernel", "matmul_tma"]) == 0
    assert measured[0].targets == ("gemmproof.kernels.matmul_tma:matmul_tma",)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["/no/such/folder/t.json"], "TABLE: got '/no/such/folder/t.json' (No such file or"),
        (["t.json", "--shapes", "big"], "gemmproof tune: --shapes: got 'big', expected MxNxK"),
        (["t.json", "--kernel", "mm"], "gemmproof tune: --kernel: got 'mm', expected one of: "),
    ],
)
def test_bad_usage_is_one_line(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refuse(["tune", *args], capsys)
    assert not (tmp_path / "t.json").exists()

"""The record of all verdicts: the reported differences, and the verdicts of the current code."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts import oracle
from scripts.verdicts import record_files as files
from scripts.verdicts.subjects import describe_report, list_subjects, record_subject

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "oracle.py"
SETTINGS = {"cases": 1}
FINDING = {"property": "stays_in_bounds", "fault": "out_of_bounds", "operand": "a", "line": "k:3"}
WRONG, RIGHT = "mutants/k_tail:no_mask", "tutorials/right"
SUMS = (14.905396669682089, 14.90539666968208)  # of one product, by two machines
SPENDS_ITS_BUDGETS = "families/block_scales:groups_of_k_rounded_down"
RECORD = {
    WRONG: {
        "exit": 1,
        "properties": {"stays_in_bounds": {"cases": 4, "status": "fail"}},
        "findings": [FINDING, {**FINDING, "operand": "b", "line": "k:4"}],
    },
    RIGHT: {"exit": 0, "properties": {"stays_in_bounds": {"status": "pass"}}},
}


@pytest.fixture(name="compare")
def _compare_with_record(tmp_path, capsys):
    def compare(changed, settings=SETTINGS, **options):
        files.write(tmp_path / "old", RECORD, SETTINGS)
        files.write(tmp_path / "new", changed, settings)
        status = oracle.compare(tmp_path / "old", tmp_path / "new", **options)
        return status, capsys.readouterr().out.splitlines()

    return compare


def test_the_same_record_differs_nowhere(compare):
    assert compare(RECORD) == (0, [])


ORDER = [f"stays_in_bounds out_of_bounds {operand}" for operand in "ab"]
CHANGES = [
    (lambda right, wrong: right.update(exit=3), [f"{RIGHT}: exit: got 3, expected 0"]),
    (
        lambda right, wrong: wrong["findings"][1].update(line="k:5"),
        [f"{WRONG}: findings: {ORDER[1]}: line: got 'k:5', expected 'k:4'"],
    ),
    (
        lambda right, wrong: wrong["findings"].reverse(),
        [f"{WRONG}: findings: got the order {', '.join(ORDER[::-1])}, expected {', '.join(ORDER)}"],
    ),
    (
        lambda right, wrong: wrong["properties"]["stays_in_bounds"].update(cases=5, status="pass"),
        [
            f"{WRONG}: properties: stays_in_bounds: {change}"
            for change in ("cases: got 5, expected 4", "status: got 'pass', expected 'fail'")
        ],
    ),
    (
        lambda right, wrong: right.pop("properties"),
        [f"{RIGHT}: properties: got nothing, expected {{'stays_in_bounds': {{'status': 'pass'}}}}"],
    ),
]


@pytest.mark.parametrize(("change", "lines"), CHANGES)
def test_each_difference_is_a_line(compare, change, lines):
    changed = copy.deepcopy(RECORD)
    change(changed[RIGHT], changed[WRONG])
    assert compare(changed) == (1, lines)


def test_a_subject_that_is_gone_or_new_is_a_line(compare, texts):
    only = {WRONG: RECORD[WRONG]}
    code, lines = compare(only)
    assert code == 1
    texts("a subject that is gone", "\n".join(lines), subject=RIGHT)
    code, lines = compare({**RECORD, "kernels/matmul": {"exit": 0}})
    assert code == 1
    texts("a subject that is new", "\n".join(lines))


def test_only_some_are_compared(compare):
    changed = {**RECORD, RIGHT: {**RECORD[RIGHT], "exit": 3}}
    assert compare(changed, only="mutants") == (0, [])


def test_other_settings_are_one_difference(compare):
    line = "settings: got {'cases': 2}, expected {'cases': 1}"
    assert compare(RECORD, {"cases": 2}) == (1, [line])


def test_a_record_of_another_schema_is_one_line(tmp_path, capsys, texts):
    for name in ("old", "new"):
        files.write(tmp_path / name, RECORD, SETTINGS)
    path = tmp_path / "new" / "mutants.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 7}))
    assert oracle.compare(tmp_path / "old", tmp_path / "new") == 1
    texts("a record of another schema", capsys.readouterr().out, schema=str(files.SCHEMA))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "mutants.json: got Expecting property name"),
        ("[]", f"mutants.json: got no schema, expected {files.SCHEMA}"),
        (
            f'{{"schema": {files.SCHEMA}, "settings": {{}}}}',
            "mutants.json: subjects: got None, expected an obj",
        ),
        (None, "got no file of a record"),
    ],
)
def test_what_is_no_record_is_one_line(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "mutants.json").write_text(text)
    assert oracle.compare(tmp_path, tmp_path) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert message in line
    assert line.startswith(str(tmp_path))


def test_a_part_never_replaces_the_record(capsys, texts):
    assert oracle.record(only="mutants") == 2
    texts("a part in place of the record", capsys.readouterr().err)


def test_a_record_is_read_as_it_was_written(tmp_path):
    files.write(tmp_path, RECORD, SETTINGS)
    assert files.read(tmp_path) == (RECORD, SETTINGS)
    files.write(tmp_path, {"tutorials/right": {}}, SETTINGS)  # a group that is gone
    assert [path.name for path in tmp_path.iterdir()] == ["tutorials.json"]


@pytest.mark.parametrize(
    ("by_address", "recorded"),
    [(False, ["k:3 needs M <= 1", "k:9 needs N >= 2"]), (True, None)],
)
def test_what_depends_on_addresses_is_left_out(by_address, recorded):
    unvisited = ("k:9 needs N >= 2", "k:3 needs M <= 1")
    parts = dict.fromkeys(("findings", "expected", "limits"), ())
    searched = {"name": "fits", "status": "pass", "examples": 12, "proof": None}
    properties = [{**searched, "backend": "simulator"}]
    report = {"verdict": "pass", "note": "", **parts, "properties": properties}
    record = describe_report({**report, "unvisited": unvisited}, by_address)
    assert record.get("unvisited") == recorded
    assert ("cases" in record["properties"]["fits"]) == (recorded is not None)


def test_the_last_digits_of_a_sum_are_left_out(texts):
    limit = {"status": "limit", "case": None, "proof": "", "name": "fp32"}
    messages = [f"got 14.5, expected {n}, 2 of 4 wrong" for n in SUMS]
    parts = dict.fromkeys(("properties", "findings", "expected", "unvisited"), ())
    head = {"verdict": "pass", "note": "", **parts}
    reports = [
        describe_report({**head, "limits": [{**limit, "message": x}]}, False) for x in messages
    ]
    assert reports[0] == reports[1]
    texts("a limit without its last digits", reports[0]["limits"]["fp32"]["text"])


@dataclass(frozen=True)
class Named:
    """A subject of which only the key is known."""

    key: str


GONE = "no such kernel"


def _make(subject):
    if subject.key == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if subject.key == "raises":
        raise ValueError(GONE)
    return {"exit": 0}


def test_a_subject_that_ends_its_process_costs_no_other():
    records = oracle.record_all([Named("dies"), Named("raises"), Named("holds")], _make, 2)
    assert list(records.items()) == [
        ("dies", {"died": "SIGKILL"}),
        ("raises", {"raised": f"ValueError: {GONE}"}),
        ("holds", {"exit": 0}),
    ]


# -- the current verdicts ------------------------------------------------------------------------
def _run(*arguments):
    command = [sys.executable, "-P", str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.lane("full")
def test_recorded_twice_the_files_are_the_same(tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        assert _run("record", "--out", folder, "--only", "examples/half_sums") == (0, [])
    first, second = ((folder / "examples.json").read_bytes() for folder in folders)
    assert first == second
    assert json.loads(first)["subjects"]["half_sums"]["exit"] == 1


AS_RECORDED = (
    "examples/right",
    "mutants/k_tail:k_mask_admits_one_more",
    "mutants/strides:batch_stride_of_a_assumed",
)


@pytest.mark.triton("record")
@pytest.mark.parametrize("key", AS_RECORDED)
def test_a_kernel_is_judged_as_recorded(key, record):
    """Findings, cases, proofs and limits of one right kernel and two wrong ones, to the letter."""
    subject = next(entry for entry in list_subjects() if entry.key == key)
    assert (
        list(files.iter_differences({key: record[key]}, {key: record_subject(subject)}, {key}))
        == []
    )


@pytest.fixture(scope="module", name="record")
def _read_record():
    return files.read(oracle.RECORD)[0]


@pytest.mark.lane("full")
@pytest.mark.triton("record")
@pytest.mark.timeout(3600)
def test_sixty_kernels_are_judged_as_recorded():
    """After an intended change of verdicts, run `./run python scripts/oracle.py record`."""
    assert _run("compare", "--subset") == (0, [])


@pytest.mark.lane("full")
@pytest.mark.triton("record")
@pytest.mark.timeout(3600)
def test_a_busy_machine_changes_no_verdict():
    """A kernel whose proofs, searches or limits end because their budgets are spent."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        assert _run("compare", "--only", SPENDS_ITS_BUDGETS) == (0, [])
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()

"""The published JSON Schemas: one for each document, and what commands write is as they say."""

from __future__ import annotations

import copy
from pathlib import Path

import jsonschema
import pytest
from scripts.docs.recorded_runs import DOCUMENTS, EVIDENCE, RUNS, SCHEMAS, make_schemas
from tests.report.schemas import read_schema, validate

from gemmproof.cli import COMMANDS, EXIT, main
from gemmproof.options import iter_options

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CONFTEST = """
from gemmproof import KernelUnderTest
import no_k_mask, right

def pytest_gemm_kernels():
    return [KernelUnderTest(x.__name__, x.matmul) for x in (right, no_k_mask)]
"""
FEW = ("--max-examples", "2", "--no-proof")
# tests/bench validates what `bench` and `tune` write
WRITTEN = [
    ("list", "list", ()),
    ("wrappers", "list", ("scaled.py",)),
    ("page", "explain", ("stored_twice",)),
    *(
        pytest.param(*row, marks=pytest.mark.lane("full"))
        for row in (
            ("report", "check", ("right.py:matmul", "--target", "sm_90", "--check-model", *FEW)),
            ("report", "check", ("no_k_mask.py:matmul", *FEW)),
            ("report", "drift", ("right.py:matmul", "--K", "512..1024", "--quiet")),
            ("address_map", "explain", ("right.py:matmul", "--quiet")),
            ("mutation", "mutate", ("right.py:matmul", "--max-mutants", "2", *FEW)),
            ("lowering", "lowering", ("right.py:matmul", "--quiet")),
        )
    ),
]


def test_every_command_that_writes_json_has_a_schema():
    writing = {
        record.command.name
        for record in COMMANDS
        if any(option.name == "json" for option in iter_options(record))
    }
    described = {command.split()[0] for x in DOCUMENTS.values() for command in x.commands}
    assert writing == described


def test_the_schemas_and_their_table_are_current():
    assert make_schemas(check=True) == 0
    assert {path.stem for path in SCHEMAS.iterdir()} == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_of_its_draft_with_a_title(name):
    schema = read_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    assert schema["title"]
    assert schema["description"]


@pytest.mark.parametrize(("name", "command", "arguments"), WRITTEN)
def test_what_a_command_writes_is_as_its_schema_says(
    name, command, arguments, monkeypatch, tmp_path
):
    monkeypatch.chdir(EXAMPLES)
    path = tmp_path / "written.json"
    assert main([command, *arguments, "--json", str(path)]) in (EXIT["pass"], EXIT["fail"])
    validate(name, path)


@pytest.mark.lane("full")
def test_what_signoff_writes_is_as_its_schema_says(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=":")
    monkeypatch.chdir(tmp_path)
    Path("conftest.py").write_text(CONFTEST)
    # few cases do not exercise every property
    options = ["--json", "signoff.json", "--accept", "exercise", *FEW]
    assert main(["signoff", "--kernel", "right", *options]) == EXIT["pass"]
    validate("signoff", "signoff.json")
    more = ["--drift", "--baseline", "signoff.json", "--mutation", write_scores()]
    assert main(["signoff", *more, *options]) == EXIT["fail"]
    document = validate("signoff", "signoff.json")
    right, wrong = document["kernels"]
    assert (right["signoff"]["verdict"], bool(right["signoff"]["drift"])) == ("signed off", True)
    assert (wrong["signoff"]["verdict"], bool(wrong["findings"])) == ("refused", True)
    assert document["baseline"]
    assert document["changes"]


def write_scores() -> str:
    """Write the record of some mutants of a right kernel; return its file."""
    target = f"{EXAMPLES / 'right.py'}:matmul"
    main(["mutate", target, "--max-mutants", "2", "--json", "mutation.json", *FEW])
    return "mutation.json"


# recorded before rows had `operands` and `peer_differs`
@pytest.mark.parametrize("name", sorted({*RUNS} - {"kernels", "layers"}))
def test_benchmarks_that_ran_on_a_gpu_are_as_their_schema_says(name):
    validate("bench", EVIDENCE / f"speed-{name}.json")


def test_a_field_too_many_and_one_too_few_are_refused():
    schema = jsonschema.Draft202012Validator(read_schema("bench"))
    document = validate("bench", EVIDENCE / "speed-gemm.json")
    longer, shorter = copy.deepcopy(document), copy.deepcopy(document)
    longer["rows"][0]["more"] = 1
    del shorter["rows"][0]["verdict"]
    assert [schema.is_valid(x) for x in (document, longer, shorter)] == [True, False, False]

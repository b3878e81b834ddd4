"""Records as JSON: round trips of drawn values, errors at their path, schemas."""

import ast
import json
import math
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.round_trips.record_strategies import list_hints, values
from tests.support.lanes import first_of_each

from gemmproof.bench.record import BenchReport, BenchRequest
from gemmproof.compiled.guarantees import LaunchPlan
from gemmproof.compiled.record import Failure, LoweredLaunch
from gemmproof.draft.record import DraftedOptions
from gemmproof.drift.record import DriftRequest
from gemmproof.engine.request import (
    CasesRequest,
    CheckRequest,
    GuaranteeRequest,
    Guarantees,
    SavedTried,
    ShrinkRequest,
)
from gemmproof.explain.record import ExplainRequest, Explanation
from gemmproof.lowering.record import DotRequest, LaunchRequest, SweepPlan
from gemmproof.mutate.record import (
    MutantJudgement,
    MutantRequest,
    MutationReport,
    OriginalSurvey,
)
from gemmproof.properties import codec
from gemmproof.properties.address_map import AddressMap
from gemmproof.properties.codec import decode, dump, encode, make_schema, parse
from gemmproof.properties.judges.accumulator_drift import Drift
from gemmproof.record_calls.declaration import RecordedDeclaration
from gemmproof.record_calls.record import RecordEvent
from gemmproof.record_calls.task import RecordedWrapper
from gemmproof.report.record import Report
from gemmproof.reproduce.bug import Bug, WrapperLocation
from gemmproof.reproduce.record import ReproduceRequest, WrittenTest
from gemmproof.signoff.record import Inputs, KernelRecord
from gemmproof.worker.load_kernel import RegisteredKernel
from gemmproof.worker.protocol import EVENT_TYPES, WorkerCall, read_event, write_event

ROOT = Path(codec.__file__).resolve().parents[1]
DOCUMENTS = (Report, Drift, BenchReport, MutationReport, AddressMap, Bug, KernelRecord, Inputs)
SENT = (
    BenchRequest, CasesRequest, CheckRequest, DotRequest, DraftedOptions, DriftRequest,
    ExplainRequest,
    Explanation, Failure,
    GuaranteeRequest, Guarantees, LaunchPlan, LaunchRequest, LoweredLaunch, MutantJudgement,
    MutantRequest, OriginalSurvey, RecordEvent, RecordedDeclaration, RecordedWrapper,
    RegisteredKernel, ReproduceRequest, SavedTried, ShrinkRequest,
    SweepPlan, WorkerCall, WrapperLocation, WrittenTest, *EVENT_TYPES.values(),
)  # fmt: skip
RECORDS = (*DOCUMENTS, *SENT)


def names(record):
    return record.__name__


@pytest.mark.parametrize("record", RECORDS, ids=names)
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read_again_and_is_as_its_schema_says(record, data):
    value = data.draw(values(record))
    text = dump(value)
    assert parse(record, text, "it") == value
    assert json.loads(dump(parse(record, text, "it"))) == json.loads(text)
    if record in DOCUMENTS:
        jsonschema.Draft202012Validator(make_schema(record)).validate(json.loads(text))


@pytest.mark.parametrize("name", EVENT_TYPES)
@settings(max_examples=20)
@given(data=st.data(), held=st.integers(0))
def test_an_event_is_one_line_and_is_read_again(name, data, held):
    event = data.draw(values(EVENT_TYPES[name]))
    line = write_event(event, held)
    assert line.index(b"\n") == len(line) - 1
    assert read_event(line) == (event, held)


# -- text that was changed -----------------------------------------------------------------------
OTHERS = (None, True, -1, 3, 0.5, 10**400, "x", "two\nlines", "\ud800", [], [None], {}, {"x": 1})


def list_paths(data, at=()):
    """Return the keys and indices that lead to each part of plain data."""
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [at, *(x for key in keys for x in list_paths(data[key], (*at, key)))]


def change(data, at, draw):
    """Return plain data in which one part is replaced, or lacks or gains a part."""
    if at:
        copy = data.copy()
        copy[at[0]] = change(data[at[0]], at[1:], draw)
        return copy
    other = draw(st.sampled_from(OTHERS))
    way = draw(st.sampled_from(["replace", "lose", "gain"]))
    if way == "replace" or not isinstance(data, dict | list):
        return other
    copy = data.copy()
    if way == "lose" and data:
        copy.pop(draw(st.sampled_from([*data] if isinstance(data, dict) else range(len(data)))))
    elif isinstance(data, dict):
        copy[draw(st.sampled_from(["new", "two\nlines", "\x1b[31m"]))] = other
    else:
        copy.append(other)
    return copy


@pytest.mark.parametrize("record", first_of_each(RECORDS, lambda x: x in SENT), ids=names)
@settings(max_examples=60)
@given(data=st.data())
def test_a_changed_text_is_another_record_or_one_line(record, data):
    plain = json.loads(dump(data.draw(values(record))))
    at = data.draw(st.sampled_from(list_paths(plain)))
    text = json.dumps(change(plain, at, data.draw))
    try:
        other = parse(record, text, "it")
    except ValueError as error:
        message = str(error)
        assert re.fullmatch("it.*: got .*", message)
        assert message.isprintable(), message
    else:
        assert parse(record, dump(other), "it") == other


@dataclass(frozen=True, slots=True)
class Leaf:
    x: int
    y: float = 0.0
    both: typing.ClassVar = ("double",)
    derived: typing.ClassVar = ("double",)

    @property
    def double(self):
        return 2 * self.x

    def __post_init__(self):
        if self.x < 0:
            raise ValueError(f"leaf x: got {self.x}, expected at least 0")


@dataclass(frozen=True, slots=True)
class Tree:
    leaves: tuple[Leaf, ...] = ()
    pair: tuple[int, str] = (1, "a")
    first: Leaf | str | None = None
    kind: typing.Literal["oak", "fir"] = "oak"
    names: dict[str, Leaf] = field(default_factory=dict)
    lines: frozenset[int] = frozenset()
    unit: typing.Literal[1] = 1
    size: int = field(default=0, metadata={"renamed": "height"})


WRONG = {
    '{"leaves": [{"x": 1}, {"x": "1"}]}': "tree.leaves[1].x: got '1', expected an integer",
    '{"leaves": [{"x": true}]}': "tree.leaves[0].x: got True, expected an integer",
    '{"leaves": [{}]}': "tree.leaves[0]: got no x, expected fields x y",
    '{"leaves": [{"x": 1, "z": 2}]}': "tree.leaves[0]: got field 'z', expected fields x y",
    '{"leaves": {"x": 1}}': "tree.leaves: got {'x': 1}, expected a list",
    '{"leaves": [{"x": 1, "y": "wide"}]}': "tree.leaves[0].y: got 'wide', expected a number",
    '{"leaves": [{"x": -1}]}': "tree.leaves[0]: leaf x: got -1, expected at least 0",
    '{"names": {"leaf": {"x": -1}}}': "tree.names.leaf.x: got -1, expected at least 0",
    f'{{"leaves": [{{"x": 1, "y": 1{"0" * 400}}}]}}': "tree.leaves[0].y: got 1000000000",
    '{"names": {"a\\nb": 1}}': "tree.names.'a\\nb': got 1, expected an object",
    '{"size": 1.0}': "tree.size: got 1.0, expected an integer",
    '{"unit": true}': "tree.unit: got True, expected 1",
    '{"unit": 1.0}': "tree.unit: got 1.0, expected 1",
    '{"pair": [1]}': "tree.pair: got [1], expected a list of 2",
    '{"pair": [1, 2]}': "tree.pair[1]: got 2, expected a text",
    '{"first": 3}': "tree.first: got 3, expected an object or a text or null",
    '{"first": {"x": []}}': "tree.first.x: got [], expected an integer",
    '{"kind": "elm"}': "tree.kind: got 'elm', expected one of oak fir",
    '{"height": 3}': "tree.height: got an old name, expected size",
    "[]": "tree: got [], expected an object",
    "{": "tree: got broken JSON: ",
    "[" * 100_000: "tree: got JSON nested too deep, expected an object",
    f'{{"kind": "{"x" * 99}"}}': f"tree.kind: got '{'x' * 56}..., expected one of oak fir",
}


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_an_error_names_the_path_of_the_value(text):
    with pytest.raises(ValueError, match=r"^tree") as refused:
        parse(Tree, text, "tree")
    assert str(refused.value).startswith(WRONG[text])
    assert "\n" not in str(refused.value)


def test_numbers_that_json_lacks_are_texts():
    for y in (math.inf, -math.inf):
        assert parse(Leaf, dump(Leaf(1, y)), "leaf").y == y
    assert math.isnan(parse(Leaf, dump(Leaf(1, math.nan)), "leaf").y)
    assert json.loads(dump(Leaf(1, math.inf)))["y"] == "Infinity"


def test_a_derived_value_is_written_and_not_read():
    assert encode(Leaf(2))["double"] == 4
    assert decode(Leaf, {"x": 2, "double": 9}, "leaf") == Leaf(2)


def test_a_value_that_no_json_holds_is_refused():
    with pytest.raises(TypeError, match="expected a record or plain data"):
        encode({"x": object()})


# -- the records above are all -------------------------------------------------------------------
READERS = {"decode": 0, "parse": 0, "read_record": 0, "read_part": 1, "read_result": 0}


def iter_read(tree) -> Iterator[str]:
    """Yield the names in the types that a module reads from JSON, or has a worker take or give."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                number = READERS.get(name, len(args))
                yield from list_names(*args[number : number + 1])
            case ast.FunctionDef(args=ast.arguments(args=[request, *others]), returns=returned):
                if any("WorkerContext" in list_names(x.annotation) for x in others):
                    yield from list_names(request.annotation, returned)


def list_names(*trees):
    nodes = (node for tree in trees if tree is not None for node in ast.walk(tree))
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def list_parts(kind, seen):
    """Add the records in a type to those seen, with those in their fields."""
    for part in typing.get_args(kind):
        list_parts(part, seen)
    if is_dataclass(kind) and kind not in seen:
        seen.add(kind)
        for hint in list_hints(kind).values():
            list_parts(hint, seen)
    return seen


def test_every_record_that_is_read_is_among_them():
    paths = [p for name in ("properties", "src") for p in (ROOT / name).rglob("*.py")]
    trees = [ast.parse(path.read_text()) for path in paths]
    classes = {n.name for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    read = {name for tree in trees for name in iter_read(tree)} & classes
    tested = {x.__name__ for record in RECORDS for x in list_parts(record, set())}
    # the result of a helper of workers, and a tuple that has the name of another class
    assert read - tested == {"KernelUnderTest", "Outcome"}
    assert len(read) > 30

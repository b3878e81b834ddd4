"""Records as JSON: round trips of drawn values, errors at their path, schemas."""

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmproof.bench.record import BenchReport
from gemmproof.mutate.record import MutationReport
from gemmproof.properties.address_map import AddressMap
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import decode, dump, encode, make_schema, parse
from gemmproof.properties.judges.accumulator_drift import Drift
from gemmproof.reference.accumulator import Accumulator
from gemmproof.report.record import Report
from gemmproof.reproduce.bug import Bug
from gemmproof.signoff.record import Inputs, KernelRecord

RECORDS = (Report, Drift, BenchReport, MutationReport, AddressMap, Bug, KernelRecord, Inputs)
CASES = st.builds(
    Case,
    *(st.integers(0, 200) for _ in "MNK"),
    dtype=st.sampled_from(["fp16", "int8", "fp8e4m3"]),
    layouts=st.sampled_from([(), (("a", "column"),)]),
    seed=st.integers(0, 9),
    arguments=st.sampled_from([(), (("bias", "None"),)]),
)
ACCUMULATORS = st.builds(
    Accumulator,
    *map(st.just, ("fp16", "fp32", 11, "", 16, "ascending", 25, 24, "chopped")),
    pattern=st.sampled_from([(), ((0, 1), (2,))]),
    split=st.integers(1, 4),
    last_place=st.none() | st.integers(),
)


@cache
def values(kind):
    """Return a strategy for the values of a type, which follows its annotations."""
    origin, parts = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, parts))
    if origin is typing.Literal:
        return st.sampled_from(parts)
    if origin is tuple and parts[-1] is not Ellipsis:
        return st.tuples(*map(values, parts))
    if origin in (tuple, list, frozenset):
        return st.lists(values(parts[0]), max_size=2).map(origin)
    if origin in (dict, Mapping):
        return st.dictionaries(st.text(max_size=3), values(parts[1]), max_size=2)
    if origin in (Case, Accumulator):
        return CASES if origin is Case else ACCUMULATORS
    if is_dataclass(origin):
        hints = typing.get_type_hints(origin, localns={"Drift": Drift})
        return st.builds(origin, **{f.name: values(hints[f.name]) for f in fields(origin)})
    plain = {
        str: st.text(max_size=5),
        int: st.integers(),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        types.NoneType: st.none(),
        object: st.none() | st.integers() | st.text(max_size=3),
    }
    return plain[origin]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read_again_and_is_as_its_schema_says(record, data):
    value = data.draw(values(record))
    text = dump(value)
    assert parse(record, text, "it") == value
    assert encode(parse(record, text, "it")) == json.loads(text)
    jsonschema.Draft202012Validator(make_schema(record)).validate(json.loads(text))


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

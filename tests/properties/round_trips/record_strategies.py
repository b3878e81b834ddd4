"""Strategies for the records of gemmproof: contracts, cases, and any record by its annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import BATCHED, LAYOUTS
from gemmproof.properties.contract import ACCUMULATORS, MAX_SIDE, TOPS, Contract, Sizes
from gemmproof.reference.accumulator import Accumulator
from gemmproof.reference.formats import FORMATS, OPERANDS, RESULTS
from gemmproof.reference.gpus import GPUS

# -- contracts -----------------------------------------------------------------------------------
CONDITIONS = ("K % 32 == 0 and M <= N", "M == N", "not M * N > 4096 or K < 8", "M + N >= -K")


@st.composite
def sizes(draw: st.DrawFn, top: int = MAX_SIDE) -> Sizes:
    """Draw sizes up to `top`, with ends that other axes have, too; a single one has step 1."""
    ends = st.sampled_from([0, 1, 16, *(n for n in TOPS.values() if n <= top)]) | st.integers(
        0, top
    )
    low, high = sorted((draw(ends), draw(ends)))
    step = draw(st.sampled_from([1, 16]) | st.integers(1, 99))
    return Sizes(low, high, step if low < high and -(-low // step) * step <= high else 1)


@st.composite
def contracts(draw: st.DrawFn, has_options: bool = False) -> Contract:
    """Draw contracts whose condition, if any, is a text; with `has_options` those of a command."""
    formats = draw(st.lists(st.sampled_from(OPERANDS), min_size=1, max_size=3, unique=True))
    sums = [x for x in ACCUMULATORS if all(x in _list_sums(name) for name in formats)]
    batched, deterministic = draw(st.booleans()), draw(st.booleans())
    names = [name for name in LAYOUTS if batched or name not in BATCHED]
    several = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(tuple)
    shorthands = st.sampled_from(["any", "contiguous"])
    where = draw(st.none() | st.sampled_from(CONDITIONS))
    chosen = st.lists(st.sampled_from([*GPUS]), max_size=2, unique=True).map(tuple)
    return Contract(
        tuple(formats),
        # a condition leaves the sizes open, so that some size meets it
        **{
            axis: draw(st.just(Sizes(1, top)) if where else sizes(top))
            for axis, top in TOPS.items()
        },
        where=where,
        batched=batched,
        layouts=draw(shorthands if has_options else shorthands | several),
        huge=draw(st.booleans()),
        accumulator=draw(st.sampled_from(sums)),
        out=draw(st.none() | st.sampled_from(RESULTS)),
        deterministic=deterministic,
        batch_invariant=deterministic and draw(st.booleans()),
        symmetric=has_options or draw(st.booleans()),
        tensor_cores=draw(st.booleans()),
        spills=draw(st.none() | st.integers(0, 999)),
        fits=draw(chosen),
        host_epilogue=draw(st.sampled_from([(), ("add",), ("relu", "python")])),
        expected=draw(st.dictionaries(st.text(min_size=1, max_size=5), REASONS, max_size=2)),
    )


def _list_sums(name: str) -> tuple[str, ...]:
    return ("fp32", *FORMATS[name].declarable_sums)


# -- records -------------------------------------------------------------------------------------
REASONS = st.text("ab'\" ", min_size=1, max_size=9).filter(str.strip)
CASES = st.builds(
    Case,
    *(st.integers(0, 200) for _ in "MNK"),
    dtype=st.sampled_from(["fp16", "int8", "fp8e4m3"]),
    layouts=st.sampled_from([(), (("a", "column"),)]),
    seed=st.integers(0, 9),
    arguments=st.sampled_from([(), (("bias", "None"),)]),
)
ACCUMULATED = st.builds(
    Accumulator,
    *map(st.just, ("fp16", "fp32", 11, "", 16, "ascending", 25, 24, "chopped")),
    pattern=st.sampled_from([(), ((0, 1), (2,))]),
    split=st.integers(1, 4),
    last_place=st.none() | st.integers(),
)
PLAIN = st.none() | st.integers() | st.text(max_size=3)
OWN: Mapping[Any, st.SearchStrategy[Any]] = {
    Case: CASES,
    Accumulator: ACCUMULATED,
    Contract: contracts(),
    str: st.text(max_size=5),
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    types.NoneType: st.none(),
    object: PLAIN,
    Any: PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(st.text(max_size=3), PLAIN),
}


@cache
def values(kind: Any) -> st.SearchStrategy[Any]:
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
    if is_dataclass(origin) and origin not in OWN:
        hints = list_hints(origin)
        return st.builds(origin, **{f.name: values(hints[f.name]) for f in fields(origin)})
    return OWN[origin]


def list_hints(record: Any) -> dict[str, Any]:
    """Return the types of a record's fields, those that are imported late included."""
    late = [f.metadata["late"] for f in fields(record) if "late" in f.metadata]
    names = {name: x for module in late for name, x in vars(import_module(module)).items()}
    return typing.get_type_hints(record, localns=names)

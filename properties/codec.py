"""Records as plain data for JSON, and back; an error names the path of the invalid value.

A record is a dataclass of texts, numbers, booleans, None, tuples, lists, sets, mappings with text
keys, records, and unions of these; it needs no code of its own. `derived` of a class names
properties that are written for readers, and ignored when read. A class whose JSON has a form of its
own defines `to_dict`, and static `from_dict` and `json_schema`, which gets a function that returns
the schema of a type. Metadata of a field: `renamed` is its old name, answered with the new one;
`late` the module of a type that few values need.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Plain = Any  # dicts, lists, texts, numbers, booleans and None
Json = dict[str, Any]  # an object of JSON that is not decoded yet
Describe = Callable[[Any], Json]  # returns the schema of a type
NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}  # JSON lacks them
NAMES = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}
SCHEMAS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def encode(value: Any) -> Plain:
    """Return the plain data of a value. Raises TypeError for one that has none."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _label_not_finite(value)
    if isinstance(value, Mapping):
        return {name: encode(x) for name, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(x) for x in value]
    if isinstance(value, (set, frozenset)):
        return [encode(x) for x in sorted(value)]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        names = (*(f.name for f in fields(value)), *getattr(value, "derived", ()))
        return {name: encode(getattr(value, name)) for name in names}
    raise TypeError(f"got {value!r}, expected a record or plain data")


def decode(kind: type[T], data: Plain, path: str) -> T:
    """Return the value of type `kind` that `encode` gave. Raises ValueError, in one line."""
    result: T = _decode(kind, data, path)
    return result


def dump(value: Any, indent: int | None = None) -> str:
    """Return the JSON of a value."""
    return json.dumps(encode(value), indent=indent)


def parse(kind: type[T], text: str, path: str) -> T:
    """Return the value of type `kind` in a JSON text. Raises ValueError, in one line."""
    try:
        return decode(kind, json.loads(text), path)
    except json.JSONDecodeError as error:
        got = f"broken JSON: {error}"
    except RecursionError:
        got = "JSON nested too deep"
    raise ValueError(f"{path}: got {got}, expected {_label(kind)}")


def _label_not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# -- decoding ------------------------------------------------------------------------------------
def _decode(kind: Any, data: Plain, path: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _decode_union(parts, data, path)
    _require(_is_fitting(kind, data), kind, data, path)
    if kind is float:
        is_held = not isinstance(data, int) or abs(data) <= sys.float_info.max
        _require(is_held, kind, data, path)  # JSON has integers of any size
        return NOT_FINITE[data] if isinstance(data, str) else float(data)
    if origin is tuple and parts[-1] is not Ellipsis:
        _require(len(data) == len(parts), kind, data, path)
        return tuple(
            _decode(*x, f"{path}[{n}]") for n, x in enumerate(zip(parts, data, strict=True))
        )
    if origin in (tuple, list, set, frozenset):
        return origin(_decode(parts[0], x, f"{path}[{n}]") for n, x in enumerate(data))
    if _is_mapping(origin):
        return {name: _decode(parts[1], x, _join(path, name)) for name, x in data.items()}
    if hasattr(kind, "from_dict"):
        return _call(lambda: kind.from_dict(data), path)
    if is_dataclass(kind):
        return decode_fields(cast(type, kind), data, path)
    return data


def _decode_union(kinds: tuple[Any, ...], data: Plain, path: str) -> Any:
    fitting = [kind for kind in kinds if _is_fitting(kind, data)]
    _require(bool(fitting), Union[kinds], data, path)  # noqa: UP007  # of types at run time
    for kind in fitting[:-1]:
        try:
            return _decode(kind, data, path)
        except ValueError:
            continue
    return _decode(fitting[-1], data, path)


def decode_fields(record: type[T], data: Json, path: str) -> T:
    """Return the record of these fields, even if its class has a `from_dict`, which may call this.

    Raises ValueError, in one line.
    """
    return _call(lambda: record(**dict(_iter_values(record, data, path))), path)


def _join(path: str, name: str) -> str:
    """Return the path of a value by its name, which may be any text."""
    return f"{path}.{name if name.isprintable() else _shorten(name)}"


def _call(make: Callable[[], T], path: str) -> T:
    try:
        return make()
    except _AtPath:
        raise
    except ValueError as error:  # of the record itself, which names its field first
        owner, _, rest = str(error).partition(" ")
        is_own = owner == path.rpartition(".")[2].partition("[")[0]
        raise _AtPath(f"{path}.{rest}" if is_own else f"{path}: {error}") from None


def _iter_values(record: Any, data: Json, path: str) -> Iterator[tuple[str, Any]]:
    known = {f.name: f for f in fields(record)}
    for f in known.values():
        if (old := f.metadata.get("renamed")) in data:
            raise _AtPath(f"{path}.{old}: got an old name, expected {f.name}")
    for name, f in known.items():
        if name in data:
            yield name, _decode(_find_type(record, f, data[name]), data[name], f"{path}.{name}")
        elif f.default is MISSING and f.default_factory is MISSING:
            raise _AtPath(f"{path}: got no {name}, expected fields {' '.join(known)}")
    for name in data:
        if name not in known and name not in getattr(record, "derived", ()):
            raise _AtPath(f"{path}: got field {_shorten(name)}, expected fields {' '.join(known)}")


def _find_type(record: type, f: Field[Any], data: Plain) -> Any:
    """Return the type of a field; the module of a `late` one is imported unless `data` is None."""
    if "late" not in f.metadata:
        return _list_types(record)[f.name]
    return NoneType if data is None else _resolve_late(record, f)


@cache
def _list_types(record: type) -> dict[str, object]:
    names = {f.name: f.type for f in fields(record) if "late" not in f.metadata}
    holder = SimpleNamespace(__annotations__=names)
    return get_type_hints(holder, vars(sys.modules[record.__module__]))


def _resolve_late(record: type, f: Field[Any]) -> Any:
    holder = SimpleNamespace(__annotations__={f.name: f.type})
    names = {**vars(import_module(f.metadata["late"])), **vars(sys.modules[record.__module__])}
    return get_type_hints(holder, names)[f.name]


def _is_mapping(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def _is_fitting(kind: Any, data: Plain) -> bool:
    """Return whether the JSON type of `data` is that of `kind`, whatever it holds."""
    origin = get_origin(kind) or kind
    if origin in (Any, object):
        return True
    if origin is Literal:  # 1 and True are equal
        return any(type(data) is type(part) and data == part for part in get_args(kind))
    if origin is float:
        return type(data) in (int, float) or (isinstance(data, str) and data in NOT_FINITE)
    if origin in (tuple, list, set, frozenset):
        return isinstance(data, (list, tuple))
    if _is_mapping(origin) or is_dataclass(origin):
        return isinstance(data, dict)
    return type(data) is origin


class _AtPath(ValueError):
    """An error whose message has its path already."""


def _require(condition: bool, kind: Any, data: Plain, path: str) -> None:
    if not condition:
        raise _AtPath(f"{path}: got {_shorten(data)}, expected {_label(kind)}")


def _shorten(data: Plain) -> str:
    shown = repr(data)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _label(kind: Any) -> str:
    """Return a phrase for a type in a message."""
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_label, parts)))
    if origin is Literal:
        return f"one of {' '.join(map(str, parts))}" if len(parts) > 1 else repr(parts[0])
    if origin in (tuple, list, set, frozenset):
        return f"a list of {len(parts)}" if origin is tuple and ... not in parts else "a list"
    return NAMES.get(origin, "null" if origin is NoneType else "an object")


# -- schema --------------------------------------------------------------------------------------
def make_schema(record: Any) -> Json:
    """Return the JSON Schema (draft 2020-12) of what `encode` gives of a record."""
    definitions: Json = {}
    root = _describe(record, definitions)
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return draft | root | {"$defs": dict(sorted(definitions.items()))}


def describe_object(parts: Json, required: Iterable[str] | None = None) -> Json:
    """Return the schema of an object of these fields alone; all are required by default."""
    return {
        "type": "object",
        "properties": parts,
        "required": list(parts if required is None else required),
        "additionalProperties": False,
    }


def describe_fields(record: Any, describe: Describe) -> Json:
    """Return the schema of each field of a record and of each derived value, by name."""
    kinds: Json = {
        f.name: _resolve_late(record, f) if "late" in f.metadata else _list_types(record)[f.name]
        for f in fields(record)
    }
    for name in getattr(record, "derived", ()):
        kinds[name] = get_type_hints(getattr(record, name).fget)["return"]
    return {name: describe(kind) for name, kind in kinds.items()}


def _describe(kind: Any, definitions: Json) -> Json:
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return {"anyOf": [_describe(part, definitions) for part in parts]}
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is float:
        return {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]}
    if origin is tuple and ... not in parts:
        items = [_describe(part, definitions) for part in parts]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin in (tuple, list, set, frozenset):
        return {"type": "array", "items": _describe(parts[0], definitions)}
    if _is_mapping(origin):
        return {"type": "object", "additionalProperties": _describe(parts[1], definitions)}
    if is_dataclass(origin):
        return _describe_record(origin, definitions)
    return {"type": SCHEMAS[origin]} if origin in SCHEMAS else {}


def _describe_record(record: Any, definitions: Json) -> Json:
    name = record.__name__
    if name not in definitions:
        definitions[name] = {}  # a record may contain itself
        describe = partial(_describe, definitions=definitions)
        if hasattr(record, "json_schema"):
            definitions[name] = record.json_schema(describe)
        else:
            definitions[name] = describe_object(describe_fields(record, describe))
    return {"$ref": f"#/$defs/{name}"}

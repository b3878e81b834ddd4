"""TTIR as records, and the reader of its text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gemmproof.reference.formats import FNUZ, FORMATS


# -- dtypes --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Dtype:
    """A scalar type: TTIR's name, the numpy type of one element, and the type behind a pointer.

    `format` is the type's name in FORMATS, or "" if it has none.
    """

    name: str
    numpy: np.dtype
    format: str = ""
    pointee: Dtype | None = None

    @property
    def is_pointer(self) -> bool:
        return self.pointee is not None

    @property
    def is_float(self) -> bool:
        return self.name[0] in "fb"

    @property
    def bits(self) -> int:
        return 1 if self.name == "i1" else 8 * self.numpy.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (i1 takes a byte)."""
        return self.numpy.itemsize

    def __str__(self) -> str:
        return f"pointer to {self.pointee}" if self.is_pointer else self.name


def _table() -> dict[str, Dtype]:
    table = {"i1": Dtype("i1", np.dtype(np.bool_))}
    for f in (*FORMATS.values(), *FNUZ):
        if f.ttir:  # of two integers of one width the signed one comes first
            table.setdefault(f.ttir, Dtype(f.ttir, f.storage, f.name if f.name in FORMATS else ""))
    return table


DTYPES = _table()
I1, I8, I32, I64 = (DTYPES[name] for name in ("i1", "i8", "i32", "i64"))
F32, F64 = DTYPES["f32"], DTYPES["f64"]

# torch's or Triton's dtype -> TTIR's
TORCH = {f"torch.{f.dtype}": f.ttir for f in (*FORMATS.values(), *FNUZ) if f.ttir}
TORCH |= {f.triton or f.name: f.ttir for f in (*FORMATS.values(), *FNUZ) if f.ttir}
TORCH["torch.bool"] = TORCH["int1"] = "i1"


@lru_cache(maxsize=64)
def pointer_to(pointee: Dtype) -> Dtype:
    return Dtype("ptr", np.dtype(np.int64), pointee=pointee)


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value: a block of `shape` of scalars, () for a scalar.

    `kind` is "value", "window" (a block pointer) or "descriptor": the latter two have the shape of
    the block that they load, and `dtype` is that of its elements.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    kind: str = "value"

    def with_dtype(self, dtype: Dtype) -> Type:
        return Type(self.shape, dtype)


_DIMS = re.compile(r"((?:\d+x)*)(.+)")


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """Parse a type of TTIR. Raises ValueError for an unknown type."""
    text = text.strip()
    for word, kind in (("!tt.tensordesc<", "descriptor"), ("!tt.ptr<", "value"), ("<", "value")):
        if text.startswith(word) and text.endswith(">"):
            inner = text[len(word) : -1]
            if kind == "descriptor":
                block = parse_type(inner if inner.startswith("tensor<") else f"tensor<{inner}>")
                return Type(block.shape, block.dtype, "descriptor")
            pointee = parse_type(re.sub(r", \d+$", "", inner))  # without the address space
            if pointee.shape:
                return Type(pointee.shape, pointee.dtype, "window")
            return Type((), pointer_to(pointee.dtype))
    if text.startswith("tensor<") and text.endswith(">"):
        # raw TTIR has a layout behind the block only for descriptors
        match = _DIMS.fullmatch(re.sub(r", #.*$", "", text[7:-1]))
        if match:
            element = parse_type(match[2])
            shape = tuple(int(n) for n in match[1].split("x") if n)
            if not element.shape:
                return Type(shape, element.dtype)
    name = text.replace("si", "i").replace("ui", "i") if text[:2] in ("si", "ui") else text
    if name in DTYPES:
        return Type((), DTYPES[name])
    raise ValueError(f"type {text}")


def unsigned(data: np.ndarray) -> np.ndarray:
    """Return the same bits read without sign."""
    return data if data.dtype.kind in "bu" else data.view(f"u{data.dtype.itemsize}")


# -- module --------------------------------------------------------------------------------------
class ReadError(ValueError):
    """A line that the reader does not understand; the message is the line."""


@dataclass(frozen=True, slots=True)
class Loc:
    """A line of Python source."""

    file: str
    line: int


@dataclass(slots=True)
class Op:
    """One operation as it is written.

    `operands` and `results` are SSA names. `keywords` are the bare words before the types (a
    predicate, an atomic's kind), `attrs` the named attributes as text, `strings` the quoted ones.
    `segments` counts the operands in each pair of brackets, if the operation has lists of them.
    `targets` are a branch's blocks with the operands that it passes to them.
    """

    name: str
    results: list[str]
    operands: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    targets: list[tuple[str, list[str]]] = field(default_factory=list)
    regions: list[list[Block]] = field(default_factory=list)
    loc: Loc | None = None
    text: str = ""
    operand_types: list[Type] = field(default_factory=list)

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        text = self.attrs.get(name)
        return default if text is None else int(text.partition(" : ")[0])

    def integers(self, name: str) -> list[int]:
        """Return an attribute that lists integers (array<i32: 1, 0>, dense<[1, 2]>, dense<4>)."""
        text = self.attrs.get(name, "")
        inner = text.partition("<")[2].rpartition(">")[0]
        inner = inner.split(":", 1)[1] if text.startswith("array") and ":" in inner else inner
        return [int(x) for x in re.findall(r"-?\d+", inner)]

    def flag(self, name: str) -> bool:
        """Return a boolean attribute."""
        return self.attrs.get(name, "false").startswith("true")


@dataclass(slots=True)
class Block:
    """A label, the values that it is entered with, and its operations."""

    label: str
    args: list[tuple[str, Type]]
    ops: list[Op] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function: its parameters by SSA name, and its body."""

    name: str
    public: bool
    args: list[tuple[str, Type]]
    body: list[Block]


# -- syntax --------------------------------------------------------------------------------------
_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


_INLINE = re.compile(r"\b([a-zA-Z]\w*) = ([\w.-]+(?:<[^>]*>)?)")


def unescape(text: str) -> str:
    r"""Resolve MLIR's escapes in a quoted string (\22 for a quote, \0A for a new line)."""
    raw = re.sub(
        r"\\([0-9A-Fa-f]{2}|[\\\"nt])",
        lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1] if len(m[1]) == 1 else chr(int(m[1], 16))),
        text,
    )
    try:  # bytes beyond ASCII are escaped one by one
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return raw


def label_results(text: str | None) -> list[str]:
    names = []
    for part in (text or "").split(","):
        name, _, count = part.strip().partition(":")
        if count:
            names += [f"{name}#{i}" for i in range(int(count))]
        elif name:
            names.append(name)
    return names


def until_close(text: str) -> tuple[str, str]:
    """Return the text up to the parenthesis that closes an opened one, and the text after it."""
    depth, quoted, i = 1, False, 0
    while i < len(text):
        char = text[i]
        if char == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
            if not depth:
                return text[:i], text[i + 1 :]
        i += 1
    raise ReadError(text)


def split_list(text: str) -> list[str]:
    """Split a list at commas outside of any brackets and quotes."""
    items, depth, start, quoted = [], 0, 0, False
    for i, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "<([{":
            depth += 1
        elif char in ")]}" or (char == ">" and text[i - 1] != "-"):
            depth -= 1
        elif char == "," and not depth:
            items.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*items, last] if last else items


def read_arguments(text: str) -> list[tuple[str, Type]]:
    """Return names and types of a function's or block's arguments."""
    arguments = []
    for item in split_list(text):
        name, _, kind = item.partition(": ")
        kind = re.sub(r"\s*loc\(.*\)$", "", kind)
        arguments.append((name.strip(), parse_type(re.sub(r"\s*\{.*\}$", "", kind))))
    return arguments


def fill_in(op: Op, rest: str) -> None:
    """Fill in operands, attributes and types from the text after an operation's name."""
    op.strings = [unescape(s) for s in _STRING.findall(rest)]
    numbers = iter(range(len(op.strings)))
    rest = _STRING.sub(lambda _: f'"{next(numbers)}"', rest)
    while match := re.search(r"<?\{([^{}]*)\}>?", rest):
        for item in split_list(match[1]):
            key, _, value = item.partition(" = ")
            quoted = re.fullmatch(r'"(\d+)"', value.strip())
            op.attrs[key.strip()] = op.strings[int(quoted[1])] if quoted else value or "true"
        rest = rest[: match.start()] + rest[match.end() :]
    rest = re.sub(r'"\d+"', "", rest)
    if op.name in ("cf.br", "cf.cond_br"):
        return _fill_branch(op, rest)
    if op.name in ("scf.for", "scf.while", "scf.if"):
        return _fill_structured(op, rest)
    if op.name == "tt.call":
        callee, _, rest = rest.partition("(")
        op.keywords = [op.strings[0] if op.strings else callee.strip().removeprefix("@")]
        rest = f"({rest}"
    head, colon, types = rest.rpartition(" : ")
    if not colon:
        head, types = ("", rest[2:]) if rest.startswith(": ") else (rest, "")
        if "-> " in rest:  # no operands, as when inline assembly reads a register
            head, types = rest.split("-> ", 1)[0], rest[rest.index("-> ") :]
    if op.name == "arith.constant":
        op.keywords, types = [head.strip()], types or "i1"
    else:
        for key, value in _INLINE.findall(head):
            op.attrs[key] = value
        head = _INLINE.sub("", head)
        op.operands = _OPERAND.findall(head)
        op.segments = [len(_OPERAND.findall(part)) for part in re.findall(r"\[([^\]]*)\]", head)]
        bare = re.sub(r"<[^>]*>", "", _OPERAND.sub("", head))
        if op.name != "tt.call":
            op.keywords = re.findall(r"[a-z_]\w*", bare)
    op.types = _result_types(op, types.strip())


def _fill_branch(op: Op, rest: str) -> None:
    head = rest
    for match in re.finditer(r"(\^\w+)(?:\(([^)]*)\))?", rest):
        passed = (match[2] or "").partition(" : ")[0]
        op.targets.append((match[1], _OPERAND.findall(passed)))
        head = rest[: rest.index("^")]
    op.operands = _OPERAND.findall(head)


def _fill_structured(op: Op, rest: str) -> None:
    """Fill in scf.for (lower, upper, step, carried values), scf.while (carried values) or scf.if
    (the condition)."""
    for region in op.regions:  # a region that yields nothing is printed without its last line
        if not region[-1].ops or region[-1].ops[-1].name not in ("scf.yield", "scf.condition"):
            region[-1].ops.append(Op("scf.yield", []))
    head, _, types = rest.partition(" -> ")
    if op.name == "scf.if":
        op.operands, op.types = _OPERAND.findall(head), _type_list(types)
        return
    start, _, carried = head.partition("iter_args(") if op.name == "scf.for" else ("", "", head)
    pairs = re.findall(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)", carried)
    op.operands = [value for _, value in pairs]
    if op.name == "scf.while":
        op.types = _type_list(types)
        kinds = _type_list(head.rpartition(" : ")[2]) if pairs else []
        op.regions[0][0].args = [(n, t) for (n, _), t in zip(pairs, kinds, strict=True)]
    else:
        index, *bounds = _OPERAND.findall(start)
        op.operands = [*bounds[:3], *op.operands]
        op.keywords = ["unsigned"] if "unsigned" in start else []
        kind = (types or head).rpartition(" : ")[2]
        op.types = _type_list(types.rpartition(" : ")[0] or types)
        carried_args = ((n, t) for (n, _), t in zip(pairs, op.types, strict=True))
        op.regions[0][0].args = [(index, parse_type(kind.strip())), *carried_args]


def _type_list(text: str) -> list[Type]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [parse_type(item) for item in split_list(text)]


def _result_types(op: Op, text: str) -> list[Type]:
    """Return the types of the results, from the types as they are written."""
    if not op.results:
        return []
    if "-> " in text:
        types = _type_list(text.rpartition("-> ")[2])
        return types * (len(op.results) if len(types) == 1 else 1)  # tt.split writes one for both
    if " to " in text:
        return [parse_type(text.rpartition(" to ")[2])]
    kinds = split_list(text)
    if not kinds:
        raise ValueError("no type")
    if op.name == "tt.make_tensor_descriptor":
        return [parse_type(f"!tt.tensordesc{kinds[-1]}")]
    if op.name in ("arith.cmpi", "arith.cmpf"):
        return [parse_type(kinds[0]).with_dtype(DTYPES["i1"])]
    if op.name == "tt.load":
        pointer = parse_type(kinds[0])
        return [pointer.with_dtype(pointer.dtype.pointee or pointer.dtype)]
    if op.name == "tt.unsplat":  # its one lane as a scalar
        return [Type((), parse_type(kinds[0]).dtype)]
    if op.name in ("tt.addptr", "tt.advance"):
        return [parse_type(kinds[0])] * len(op.results)
    return [parse_type(kinds[-1])] * len(op.results)


# -- reader --------------------------------------------------------------------------------------
def read_module(text: str) -> dict[str, Function]:
    """Read the functions of a module, by name. Raises ReadError for text not understood.

    The body of tl.flip is one operation, FLIP.
    """
    reader = _Reader(text)
    try:
        return _simplify_flips(reader.functions())
    except ReadError:
        raise
    except (ValueError, IndexError) as error:
        raise ReadError(f"{error} in: {reader.lines[reader.at - 1]}") from None


_LOC = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_POSITION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_LINE = re.compile(r'(?:(%[^=]+?) = )?"?([a-z]\w*(?:\.\w+)+)"?(?![\w.])(.*)')


_TRAILING_LOC = re.compile(r"\s*loc\((#loc\d*|unknown|\".*\")\)$")
_FUNCTION = re.compile(r'tt\.func (public|private)?\s*@(?:"([^"]+)"|([\w.$-]+))\((.*)$')


class _Reader:
    def __init__(self, text: str) -> None:
        self.places: dict[str, str] = {}
        self.resolved: dict[str, Loc | None] = {}
        self.lines: list[str] = []
        self.at = 0
        for raw in text.splitlines():
            line = raw.strip()
            if match := _LOC.match(line):
                self.places[match[1]] = match[2]
            elif line and not line.startswith(("//", "#")):
                self.lines.append(line)

    def functions(self) -> dict[str, Function]:
        functions = {}
        while self.at < len(self.lines):
            line = self._next()
            if line.startswith("tt.func"):
                function = self._function(line)
                functions[function.name] = function
        return functions

    def _next(self) -> str:
        if self.at >= len(self.lines):
            raise ReadError(f"the text ends behind: {self.lines[-1]}")
        self.at += 1
        return self.lines[self.at - 1]

    def _split_loc(self, text: str) -> tuple[str, Loc | None]:
        """Return an operation's text without the location at its end, and that location."""
        match = _TRAILING_LOC.search(text)
        if match is None:
            return text, None
        if match[1] not in self.resolved:
            self.resolved[match[1]] = self._find_loc(match[1])
        return text[: match.start()].rstrip(), self.resolved[match[1]]

    def _find_loc(self, text: str) -> Loc | None:
        """Resolve a location, through names and calls, the innermost first."""
        for _ in range(64):
            if match := _POSITION.search(text):
                return Loc(unescape(match[1]), int(match[2]))
            alias = re.search(r"#(loc\d*)", text)
            if alias is None or alias[1] not in self.places:
                return None
            text = self.places[alias[1]]
        return None

    def _function(self, line: str) -> Function:
        match = _FUNCTION.match(line)
        if match is None:
            raise ReadError(line)
        inner, _ = until_close(match[4])
        function = Function(match[2] or match[3], match[1] == "public", read_arguments(inner), [])
        if line.endswith("{"):
            function.body, _ = self._region()
            if function.body and not function.body[0].args:
                function.body[0].args = function.args
        return function

    def _region(self) -> tuple[list[Block], str]:
        """Return the blocks up to the closing brace, and the line that closes."""
        blocks = [Block("", [])]
        while True:
            line = self._next()
            if line.startswith("}"):
                return [b for b in blocks if b.ops or b.label] or blocks, line
            if line.startswith("^"):
                label, _, rest = line.partition(":") if "(" not in line else line.partition("(")
                args = (
                    read_arguments(until_close(rest)[0]) if "(" in line.partition("//")[0] else []
                )
                blocks.append(Block(label.strip(), args))
                continue
            blocks[-1].ops.append(self._op(line))

    def _op(self, line: str) -> Op:
        match = _LINE.match(line)
        if match is None:
            raise ReadError(line)
        results, name, rest = match[1], match[2], match[3].strip()
        op = Op(name, label_results(results), text=line)
        rest, op.loc = self._split_loc(rest)
        opens = rest.endswith("{")
        rest = rest[: -2 if rest.endswith("({") else -1].rstrip() if opens else rest
        tail = ""
        while opens:
            region, line = self._region()
            op.regions.append(region)
            tail = line[1:].strip()
            opens = tail.endswith("{")
        if op.regions:
            tail, op.loc = self._split_loc(tail)
            rest = f"{rest} {tail.removeprefix(')')}"
        try:
            fill_in(op, rest)
        except ValueError as error:
            raise ReadError(f"{error} in: {op.text}") from None
        return op


# -- flips ---------------------------------------------------------------------------------------
# The lanes of a block in reverse along an axis. Not an operation of Triton's, whose tl.flip is a
# function: for each bit of a lane's index, the bits of a pair of elements are added modulo 2 to
# those of each of the two, which exchanges them.
FLIP = "gemmproof.flip"


def _simplify_flips(functions: dict[str, Function]) -> dict[str, Function]:
    """Put one operation in place of the body of each function that flips its argument."""
    for function in functions.values():
        ops = function.body[0].ops if function.body else []
        if len(function.args) != 1 or not any(op.name == "arith.xori" for op in ops):
            continue
        (name, kind), end = function.args[0], ops[-1]
        if not any(op.results == end.operands and op.types == [kind] for op in ops):
            continue  # such as the bits of a float
        given = np.arange(int(np.prod(kind.shape))).reshape(*kind.shape, 1)
        moved = _trace_lanes(functions, function, given)
        for axis in range(len(kind.shape)):
            if moved is not None and np.array_equal(moved, np.flip(given, axis)):
                attrs = {"axis": str(axis)}
                flip = Op(FLIP, list(end.operands), [name], attrs=attrs, types=[kind], loc=end.loc)
                function.body = [Block("", function.args, [flip, end])]
                break
    return functions


def _trace_lanes(
    functions: dict[str, Function], function: Function, given: np.ndarray
) -> np.ndarray | None:
    """Return the lanes whose bits each lane of a function's result is the sum of, modulo 2.

    `given` are those of its argument; the last axis counts the summands. None: a function that does
    anything else.
    """
    known = {function.args[0][0]: given}
    for op in function.body[0].ops:
        if not op.operands or not set(op.operands) <= set(known):
            return None
        x = known[op.operands[0]]
        if not op.types:
            return x if op.name == "tt.return" else None
        shape, lanes = op.types[0].shape, None
        if op.name == "tt.bitcast" and shape == x.shape[:-1]:
            lanes = x
        elif op.name == "tt.reshape" and "allow_reorder" not in op.keywords:
            lanes = x.reshape(*shape, -1)
        elif op.name == "tt.expand_dims":
            lanes = np.expand_dims(x, op.integer("axis"))
        elif op.name == "tt.broadcast":
            lanes = np.broadcast_to(x, (*shape, x.shape[-1]))
        elif op.name == "tt.call":
            callee = functions.get(op.keywords[0])
            others = {name: f for name, f in functions.items() if f is not callee}  # it may recur
            lanes = None if callee is None else _trace_lanes(others, callee, x)
        elif op.name == "arith.xori":
            lanes = _add_lanes(x, known[op.operands[1]])
        elif op.name == "tt.reduce" and find_combination(functions, op) == "arith.xori":
            parts = np.moveaxis(x, op.integer("axis"), 0)
            lanes = parts[0]
            for part in parts[1:]:
                lanes = _add_lanes(lanes, part)
        if lanes is None:
            return None
        known[op.results[0]] = lanes
    return None


def _add_lanes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the summands of both; one that both have adds nothing."""
    none = np.iinfo(x.dtype).max
    both = np.sort(np.concatenate([x, y], axis=-1), axis=-1)
    twice = both[..., 1:] == both[..., :-1]
    both[..., 1:][twice] = none
    both[..., :-1][twice] = none
    both.sort(axis=-1)
    used = (both != none).any(axis=tuple(range(both.ndim - 1)))
    return both[..., : int(used.sum())]


def find_combination(functions: dict[str, Function], reduce: Op) -> str:
    """Return the one operation by which a reduction combines two elements, or "" if it has more."""
    (block,) = reduce.regions[0]
    names, ops = [name for name, _ in block.args], block.ops
    while len(ops) == 2 and len(names) == 2 and sorted(ops[0].operands) == sorted(names):
        first, last = ops
        if not last.name.endswith("return") or last.operands != first.results:
            return ""
        if first.name != "tt.call":
            return first.name
        callee = functions.get(first.keywords[0])
        if callee is None:
            return ""
        names, ops = [name for name, _ in callee.args], callee.body[0].ops
    return ""

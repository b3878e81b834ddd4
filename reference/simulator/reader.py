"""Read the text of a TTIR module: functions, blocks and operations, each with its source line.

One reader for Triton 3.6 to 3.9. MLIR prints one operation a line, operands before attributes
before types; only branches, loops and calls have a form of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gemmproof.reference.simulator.dtypes import DTYPES, Type, parse_type


class ReadError(ValueError):
    """A line that the reader does not understand; the message is the line."""


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in Python source."""

    file: str
    line: int
    column: int


@dataclass(slots=True)
class Op:
    """One operation as it is written.

    `operands` and `results` are SSA names. `words` are what stands bare before the types (a
    predicate, an atomic's kind), `attrs` what is named, as text, `strings` what is quoted.
    `segments` counts the operands in each pair of brackets, where the operation has lists of them.
    `targets` are a branch's blocks with the operands that it hands them.
    """

    name: str
    results: list[str]
    operands: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
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
        """An integer attribute."""
        text = self.attrs.get(name)
        return default if text is None else int(text.partition(" : ")[0])

    def integers(self, name: str) -> list[int]:
        """An attribute that lists integers (array<i32: 1, 0>, dense<[1, 2]> or dense<4>)."""
        text = self.attrs.get(name, "")
        inner = text.partition("<")[2].rpartition(">")[0]
        inner = inner.split(":", 1)[1] if text.startswith("array") and ":" in inner else inner
        return [int(x) for x in re.findall(r"-?\d+", inner)]

    def flag(self, name: str) -> bool:
        """A boolean attribute."""
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


def read_module(text: str) -> dict[str, Function]:
    """The functions of a module by name. Raises ReadError for what is not understood."""
    return _Reader(text).functions()


_LOC = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_LINE = re.compile(r'(?:(%[^=]+?) = )?"?([a-z]\w*(?:\.\w+)+)"?(?![\w.])(.*)')
_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TRAILING_LOC = re.compile(r"\s*loc\((#loc\d*|unknown|\".*\")\)$")
_FUNCTION = re.compile(r'tt\.func (public|private)?\s*@(?:"([^"]+)"|([\w.$-]+))\((.*)$')
_INLINE = re.compile(r"\b([a-zA-Z]\w*) = ([\w.-]+(?:<[^>]*>)?)")


class _Reader:
    def __init__(self, text: str) -> None:
        self.places: dict[str, str] = {}
        self.lines: list[str] = []
        self.at = 0
        for raw in text.splitlines():
            line = raw.strip()
            if found := _LOC.match(line):
                self.places[found[1]] = found[2]
            elif line and not line.startswith(("//", "#")):
                self.lines.append(line)

    def functions(self) -> dict[str, Function]:
        found = {}
        while self.at < len(self.lines):
            line = self._next()
            if line.startswith("tt.func"):
                function = self._function(line)
                found[function.name] = function
        return found

    def _next(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]

    def _loc(self, text: str) -> Loc | None:
        """The place that a location names, through names and calls, the innermost first."""
        seen = 0
        while seen < 64:
            if place := _PLACE.search(text):
                return Loc(_unescape(place[1]), int(place[2]), int(place[3]))
            alias = re.search(r"#(loc\d*)", text)
            if alias is None or alias[1] not in self.places:
                return None
            text, seen = self.places[alias[1]], seen + 1
        return None

    def _function(self, line: str) -> Function:
        found = _FUNCTION.match(line)
        if found is None:
            raise ReadError(line)
        inner, _ = _until_close(found[4])
        function = Function(found[2] or found[3], found[1] == "public", _arguments(inner), [])
        if line.endswith("{"):
            function.body, _ = self._region()
            if function.body and not function.body[0].args:
                function.body[0].args = function.args
        return function

    def _region(self) -> tuple[list[Block], str]:
        """The blocks up to the closing brace, and the line that closes."""
        blocks = [Block("", [])]
        while True:
            line = self._next()
            if line.startswith("}"):
                return [b for b in blocks if b.ops or b.label] or blocks, line
            if line.startswith("^"):
                label, _, rest = line.partition(":") if "(" not in line else line.partition("(")
                args = _arguments(_until_close(rest)[0]) if "(" in line.partition("//")[0] else []
                blocks.append(Block(label.strip(), args))
                continue
            blocks[-1].ops.append(self._op(line))

    def _op(self, line: str) -> Op:
        found = _LINE.match(line)
        if found is None:
            raise ReadError(line)
        results, name, rest = found[1], found[2], found[3].strip()
        op = Op(name, _result_names(results), text=line)
        if where := _TRAILING_LOC.search(rest):
            op.loc = self._loc(where[1])
            rest = rest[: where.start()].rstrip()
        opens = rest.endswith("{")
        rest = rest[: -2 if rest.endswith("({") else -1].rstrip() if opens else rest
        tail = ""
        while opens:
            region, line = self._region()
            op.regions.append(region)
            tail = line[1:].strip()
            opens = tail.endswith("{")
        if op.regions:
            if where := _TRAILING_LOC.search(tail):
                op.loc = self._loc(where[1])
                tail = tail[: where.start()].rstrip()
            rest = f"{rest} {tail.removeprefix(')')}"
        try:
            _fill(op, rest)
        except ValueError as error:
            raise ReadError(f"{error} in: {op.text}") from None
        return op


def _unescape(text: str) -> str:
    r"""A quoted string without MLIR's escapes (\22 for a quote, \0A for a new line)."""
    raw = re.sub(
        r"\\([0-9A-Fa-f]{2}|[\\\"nt])",
        lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1] if len(m[1]) == 1 else chr(int(m[1], 16))),
        text,
    )
    try:  # bytes beyond ASCII are escaped one by one
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return raw


def _result_names(text: str | None) -> list[str]:
    names = []
    for part in (text or "").split(","):
        name, _, count = part.strip().partition(":")
        if count:
            names += [f"{name}#{i}" for i in range(int(count))]
        elif name:
            names.append(name)
    return names


def _until_close(text: str) -> tuple[str, str]:
    """The text up to the parenthesis that closes an opened one, and the text behind it."""
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
    """The items of a list, split at commas outside of any brackets and quotes."""
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


def _arguments(text: str) -> list[tuple[str, Type]]:
    """Names and types of a function's or block's arguments."""
    made = []
    for item in split_list(text):
        name, _, kind = item.partition(": ")
        kind = re.sub(r"\s*loc\(.*\)$", "", kind)
        made.append((name.strip(), parse_type(re.sub(r"\s*\{.*\}$", "", kind))))
    return made


def _fill(op: Op, rest: str) -> None:
    """Take operands, attributes and types from what stands behind an operation's name."""
    op.strings = [_unescape(s) for s in _STRING.findall(rest)]
    numbers = iter(range(len(op.strings)))
    rest = _STRING.sub(lambda _: f'"{next(numbers)}"', rest)
    while found := re.search(r"<?\{([^{}]*)\}>?", rest):
        for item in split_list(found[1]):
            key, _, value = item.partition(" = ")
            quoted = re.fullmatch(r'"(\d+)"', value.strip())
            op.attrs[key.strip()] = op.strings[int(quoted[1])] if quoted else value.strip() or "true"
        rest = rest[: found.start()] + rest[found.end() :]
    rest = re.sub(r'"\d+"', "", rest)
    if op.name in ("cf.br", "cf.cond_br"):
        return _fill_branch(op, rest)
    if op.name in ("scf.for", "scf.while", "scf.if"):
        return _fill_structured(op, rest)
    if op.name == "tt.call":
        callee, _, rest = rest.partition("(")
        op.words = [op.strings[0] if op.strings else callee.strip().removeprefix("@")]
        rest = f"({rest}"
    head, colon, types = rest.rpartition(" : ")
    if not colon:
        head, types = ("", rest[2:]) if rest.startswith(": ") else (rest, "")
    if op.name == "arith.constant":
        op.words, types = [head.strip()], types or "i1"
    else:
        for key, value in _INLINE.findall(head):
            op.attrs[key] = value
        head = _INLINE.sub("", head)
        op.operands = _OPERAND.findall(head)
        op.segments = [len(_OPERAND.findall(part)) for part in re.findall(r"\[([^\]]*)\]", head)]
        bare = re.sub(r"<[^>]*>", "", _OPERAND.sub("", head))
        if op.name != "tt.call":
            op.words = re.findall(r"[a-z_]\w*", bare)
    op.types = _result_types(op, types.strip())


def _fill_branch(op: Op, rest: str) -> None:
    head = rest
    for found in re.finditer(r"(\^\w+)(?:\(([^)]*)\))?", rest):
        passed = (found[2] or "").partition(" : ")[0]
        op.targets.append((found[1], _OPERAND.findall(passed)))
        head = rest[: rest.index("^")]
    op.operands = _OPERAND.findall(head)


def _fill_structured(op: Op, rest: str) -> None:
    """scf.for: lower, upper, step, then what is carried; scf.while: what is carried; scf.if: the
    condition."""
    for region in op.regions:  # a region that hands nothing on is printed without its last line
        if not region[-1].ops or region[-1].ops[-1].name not in ("scf.yield", "scf.condition"):
            region[-1].ops.append(Op("scf.yield", []))
    head, arrow, types = rest.partition(" -> ")
    if op.name == "scf.for":
        before, _, carried = head.partition("iter_args(")
        names = _OPERAND.findall(before)
        pairs = re.findall(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)", carried)
        op.operands = [*names[1:4], *(value for _, value in pairs)]
        op.words = ["unsigned"] if "unsigned" in before else []
        kind = types.rpartition(" : ")[2] if arrow else head.rpartition(" : ")[2]
        types = types.rpartition(" : ")[0] or types
        index = parse_type(kind.strip())
        op.types = _type_list(types) if arrow else []
        args = [(names[0], index), *((n, t) for (n, _), t in zip(pairs, op.types, strict=True))]
        op.regions[0][0].args = args
    elif op.name == "scf.while":
        pairs = re.findall(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)", head)
        op.operands = [value for _, value in pairs]
        before_types = _type_list(head.rpartition(" : ")[2]) if pairs else []
        op.types = _type_list(types) if arrow else []
        op.regions[0][0].args = [(n, t) for (n, _), t in zip(pairs, before_types, strict=True)]
    else:
        op.operands = _OPERAND.findall(head)
        op.types = _type_list(types) if arrow else []


def _type_list(text: str) -> list[Type]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [parse_type(item) for item in split_list(text)]


def _result_types(op: Op, text: str) -> list[Type]:
    """The types of the results, from the types as they are written."""
    if not op.results:
        return []
    if " -> " in text:
        kinds = _type_list(text.rpartition(" -> ")[2])
        return kinds * len(op.results) if len(kinds) == 1 else kinds  # tt.split names its type once
    if " to " in text:
        return [parse_type(text.rpartition(" to ")[2])]
    kinds = split_list(text)
    if not kinds:
        raise ValueError("no type")
    if op.name == "tt.make_tensor_descriptor":
        block = parse_type(f"!tt.tensordesc{kinds[-1]}")
        return [block]
    if op.name in ("arith.cmpi", "arith.cmpf"):
        return [parse_type(kinds[0]).with_dtype(DTYPES["i1"])]
    if op.name == "tt.load":
        pointer = parse_type(kinds[0])
        return [pointer.with_dtype(pointer.dtype.pointee or pointer.dtype)]
    if op.name in ("tt.addptr", "tt.advance"):
        return [parse_type(kinds[0])] * len(op.results)
    return [parse_type(kinds[-1])] * len(op.results)

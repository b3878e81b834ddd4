"""The text after the name of a TTIR operation: operands, attributes, words and types.

MLIR prints operands before attributes before types; only branches, loops and calls have a form of
their own.
"""

from __future__ import annotations

import re

from gemmproof.reference.ttir.dtypes import DTYPES, Type, parse_type
from gemmproof.reference.ttir.module import Op, ReadError

_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


_INLINE = re.compile(r"\b([a-zA-Z]\w*) = ([\w.-]+(?:<[^>]*>)?)")


def unescape(text: str) -> str:
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


def name_results(text: str | None) -> list[str]:
    names = []
    for part in (text or "").split(","):
        name, _, count = part.strip().partition(":")
        if count:
            names += [f"{name}#{i}" for i in range(int(count))]
        elif name:
            names.append(name)
    return names


def until_close(text: str) -> tuple[str, str]:
    """The text up to the parenthesis that closes an opened one, and the text after it."""
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


def read_arguments(text: str) -> list[tuple[str, Type]]:
    """Names and types of a function's or block's arguments."""
    made = []
    for item in split_list(text):
        name, _, kind = item.partition(": ")
        kind = re.sub(r"\s*loc\(.*\)$", "", kind)
        made.append((name.strip(), parse_type(re.sub(r"\s*\{.*\}$", "", kind))))
    return made


def fill_in(op: Op, rest: str) -> None:
    """Fill in operands, attributes and types from the text after an operation's name."""
    op.strings = [unescape(s) for s in _STRING.findall(rest)]
    numbers = iter(range(len(op.strings)))
    rest = _STRING.sub(lambda _: f'"{next(numbers)}"', rest)
    while found := re.search(r"<?\{([^{}]*)\}>?", rest):
        for item in split_list(found[1]):
            key, _, value = item.partition(" = ")
            quoted = re.fullmatch(r'"(\d+)"', value.strip())
            op.attrs[key.strip()] = op.strings[int(quoted[1])] if quoted else value or "true"
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
        if "-> " in rest:  # nothing goes in, as where inline assembly reads a register
            head, types = rest.split("-> ", 1)[0], rest[rest.index("-> ") :]
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
        op.words = ["unsigned"] if "unsigned" in start else []
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
    """The types of the results, from the types as they are written."""
    if not op.results:
        return []
    if "-> " in text:
        made = _type_list(text.rpartition("-> ")[2])
        return made * (len(op.results) if len(made) == 1 else 1)  # tt.split says it once for both
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

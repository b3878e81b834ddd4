"""A module that is printed as Triton prints it is read as what it was drawn from."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.witnesses.ttir.test_reader_faults import TEXTS, outcome
from triton._C.libtriton import ir

from gemmproof.reference.ttir import (
    DTYPES,
    F32,
    I1,
    I32,
    Block,
    Loc,
    Op,
    Type,
    parse_type,
    pointer_to,
    read_module,
)

# -- types ---------------------------------------------------------------------------------------
SHAPES = st.lists(st.sampled_from([1, 2, 16, 128]), min_size=1, max_size=4).map(tuple)
SCALARS = st.sampled_from([*DTYPES.values()])


@st.composite
def types(draw):
    """A type and its text."""
    element, shape = draw(SCALARS), draw(st.just(()) | SHAPES)
    block = f"tensor<{write_shape(shape)}{element.name}>"
    kind = draw(st.sampled_from(["value", "pointer", "window", "descriptor"]))
    if kind == "value":
        return Type(shape, element), block if shape else element.name
    if kind == "pointer":
        space = draw(st.sampled_from(["", ", 1", ", 3"]))
        text = f"!tt.ptr<{element.name}{space}>"
        text = f"tensor<{write_shape(shape)}{text}>" if shape else text
        return Type(shape, pointer_to(element)), text
    shape = shape or (16,)
    block = f"tensor<{write_shape(shape)}{element.name}>"
    if kind == "window":
        return Type(shape, element, "window"), f"!tt.ptr<{block}>"
    text = draw(st.sampled_from([block, block[7:-1], f"{block[:-1]}, #shared>"]))
    return Type(shape, element, "descriptor"), f"!tt.tensordesc<{text}>"


def write_shape(shape):
    return "".join(f"{n}x" for n in shape)


@settings(max_examples=200)
@given(types())
def test_a_type_is_read_as_it_is_printed(drawn):
    kind, text = drawn
    assert parse_type(text) == kind


def write(kind):
    """Return the text of a value's type."""
    name = f"!tt.ptr<{kind.dtype.pointee.name}>" if kind.dtype.is_pointer else kind.dtype.name
    return f"tensor<{write_shape(kind.shape)}{name}>" if kind.shape else name


# -- modules -------------------------------------------------------------------------------------
BLOCK, MASK = Type((16,), I32), Type((16,), I1)
KINDS = [Type((), I32), BLOCK, Type((16, 128), F32), Type((), I1), MASK, Type((), pointer_to(F32))]
KINDS += [Type((16,), pointer_to(F32))]
ADDED = [kind for kind in KINDS if kind.dtype is I32]


class Drawing:
    """A module that is drawn line by line: its text, and the operations that should be read."""

    def __init__(self, draw):
        self.draw, self.count = draw, 0
        self.lines, self.locations = [], []
        self.scope, self.ops = [], []

    def name(self):
        self.count += 1
        return self.draw(st.sampled_from([f"%{self.count}", f"%acc_{self.count}"]))

    def locate(self):
        """Return a location and the text behind an operation, which may be an alias."""
        file, line = self.draw(st.sampled_from(["k.py", "a b.py", "/x/(y).py"])), len(self.lines)
        text = f'"{file}":{line}:3'
        way = self.draw(st.sampled_from(["alias", "named", "callsite", '"x"', "unknown", ""]))
        if way in ("unknown", '"x"', ""):
            return None, f" loc({way})" if way else ""
        number = len(self.locations)
        self.locations += [text, f'"x"(#loc{number})', f"callsite(#loc{number} at #loc)"]
        return Loc(file, line), f" loc(#loc{number + ['alias', 'named', 'callsite'].index(way)})"

    def emit(self, op, text):
        op.loc, behind = self.locate()
        self.lines.append(f"{text}{behind}")
        self.ops.append(op)
        self.scope += zip(op.results, op.types, strict=True)

    def pick(self, kind):
        """Return a value of a type: a new constant if there is none."""
        names = [name for name, x in self.scope if x == kind]
        if names:
            return self.draw(st.sampled_from(names))
        name = self.name()
        if kind.dtype.is_pointer:
            scalar = Type((), kind.dtype)
            source = self.pick(scalar) if kind.shape else "%p"
            text = f"{name} = tt.splat {source} : {write(scalar)} -> {write(kind)}"
            self.emit(Op("tt.splat", [name], [source], types=[kind]), text)
            return name
        word = {I1: "true", F32: "1.500000e+00"}.get(kind.dtype, "-3")
        word = f"dense<{word}>" if kind.shape else word
        text = f"{name} = arith.constant {word}" + (f" : {write(kind)}" if word != "true" else "")
        self.emit(Op("arith.constant", [name], [], [word], types=[kind]), text)
        return name

    # -- operations ------------------------------------------------------------------------------
    def add(self):
        kind, name = self.draw(st.sampled_from(ADDED)), self.name()
        first, second = self.pick(kind), self.pick(kind)
        which = self.draw(st.sampled_from(["arith.addi", "arith.divsi", "arith.remui"]))
        text = f"{name} = {which} {first}, {second} : {write(kind)}"
        self.emit(Op(which, [name], [first, second], types=[kind]), text)

    def compare(self):
        kind, name = self.draw(st.sampled_from(ADDED)), self.name()
        first, second, word = (
            self.pick(kind),
            self.pick(kind),
            self.draw(st.sampled_from(["slt", "eq"])),
        )
        text = f"{name} = arith.cmpi {word}, {first}, {second} : {write(kind)}"
        op = Op("arith.cmpi", [name], [first, second], [word], types=[kind.with_dtype(I1)])
        self.emit(op, text)

    def range(self):
        name = self.name()
        attributes = {"end": "16 : i32", "start": "0 : i32"}
        text = f"{name} = tt.make_range {{end = 16 : i32, start = 0 : i32}} : {write(BLOCK)}"
        self.emit(Op("tt.make_range", [name], attrs=attributes, types=[BLOCK]), text)

    def load(self):
        name, pointers, loaded = self.name(), KINDS[-1], Type((16,), F32)
        count = self.draw(st.integers(1, 3))
        operands = [self.pick(kind) for kind in (pointers, MASK, loaded)[:count]]
        policy = self.draw(st.sampled_from(["", "evict_last"]))
        attributes = {"evictionPolicy": policy} if policy else {}
        shown = f" evictionPolicy = {policy}" if policy else ""
        text = f"{name} = tt.load {', '.join(operands)}{shown} : {write(pointers)}"
        self.emit(Op("tt.load", [name], operands, attrs=attributes, types=[loaded]), text)

    def store(self):
        operands = [self.pick(KINDS[-1]), self.pick(Type((16,), F32))]
        self.emit(
            Op("tt.store", [], operands), f"tt.store {', '.join(operands)} : {write(KINDS[-1])}"
        )

    def move(self):
        name, pointers = self.name(), KINDS[-1]
        operands = [self.pick(pointers), self.pick(BLOCK)]
        text = f"{name} = tt.addptr {', '.join(operands)} : {write(pointers)}, {write(BLOCK)}"
        self.emit(Op("tt.addptr", [name], operands, types=[pointers]), text)

    # -- regions ---------------------------------------------------------------------------------
    def body(self, depth, arguments=(), yields=()):
        """Draw the operations of a region, which ends by yielding values of these types."""
        outside, self.ops = self.ops, []
        known = len(self.scope)
        self.scope += arguments
        self.operations(depth - 1)
        names = [self.pick(kind) for kind in yields]
        if yields:
            kinds = ", ".join(map(write, yields))
            self.emit(Op("scf.yield", [], names), f"scf.yield {', '.join(names)} : {kinds}")
        else:  # it is not printed, and has no location
            self.ops.append(Op("scf.yield", []))
        del self.scope[known:]
        ops, self.ops = self.ops, outside
        return [Block("", list(arguments), ops)]

    def results(self, kinds):
        name = self.name()
        if len(kinds) < 2:
            return [name] * len(kinds), f"{name} = " * len(kinds)
        return [f"{name}#{i}" for i in range(len(kinds))], f"{name}:{len(kinds)} = "

    def loop(self, depth):
        kinds = self.draw(st.lists(st.sampled_from(KINDS), max_size=3))
        bounds = [self.pick(KINDS[0]) for _ in range(3)]
        starts = [self.pick(kind) for kind in kinds]
        results, shown = self.results(kinds)
        index, inner = self.name(), [self.name() for _ in kinds]
        unsigned = self.draw(st.booleans())
        low, high, step = bounds
        text = f"{shown}scf.for {'unsigned ' * unsigned}{index} = {low} to {high} step {step} "
        if kinds:
            pairs = ", ".join(f"{x} = {y}" for x, y in zip(inner, starts, strict=True))
            text += f"iter_args({pairs}) -> ({', '.join(map(write, kinds))}) "
        self.lines.append(f"{text} : i32 {{")
        arguments = [(index, KINDS[0]), *zip(inner, kinds, strict=True)]
        region = self.body(depth, arguments, kinds)
        keywords = ["unsigned"] * unsigned
        op = Op("scf.for", results, [*bounds, *starts], keywords, types=kinds, regions=[region])
        self.emit(op, "}")

    def choose(self, depth):
        kinds = self.draw(st.lists(st.sampled_from(KINDS), max_size=2))
        cond, (results, shown) = self.pick(KINDS[3]), self.results(kinds)
        arrow = f" -> ({', '.join(map(write, kinds))})" if kinds else ""
        self.lines.append(f"{shown}scf.if {cond}{arrow} {{")
        regions = [self.body(depth, (), kinds)]
        if kinds or self.draw(st.booleans()):
            self.lines.append("} else {")
            regions.append(self.body(depth, (), kinds))
        self.emit(Op("scf.if", results, [cond], types=kinds, regions=regions), "}")

    def operations(self, depth):
        plain = [self.add, self.compare, self.range, self.load, self.store, self.move]
        for _ in range(self.draw(st.integers(0, 4))):
            way = self.draw(st.integers(0, len(plain) + 1 if depth else len(plain) - 1))
            if way < len(plain):
                plain[way]()
            else:
                (self.loop, self.choose)[way - len(plain)](depth)


@st.composite
def modules(draw):
    """A module of one kernel, and its operations."""
    drawing = Drawing(draw)
    drawing.locations.append('"outer.py":99:1')
    drawing.scope += [("%p", Type((), pointer_to(F32))), ("%n", KINDS[0])]
    drawing.operations(2)
    drawing.emit(Op("tt.return", []), "tt.return")
    head = (
        '  tt.func public @kernel(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("k.py":1:0), '
    )
    head += "%n: i32 loc(unknown)) attributes {noinline = false} {"
    aliases = [f"#loc{i or ''} = loc({text})" for i, text in enumerate(drawing.locations)]
    lines = [*aliases[:1], "module {", head, *drawing.lines, "  } loc(#loc)", "} loc(#loc)"]
    return "\n".join([*lines, *aliases[1:]]), drawing.ops


def summarize(op):
    """Return the parts of an operation that are compared, those of its regions included."""
    regions = [
        [(b.label, b.args, [*map(summarize, b.ops)]) for b in region] for region in op.regions
    ]
    parts = (op.name, op.results, op.operands, op.keywords, op.attrs, op.types, op.loc)
    return (*parts, regions)


@settings(max_examples=80)
@given(modules())
def test_a_module_is_read_as_it_was_drawn(drawn):
    text, ops = drawn
    function = read_module(text)["kernel"]
    assert (function.public, [name for name, _ in function.args]) == (True, ["%p", "%n"])
    (block,) = function.body
    assert [*map(summarize, block.ops)] == [*map(summarize, ops)]


@pytest.mark.lane("full")
@settings(max_examples=60)
@given(modules())
def test_triton_reads_a_drawn_module_too(tmp_path_factory, drawn):
    """The printed module has other names of values, and is read as the same operations."""
    text, ops = drawn
    path = tmp_path_factory.mktemp("drawn") / "module.ttir"
    path.write_text(text)
    context = ir.context()
    ir.load_dialects(context)
    printed = str(ir.parse_mlir_module(str(path), context))
    (block,) = read_module(printed)["kernel"].body
    assert [*map(summarize_unnamed, block.ops)] == [*map(summarize_unnamed, ops)]


def summarize_unnamed(op):
    """Return the parts of an operation that do not depend on the names of values."""
    regions = [[[*map(summarize_unnamed, b.ops)] for b in region] for region in op.regions]
    counts = (len(op.results), len(op.operands))
    return (op.name, op.keywords, op.attrs, op.types, *counts, regions)


# -- text that was garbled -----------------------------------------------------------------------
@settings(max_examples=60)
@given(data=st.data())
def test_a_module_of_triton_that_was_garbled_is_read_or_refused(data):
    """Lines are lost, repeated, exchanged, cut or joined, as in a file that was damaged."""
    lines = data.draw(st.sampled_from(SHORTEST)).split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        i, j = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        at = data.draw(st.integers(0, len(lines[i])))
        changed = {
            "lose": [],
            "repeat": [lines[i], lines[i]],
            "exchange": [lines[j]],
            "cut": [lines[i][:at]],
            "join": [lines[i][:at] + lines[j].strip()],
            "insert": [lines[i][:at] + data.draw(st.text(max_size=3)) + lines[i][at:]],
        }
        lines[i : i + 1] = changed[data.draw(st.sampled_from([*changed]))]
        lines = lines or [""]
    assert "\n" not in outcome("\n".join(lines))


SHORTEST = sorted(TEXTS, key=len)[:8]

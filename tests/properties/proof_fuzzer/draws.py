"""Strategies that draw programs: a right form of a product with no, one or two changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from .language import (
    INFIX,
    Allocate,
    Assign,
    DivMod,
    Expr,
    For,
    If,
    Kernel,
    Launch,
    Lookup,
    Op,
    Program,
    Raise,
    Split,
    Statement,
    Store,
    Terms,
    While,
    op,
)

OPEN = "1.."
POINTERS = ("a_ptr", "b_ptr", "c_ptr")
SIZES = ("M", "N", "K")
STRIDES = ("sa0", "sa1", "sb0", "sb1", "sc0", "sc1")

# parts of a program that a change may concern
PARTS = (
    "tiles", "grid", "row mask of a", "column mask of b", "k mask of a", "k mask of b",
    "other of a", "other of b", "loop", "sums", "row mask of c", "column mask of c", "place in c",
    "width", "host", "stride of a", "stride of b", "stores",
)  # fmt: skip


@dataclass(slots=True)
class Draw:
    """The choices of one program: `changed` are the parts that get a wrong form, if they have any.

    `choose(n)` returns a number below n.
    """

    choose: Callable[[int], int]
    changed: frozenset[str]
    changes: list[str] = field(default_factory=list)

    def any(self, values: Sequence[Any]) -> Any:
        return values[self.choose(len(values))]

    def flip(self, share: int = 2) -> bool:
        """Return True in one of `share` programs."""
        return self.choose(share) == share - 1

    def pick(self, part: str, right: Sequence[Any], wrong: Sequence[Any]) -> Any:
        """Return a right form, or a wrong one if the part is to be changed."""
        if part in self.changed and wrong:
            number = self.choose(len(wrong))
            self.changes.append(f"{part} {number}")
            return wrong[number]
        return self.any(right)


@st.composite
def programs(draw: Any) -> Program:
    """Draw a program: tiles, masks, integers of both widths, loops, sums, branches, launches."""
    return _draw(lambda n: draw(st.integers(0, n - 1)))


def draw_program(seed: int) -> Program:
    """Return the program of a seed, which Hypothesis does not choose: seeds are independent."""
    return _draw(random.Random(seed).randrange)


def _draw(choose: Callable[[int], int]) -> Program:
    count = (0, 0, 1, 1, 1, 2)[choose(6)]
    parts = frozenset(PARTS[choose(len(PARTS))] for _ in range(count))
    form = (_tiled, _tiled, _tiled, _tiled, _split, _elements, _vector)[choose(7)]
    return form(Draw(choose, parts))


# -- parts that all forms share --------------------------------------------------------------------
def _below(d: Draw, part: str, index: Expr, size: Expr, other: Expr) -> Expr | None:
    """Return the mask `index < size`; a wrong one is off by one, absent, or of another size."""
    right: list[Expr | None] = [op("<", index, size)] * 3
    right += [
        op(">", size, index),
        op("<=", index, op("-", size, 1)),
        op("<", op("-", index, size), 0),
    ]
    wrong = [None, op("<=", index, size), op("<", index, other), op("<", index, op("-", size, 1)),
             op("<", index, op("+", size, 1)), op("!=", index, size)]  # fmt: skip
    return d.pick(part, right, wrong)


def _both(rows: Expr | None, columns: Expr | None) -> Expr | None:
    if rows is None or columns is None:
        return columns if rows is None else rows
    return op("&", rows, columns)


def _terms(d: Draw, **sizes: str) -> Terms:
    layouts = d.any(("contiguous", "contiguous", "contiguous", "any"))
    return Terms(**sizes, layouts=layouts, huge=d.flip(8))


def _index(d: Draw, tile: Expr, block: str) -> tuple[Expr, str]:
    """Return the elements of a tile along an axis, and where they are made 64-bit integers."""
    lanes = op("arange", block)
    early = [
        op("+", op("*", tile, block), op("int64", lanes)),
        op("+", op("*", op("int64", tile), block), lanes),
        op("int64", op("+", op("*", tile, block), lanes)),
        op("+", lanes, op("*", block, op("int64", tile))),
    ]
    if d.any(("early", "early", "late", "never")) == "early":
        return d.any(early), "early"
    return op("+", op("*", tile, block), lanes), d.any(("late", "never"))


def _times(index: Expr, stride: Expr, width: str) -> Expr:
    """Return an offset: 64-bit if the index is or if it is cast here ("late")."""
    return op("*", op("int64", index), stride) if width == "late" else op("*", index, stride)


# -- tiles -----------------------------------------------------------------------------------------
def _count(d: Draw, part: str, size: Expr, block: Expr) -> Expr:
    """Return the number of tiles along an axis, in a wrapper."""
    right = [op("cdiv", size, block)] * 4
    right += [op("//", op("+", size, op("-", block, 1)), block)]
    right += [op("+", op("//", op("-", size, 1), block), 1)]
    right += [op("+", op("//", op("~", op("-", 0, size)), block), 1)]
    right += [op("-", 0, op("//", op("-", 0, size), block))]
    wrong = [op("//", size, block), op("+", op("//", size, block), 1),
             op("max", op("//", size, block), 1), op("min", op("cdiv", size, block), 4),
             op("//", op("+", size, 15), block)]  # fmt: skip
    return d.pick(part, right, wrong)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The assignment of tiles to programs: statements, the grid, and a loop over tiles or None."""

    before: tuple[Statement, ...]
    grid: tuple[Expr, ...]
    loop: tuple[Expr, Expr, Expr] | None = None
    meta: tuple[tuple[str, Expr], ...] = ()


def _tiles(d: Draw, blocks: tuple[Expr, Expr], rows: Expr | None = None) -> Tiles:
    rows = rows or _count(d, "grid", "M", blocks[0])
    columns = op("cdiv", "N", blocks[1])
    num_m, num_n = Assign("num_m", op("cdiv", "M", "BM")), Assign("num_n", op("cdiv", "N", "BN"))
    pid = Assign("pid", op("pid", 0))
    style = d.pick(
        "tiles",
        ("plane", "plane", "line", "line", "columns", "grouped", "grouped", "persistent", "keyed"),
        (
            "swapped",
            "wrong rest",
            "unclamped",
            "clamped twice",
            "wrong step",
            "wrong end",
            "narrow key",
        ),
    )
    total = op("*", rows, columns)
    match style:
        case "plane":
            before = (Assign("pid_m", op("pid", 0)), Assign("pid_n", op("pid", 1)))
            return Tiles(before, (rows, columns))
        case "swapped":
            before = (Assign("pid_m", op("pid", 1)), Assign("pid_n", op("pid", 0)))
            return Tiles(before, (rows, columns))
        case "line" | "wrong rest":
            by = "num_n" if style == "line" else "num_m"
            before = (num_m, num_n, pid, Assign("pid_m", op("//", "pid", "num_n")),
                      Assign("pid_n", op("%", "pid", by)))  # fmt: skip
            return Tiles(before, (total,))
        case "columns":
            before = (num_m, pid, Assign("pid_n", op("//", "pid", "num_m")),
                      Assign("pid_m", op("-", "pid", op("*", "pid_n", "num_m"))))  # fmt: skip
            return Tiles(before, (total,))
        case "keyed" | "narrow key":
            bits = d.any((16, 20)) if style == "keyed" else d.any((4, 8, 12))
            wide = op("int64", "pid_") if style == "keyed" else "pid_"
            key = op("+", op("<<", op("//", wide, "num_n"), bits), op("%", "pid_", "num_n"))
            before = (num_n, Assign("pid_", op("pid", 0)), Assign("key", key),
                      Assign("pid_m", op(">>", "key", bits)),
                      Assign("pid_n", op("&", "key", (1 << bits) - 1)))  # fmt: skip
            return Tiles(before, (total,))
        case "grouped" | "unclamped" | "clamped twice":
            group = d.any((2, 3, 4, 8))
            left = op("-", "num_m", "first")
            size = {"grouped": op("min", left, "GROUP"), "unclamped": "GROUP"}.get(
                style, op("min", op("min", left, "GROUP"), op("-", "num_m", 1))
            )
            inner = op("%", "pid", "in_group")
            before = (
                num_m, num_n, pid, Assign("in_group", op("*", "GROUP", "num_n")),
                Assign("first", op("*", op("//", "pid", "in_group"), "GROUP")),
                Assign("size", size),
                Assign("pid_m", op("+", "first", op("%", d.any((inner, inner, "pid")), "size"))),
                Assign("pid_n", op("//", inner, "size")),
            )  # fmt: skip
            return Tiles(before, (total,), meta=(("GROUP", group),))
    # persistent
    own = (Assign("pid_m", op("//", "tile", "num_n")), Assign("pid_n", op("%", "tile", "num_n")))
    count = d.any(("multiprocessors", 4, 7))
    programs_: Expr = op("multiprocessors") if count == "multiprocessors" else count
    step: Expr = op("programs", 0)
    grid: Expr = op("min", programs_, total)
    meta: tuple[tuple[str, Expr], ...] = ()
    if style == "wrong step" or d.flip(3):
        step, grid, meta = "STEP", programs_, (("STEP", programs_),)
        if style == "wrong step":
            meta = (("STEP", op("*", op("//", op("+", programs_, 3), 4), 4)),)
    end: Expr = op("*", "num_m", "num_n")
    if style == "wrong end":
        end = op("-", end, 1)
    return Tiles((num_m, num_n, *own), (grid,), (op("pid", 0), end, step), meta)


# -- the loop over k -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Reads:
    """The expressions with which a step of the loop reads: row and column indices and masks."""

    rm: Expr
    rn: Expr
    mask_m: Expr | None
    mask_n: Expr | None
    width: str


def _operands(
    d: Draw, reads: Reads, k: Expr, k_mask: Expr, end: Expr, carried: bool
) -> tuple[Statement, ...]:
    """Return the loads of a step at the indices `k`."""
    del carried
    mask_ka = _below(d, "k mask of a", k_mask, end, "M")
    mask_kb = _below(d, "k mask of b", k_mask, end, "N")
    a_mask = _both(_rows(reads.mask_m), _columns(mask_ka))
    b_mask = _both(_rows(mask_kb), _columns(reads.mask_n))
    strides = (
        d.pick("stride of a", (("sa0", "sa1"),), (("sa1", "sa0"), ("sa0", 1), ("K", "sa1"))),
        d.pick("stride of b", (("sb0", "sb1"),), (("sb1", "sb0"), ("sb0", 1), ("N", "sb1"))),
    )
    a_at = op("+", op("+", "a_ptr", _times(_rows(reads.rm), strides[0][0], reads.width)),
              _times(_columns(k), strides[0][1], reads.width))  # fmt: skip
    b_at = op("+", "b_ptr", op("+", _times(_rows(k), strides[1][0], reads.width),
                               _times(_columns(reads.rn), strides[1][1], reads.width)))  # fmt: skip
    return (
        Assign("acc_a", _load(d, "other of a", a_at, a_mask)),
        Assign("acc_b", _load(d, "other of b", b_at, b_mask)),
    )


def _load(d: Draw, part: str, at: Expr, mask: Expr | None) -> Expr:
    if mask is None:
        return op("load", at, "", "")
    return op("load", at, mask, d.pick(part, (0,), ("", 1)))


def _rows(x: Expr | None) -> Any:
    return None if x is None else _expand("rows", x)


def _columns(x: Expr | None) -> Any:
    return None if x is None else _expand("columns", x)


def _expand(name: str, x: Expr) -> Expr:
    """Insert an axis in the vectors of an expression: rm[:, None] < M, not (rm < M)[:, None]."""
    if isinstance(x, Op) and x.name in INFIX and x.name != "%":
        return Op(x.name, tuple(_expand(name, y) if _is_vector(y) else y for y in x.args))
    return op(name, x)


def _is_vector(x: Expr) -> bool:
    if isinstance(x, Op):
        return x.name == "arange" or any(_is_vector(y) for y in x.args)
    return x in ("rm", "rn", "rk", "rm_", "rn_", "left")


def _product(d: Draw) -> tuple[Statement, ...]:
    """Return the statements that add a step's product to acc."""
    right = ["dot", "dot", "dot", "add", "trans", "twice", "reshape", "halves", "flips"]
    style = d.pick("sums", right, ("trans once", "swapped halves", "flip once", "moved", "late"))
    product = op("dot", "acc_a", "acc_b")
    into = op("dot", "acc_a", "acc_b", "acc")
    match style:
        case "dot":
            return (Assign("acc", into),)
        case "add":
            return (Assign("acc", op("+", "acc", product)),)
        case "trans":
            turned = op("dot", op("trans", "acc_b"), op("trans", "acc_a"))
            return (Assign("acc", op("+", "acc", op("trans", turned))),)
        case "twice":
            return (Assign("acc", op("trans", op("trans", into))),)
        case "trans once":
            return (Assign("acc", op("dot", "acc_a", "acc_b", op("trans", "acc"))),)
        case "reshape":
            flat = op("reshape", into, op("*", "BM", "BN"))
            return (Assign("acc", op("reshape", flat, "BM", "BN")),)
        case "moved":
            flat = op("reshape", into, "BN", "BM")
            return (Assign("acc", op("trans", flat)),)
        case "halves" | "swapped halves":
            parts = op("reshape", into, "BM", op("//", "BN", 2), 2)
            pair = ("acc_l", "acc_r") if style == "halves" else ("acc_r", "acc_l")
            whole = op("reshape", op("join", *pair), "BM", "BN")
            return (Split("acc_l", "acc_r", parts), Assign("acc", whole))
        case "flips":
            axis = d.any((0, 1))
            return (Assign("acc", op("flip", op("flip", into, axis), axis)),)
        case "flip once":
            return (Assign("acc", op("flip", into, d.any((0, 1)))),)
    return (Assign("acc", op("+", product, op("*", "acc", 2))),)


@dataclass(frozen=True, slots=True)
class Loop:
    """The statements that sum over k, the range of K that they are right for, and scalars."""

    statements: tuple[Statement, ...]
    K: str = OPEN
    scalars: tuple[tuple[str, Expr], ...] = ()


def _loop(d: Draw, reads: Reads) -> Loop:
    """Return a loop over k that adds to acc."""
    style = d.pick(
        "loop",
        ("range", "range", "range", "tiles", "down", "while", "scaled", "carried", "pointers",
         "cursor", "nested", "passed", "extra", "negative", "wide", "offsets", "halves", "keyed"),
        ("floor", "long step", "late start", "scaled", "cursor", "passed", "negative", "narrow end",
         "early end", "lost pointer", "offsets", "halves", "keyed"),
    )  # fmt: skip
    wrong = "loop" in d.changed
    lanes: Expr = op("arange", "BK")
    wide = d.flip() or reads.width == "early"
    if wide:
        lanes = op("int64", lanes)

    def steps(k: Expr, k_mask: Expr = "rk", end: Expr = "K") -> tuple[Statement, ...]:
        loads = _operands(d, reads, "rk", k_mask, end, False)
        return (Assign("rk", k), *loads, *_product(d))

    def simple(start: Expr, stop: Expr, step: Expr, k: Expr, **more: Any) -> Loop:
        return Loop((For("k", start, stop, step, steps(k)),), **more)

    by_tile = op("+", op("*", "k", "BK"), lanes)
    match style:
        case "range" | "wide":
            start: Expr = 0 if style == "range" else op("int64", 0)
            return simple(start, "K", "BK", op("+", "k", lanes))
        case "floor":
            return simple(0, op("//", "K", "BK"), 1, by_tile)
        case "early end":
            return simple(0, op("-", "K", 1), "BK", op("+", "k", lanes))
        case "extra":
            return simple(0, op("+", op("//", "K", "BK"), d.any((1, 2))), 1, by_tile)
        case "tiles":
            return simple(0, op("cdiv", "K", "BK"), 1, by_tile)
        case "long step":
            return simple(0, "K", op("*", "BK", 2), op("+", "k", lanes))
        case "late start":
            return simple(d.any((1, "BK")), "K", "BK", op("+", "k", lanes))
        case "while":
            body = (*steps(op("+", "k", lanes)), Assign("k", op("+", "k", "BK")))
            return Loop((Assign("k", 0), While(op("<", "k", "K"), body)))
        case "down":
            return Loop((Assign("left", lanes), For("k", "K", 0, op("-", 0, "BK"), (
                *_operands(d, reads, op("+", op("-", "K", "k"), lanes), lanes, "k", False),
                *_product(d))),))  # fmt: skip
        case "scaled":
            bits = d.any((8, 15, 16, 20))
            most = (2**31 - 1) >> bits
            if not wrong:
                most = most - 64
            k = op("+", op(">>", "k", bits), lanes)
            loop = simple(0, op("<<", "K", bits), op("<<", "BK", bits), k)
            return Loop(loop.statements, K=f"1..{most}" if most < 65536 else OPEN)
        case "narrow end":
            return simple(0, op("int32", op("*", op("int64", "K"), 1 << d.any((12, 20)))),
                          op("*", "BK", 1 << 12),
                          op("+", op("//", "k", 1 << 12), lanes))  # fmt: skip
        case "carried":
            body = (*_operands(d, reads, "rk", "rk", "K", True), *_product(d),
                    Assign("rk", op("+", "rk", "BK")))  # fmt: skip
            return Loop((Assign("rk", lanes), For("k", 0, "K", "BK", body)))
        case "pointers" | "lost pointer":
            return _pointers(d, reads, lanes, style == "lost pointer")
        case "offsets":
            return _offsets(d, reads, lanes, wrong)
        case "halves":
            middle = op("//", "K", 2)
            if not wrong:
                middle = op("*", op("//", middle, "BK"), "BK")
            k = op("+", "k", lanes)
            return Loop(
                (For("k", 0, middle, "BK", steps(k)), For("k", middle, "K", "BK", steps(k)))
            )
        case "keyed":  # two coordinates of a step in one integer
            bits = d.any((4, 8, 15, 16)) if wrong else 32
            unit = op("int64", 1) if bits == 32 else 1
            tile, rest = op(">>", "key", bits), op("&", "key", (1 << bits) - 1)
            body = (Assign("key", op("+", op("<<", op("*", "q", unit), bits), op("+", "q", unit))),
                    *steps(op("+", op("*", op("-", rest, 1), "BK"), op("+", op("*", op("-",
                           op("+", tile, 1), rest), "BK"), lanes))))  # fmt: skip
            return Loop((For("q", 0, op("cdiv", "K", "BK"), 1, body),))
        case "cursor":
            bits = d.any((8, 16))
            begin: Expr = "begin" if wrong else op("int64", "begin")
            k = op("+", op(">>", "place", bits), lanes)
            body = (*steps(k), Assign("place", op("+", "place", op("<<", "BK", bits))))
            start = Assign("place", op("+", begin, op("*", 0, begin)) if wrong else begin)
            return Loop((start, For("k", 0, "K", "BK", body)), scalars=(("begin", 0),))
        case "nested":
            inner = For("j", 0, 2, 1, steps(op("+", op("+", "k", op("*", "j", "BK")), lanes)))
            return Loop((For("k", 0, "K", op("*", "BK", 2), (inner,)),))
        case "passed":
            given = op("//" if wrong else "cdiv", "K", 32)
            body = (For("k", 0, op("*", "steps", 32), "BK", steps(op("+", "k", lanes))),)
            return Loop(body, scalars=(("steps", given),))
    # negative: division rounds down if steps is 1, and towards zero otherwise
    less = 2 if wrong else 1
    start = op("*", op("min", op("//", op("-", "steps", less), 4), 0), op("-", 0, "BK"))
    loop = simple(start, "K", "BK", op("+", "k", lanes))
    return Loop(loop.statements, scalars=(("steps", op("//", op("+", "K", 2047), 2048)),))


def _offsets(d: Draw, reads: Reads, lanes: Expr, wrong: bool) -> Loop:
    """Return a loop that carries the offsets of a, in bytes or in elements, and 32 or 64 bits."""
    a_mask = _both(_rows(reads.mask_m), _columns(op("<", lanes, op("-", "K", "k"))))
    b_mask = _both(_rows(op("<", "rk", "K")), _columns(reads.mask_n))
    scale = d.any((2, 4, 1 << 12)) if wrong else d.any((1, 2, 4))
    first = op("+", _times(_rows(reads.rm), "sa0", reads.width), op("*", _columns(lanes), "sa1"))
    if not wrong:
        first = op("int64", first)
    b_at = op("+", "b_ptr", op("+", _times(_rows("rk"), "sb0", reads.width),
                               _times(_columns(reads.rn), "sb1", reads.width)))  # fmt: skip
    body = (
        Assign("rk", op("+", "k", lanes)),
        Assign("acc_a", _load(d, "other of a", op("+", "a_ptr", op("//", "far", scale)), a_mask)),
        Assign("acc_b", _load(d, "other of b", b_at, b_mask)),
        *_product(d),
        Assign("far", op("+", "far", op("*", op("*", "BK", "sa1"), scale))),
    )
    return Loop((Assign("far", op("*", first, scale)), For("k", 0, "K", "BK", body)))


def _pointers(d: Draw, reads: Reads, lanes: Expr, lost: bool) -> Loop:
    """Return a loop that carries pointers, with masks of what is left of K."""
    mask_ka = _below(d, "k mask of a", lanes, op("-", "K", "k"), "M")
    mask_kb = _below(d, "k mask of b", lanes, op("-", "K", "k"), "N")
    a_mask = _both(_rows(reads.mask_m), _columns(mask_ka))
    b_mask = _both(_rows(mask_kb), _columns(reads.mask_n))
    a_at = op("+", "a_ptr", op("+", _times(_rows(reads.rm), "sa0", reads.width),
                               op("*", _columns(lanes), "sa1")))  # fmt: skip
    b_at = op("+", "b_ptr", op("+", op("*", _rows(lanes), "sb0"),
                               _times(_columns(reads.rn), "sb1", reads.width)))  # fmt: skip
    wide = d.flip()
    steps = [op("*", "BK", op("int64", x) if wide else x) for x in ("sa1", "sb0")]
    if lost:
        steps[d.any((0, 1))] = d.any(("BK", op("*", "BK", "sb1"), op("*", "BN", "sb0")))
    body = (
        Assign("acc_a", _load(d, "other of a", "pa", a_mask)),
        Assign("acc_b", _load(d, "other of b", "pb", b_mask)),
        *_product(d),
        Assign("pa", op("+", "pa", steps[0])),
        Assign("pb", op("+", "pb", steps[1])),
    )
    return Loop((Assign("pa", a_at), Assign("pb", b_at), For("k", 0, "K", "BK", body)))


# -- the store -------------------------------------------------------------------------------------
def _store(d: Draw, width: str) -> tuple[Statement, ...]:
    """Return the statements that store acc in c."""
    mask_m = _below(d, "row mask of c", "rm", "M", "N")
    mask_n = _below(d, "column mask of c", "rn", "N", "M")
    mask = _both(_rows(mask_m), _columns(mask_n))
    rows, columns = _rows("rm"), _columns("rn")
    style = d.pick(
        "place in c",
        ("plain", "plain", "plain", "flat", "key", "shifted key"),
        ("narrow key", "far key", "turned", "short rows"),
    )
    plain = op("+", op("+", "c_ptr", _times(rows, "sc0", width)), _times(columns, "sc1", width))
    before: tuple[Statement, ...] = ()
    match style:
        case "plain":
            at: Expr = plain
        case "flat":
            at = op("+", "c_ptr", op("+", op("*", op("int64", rows), "N"), columns))
        case "turned":
            at = op("+", "c_ptr", op("+", op("*", op("int64", columns), "N"), rows))
        case "short rows":
            at = op("+", "c_ptr", op("+", op("*", op("int64", rows), op("-", "N", 1)), columns))
        case _:
            bits = {"key": 31, "shifted key": 31, "narrow key": d.any((8, 12, 16))}.get(
                style, d.any((40, 48))
            )
            wide = rows if style == "narrow key" and d.flip() else op("int64", rows)
            key = op("+", op("*", wide, 1 << bits), columns)
            if style == "shifted key":
                key = op("|", op("<<", wide, bits), op("int64", columns))
            before = (Assign("key", key),)
            parts = (op("//", "key", 1 << bits), op("%", "key", 1 << bits))
            if style == "shifted key" or d.flip(3):
                parts = (op(">>", "key", bits), op("&", "key", (1 << bits) - 1))
            at = op("+", "c_ptr", op("+", op("*", parts[0], "sc0"), op("*", parts[1], "sc1")))
    stored: tuple[Statement, ...] = (Store(at, "acc", mask),)
    style = d.pick(
        "stores", ("one",) * 6 + ("branch", "if any"), ("two", "some", "first", "if any")
    )
    match style:
        case "two":
            stored = stored * 2
        case "branch":
            full = op("&", op("<=", op("*", op("+", "pid_m", 1), "BM"), "M"),
                      op("<=", op("*", op("+", "pid_n", 1), "BN"), "N"))  # fmt: skip
            stored = (If(full, (Store(at, "acc", None),), stored),)
        case "some":
            first, most = d.any((("pid_m", 2), ("pid_m", 3), ("pid_n", 16), ("pid_m", 1000)))
            stored = (If(op("<", first, most), stored),)
        case "if any":
            wide = d.changes[-1:] != ["stores 3"]
            count = op("*", op("int64", "M") if wide else "M", "N")
            count = op("*", op("*", count, d.any(("K", 1))), 1 << d.any((16, 20)))
            stored = (If(op("!=", count, 0), stored),)
        case "first":
            stored = (If(op(">", "K", d.any((1, 33, 300))), stored),)
    return (*before, *stored)


# -- one kernel over tiles -------------------------------------------------------------------------
def _tiled(d: Draw) -> Program:
    blocks = {"BM": d.any((16, 32)), "BN": d.any((16, 32)), "BK": d.any((16, 32))}
    tuned = d.flip(5)
    host, constants, tables, bounds = _host(d, blocks, tuned)
    rows = None
    if not tuned and d.flip(6):
        rest = d.pick("grid", (0,), (1, 15))
        more = If(op(">", "rest", rest), (Assign("tiles", op("+", "tiles", 1)),))
        host, rows = (*host, DivMod("tiles", "rest", "M", "BM"), more), "tiles"
    tiles = _tiles(d, ("BM", "BN"), rows)
    rm, width = _index(d, "pid_m", "BM")
    rn, other_width = _index(d, "pid_n", "BN")
    if "early" not in (width, other_width) or width != other_width:
        width = "late"
    if "width" in d.changed:
        d.changes.append("width")
        rm = op("+", op("*", "pid_m", "BM"), op("arange", "BM"))
        rn = op("+", op("*", "pid_n", "BN"), op("arange", "BN"))
        width = "never"
    reads, before = _reads(d, width)
    loop = _loop(d, reads)
    body = (
        Assign("rm", rm), Assign("rn", rn), *before,
        Assign("acc", op("zeros", "BM", "BN")), *loop.statements, *_store(d, width),
    )  # fmt: skip
    if tiles.loop is None:
        statements = (*tiles.before, *body)
    else:
        first, own = tiles.before[:2], tiles.before[2:]
        statements = (*first, For("tile", *tiles.loop, (*own, *body)))
    named = [*constants, *(name for name, _ in tiles.meta)]
    scalars = (*SIZES, *STRIDES, *(name for name, _ in loop.scalars))
    configs: tuple[tuple[tuple[str, int], ...], ...] = ()
    meta = [(name, value) for name, value in constants.items()]
    if tuned:
        more = {"BM": d.any((16, 32)), "BN": d.any((16, 32)), "BK": d.any((16, 32))}
        configs = tuple(tuple(x.items()) for x in (blocks, more))
        meta = []
    kernel = Kernel("kernel", POINTERS, scalars, tuple(named), statements, configs)
    args = ("a", "b", "c", *SIZES, *STRIDES, *(value for _, value in loop.scalars))
    launch = Launch("kernel", tiles.grid, args, (*meta, *tiles.meta))
    c = Allocate("c", ("M", "N"))
    sizes = {"K": loop.K, **bounds}
    if d.flip(6) and loop.K == OPEN:
        sizes |= {d.any(SIZES): d.any(("16..:16", "32..:32", "1..2047", "2..", "1"))}
    return Program((kernel,), (c, *host, launch), tables, _terms(d, **sizes), tuple(d.changes))


def _reads(d: Draw, width: str) -> tuple[Reads, tuple[Statement, ...]]:
    """Return the rows of a and columns of b to read: masked, or moved into the operand."""
    styles = ("masked", "masked", "masked", "wrapped", "clamped", "chosen")
    read: dict[str, Expr] = {"rm": "rm", "rn": "rn"}
    masks: dict[str, Expr | None] = {"rm": None, "rn": None}
    before: list[Statement] = []
    for name, size, part in (("rm", "M", "row mask of a"), ("rn", "N", "column mask of b")):
        style = d.any(styles)
        wrong = {"M": "N", "N": "M"}[size]
        if style == "masked":
            masks[name] = _below(d, part, name, size, wrong)
            continue
        moved = {
            "wrapped": ((op("%", name, size),),
                        (op("%", name, wrong), op("%", name, op("+", size, 1)))),
            "clamped": ((op("min", name, op("-", size, 1)),), (op("min", name, size),)),
            "chosen": ((op("where", op("<", name, size), name, 0),),
                       (op("where", op("<=", name, size), name, 0),)),
        }[style]  # fmt: skip
        read[name] = f"{name}_"
        before.append(Assign(f"{name}_", d.pick(part, *moved)))
    return Reads(read["rm"], read["rn"], masks["rm"], masks["rn"], width), tuple(before)


Host = tuple[tuple[Statement, ...], dict[str, Expr], tuple[Any, ...], dict[str, str]]


def _host(d: Draw, blocks: dict[str, int], tuned: bool) -> Host:
    """Return the wrapper's statements before the launch, and the constants that it passes."""
    constants: dict[str, Expr] = {name: name for name in blocks}
    if tuned:
        return (), constants, (), {}
    host, tables = _choose(d, blocks)
    first = tuple(Assign(name, n) for name, n in blocks.items())
    return (*first, *host), constants, tables, {}


def _choose(d: Draw, blocks: dict[str, int]) -> tuple[tuple[Statement, ...], tuple[Any, ...]]:
    """Return how a wrapper chooses one of its tiles by the sizes, and its tables."""
    style = d.pick(
        "host",
        (
            "plain",
            "plain",
            "plain",
            "branch",
            "table",
            "text",
            "except",
            "refuse",
            "product",
            "divmod",
        ),
        ("grid of another tile", "refused rest", "lost rest", "short table", "short table"),
    )
    name = d.any(("BM", "BN", "BK"))
    axis = {"BM": "M", "BN": "N", "BK": "K"}[name]
    choose = Assign(name, blocks[name])
    limit = d.any((1, 2, 17, 100, 1000, 8191))
    compared = d.any((axis, "M", "N", "K"))
    match style:
        case "branch":
            test = op(d.any(("<", "<=", ">", "==")), d.any((compared, op("*", "M", "N"))), limit)
            return (If(test, (), (Assign(name, 16),)),), ()
        case "table" | "text" | "except":
            key = d.any((("M",), ("M", "K"), ("N", "K"), ("M", "N", "K")))
            entry = tuple(d.any((1, 2, 16, 77, 4096, 8191)) for _ in key)
            table = (("TABLE", ((entry, 48 - blocks[name]),)),)
            how = {"table": "tuple"}.get(style, style)
            return (Lookup(name, "TABLE", key, blocks[name], how),), table
        case "short table":
            key = d.any((("M",), ("N",), ("M", "K"), ("N", "K"), ("M", "N", "K")))
            entry = tuple(d.any((1, 2, 16, 77, 4096, 8191)) for _ in key)
            cut, value = d.any((("K", 64), ("K", 16), ("M", 16), ("N", 32)))
            how = d.any(("tuple", "text", "except"))
            lookup = Lookup(cut, "TABLE", key, cut, how)
            return (lookup,), (("TABLE", ((entry, value),)),)
        case "refuse":
            test = op("==", op("*", op("*", "M", "N"), "K"), 0)
            return (If(test, (Raise(),)),), ()
        case "product":
            test = op(
                "and", op(">", op("*", op("*", "M", "N"), "K"), limit), op("==", op("%", "K", 8), 0)
            )
            return (If(test, (Assign(name, 32),)),), ()
        case "divmod":
            whole = DivMod("whole", "rest", axis, blocks[name])
            grow = If(op(">", "rest", 0), (choose,), (Assign(name, d.any((16, 32))),))
            return (whole, grow), ()
        case "grid of another tile" | "refused rest" | "lost rest":
            # the tile changes after the sizes that the wrapper passes were chosen
            test = {"grid of another tile": op(">", compared, limit)}.get(
                style, op("==", compared, limit)
            )
            lost = Assign(compared, op("max", op("-", compared, d.any((1, 15, 16))), 1))
            return (If(test, (lost,)),), ()
    return (), ()


# -- k in parts, and their sum ---------------------------------------------------------------------
def _split(d: Draw) -> Program:
    """Return two launches: parts of the sum over k in a workspace, and their total; or atomics."""
    blocks = {"BM": 16, "BN": d.any((16, 32)), "BK": d.any((16, 32))}
    parts = d.any((2, 3, 4))
    atomic = d.flip(4)
    tuned = d.flip(4) and not atomic
    wide = "width" not in d.changed
    if not wide:
        d.changes.append("width")
    rm, rn = (op("+", op("*", op("pid", axis), block), op("int64", op("arange", block)))
              for axis, block in ((0, "BM"), (1, "BN")))  # fmt: skip
    mask_m = _below(d, "row mask of a", "rm", "M", "N")
    mask_n = _below(d, "column mask of b", "rn", "N", "M")
    reads = Reads("rm", "rn", mask_m, mask_n, "early")
    lanes = op("int64", op("arange", "BK"))
    style = d.pick("loop", ("strided", "strided", "chunks"), ("overlap", "lost", "short chunks"))
    step = (
        Assign("rk", op("+", "k", lanes)),
        *_operands(d, reads, "rk", "rk", "K", False),
        *_product(d),
    )
    first: Expr = op("*", "part", "BK")
    match style:
        case "strided":
            loop = For("k", first, "K", op("*", "SPLIT", "BK"), step)
        case "overlap":
            loop = For("k", first, "K", "BK", step)
        case "lost":
            loop = For("k", first, op("-", "K", op("*", op("-", "SPLIT", 1), "BK")),
                       op("*", "SPLIT", "BK"), step)  # fmt: skip
        case _:
            rounded = op("cdiv", "K", op("*", "SPLIT", "BK"))
            if style == "short chunks":
                rounded = op("//", "K", op("*", "SPLIT", "BK"))
            begin = op("*", "part", op("*", rounded, "BK"))
            loop = For(
                "k", begin, op("min", "K", op("+", begin, op("*", rounded, "BK"))), "BK", step
            )
    part: Expr = op("int64", "part") if wide else "part"
    if atomic:
        at = op("+", "c_ptr", op("+", op("*", _rows("rm"), "sc0"), op("*", _columns("rn"), "sc1")))
    else:
        far = op("*", part, "sp0") if d.flip() else op("*", op("*", part, "M"), "N")
        at = op("+", op("+", "p_ptr", far), op("+", op("*", _rows("rm"), "N"), _columns("rn")))
    mask = _both(_rows(_below(d, "row mask of c", "rm", "M", "N")),
                 _columns(_below(d, "column mask of c", "rn", "N", "M")))  # fmt: skip
    body = (
        Assign("rm", rm), Assign("rn", rn), Assign("part", op("pid", 2)),
        Assign("acc", op("zeros", "BM", "BN")), loop, Store(at, "acc", mask, atomic),
    )  # fmt: skip
    names = ("BM", "BN", "BK", "SPLIT")
    given = d.pick("host", (parts,), (parts - 1, parts + 1))
    tuner = ((("SPLIT", 2),), (("SPLIT", 4),)) if tuned else ()
    if tuned:
        given = parts = 4
        body = (
            *body[:3],
            If(op("<", "part", "SPLIT"), body[3:]),
        )
    grid = (_count(d, "grid", "M", "BM"), op("cdiv", "N", "BN"), parts)
    meta: dict[str, Expr] = {**blocks, "SPLIT": given}
    grid = tuple(_replace(x, blocks) for x in grid)
    own = tuple((n, v) for n, v in meta.items() if not (tuned and n == "SPLIT"))
    if atomic:
        kernel = Kernel("kernel", POINTERS, (*SIZES, *STRIDES), names, body)
        c = Allocate("c", ("M", "N"), "fp32", zero="tiles" not in d.changed)
        launch = Launch("kernel", grid, ("a", "b", "c", *SIZES, *STRIDES), own)
        return Program((kernel,), (c, launch), (), _terms(d), tuple(d.changes))
    strides = (*STRIDES[:4], "sp0")
    kernel = Kernel("kernel", ("a_ptr", "b_ptr", "p_ptr"), (*SIZES, *strides), names, body, tuner)
    summed = op("load", op("+", op("+", "p_ptr", op("*", "part", op("int64", "sp0"))),
                           op("+", op("*", "m", "N"), "rn")), op("<", "rn", "N"), 0)  # fmt: skip
    count = d.pick("stores", ("SPLIT",), (op("-", "SPLIT", 1), op("min", "SPLIT", 2)))
    total_body = (
        Assign("m", op("int64", op("pid", 0))),
        Assign("rn", op("+", op("*", op("pid", 1), "BN"), op("int64", op("arange", "BN")))),
        Assign("acc", op("zeros", "BN")),
        For("part", 0, count, 1, (Assign("acc", op("+", "acc", summed)),)),
        Store(op("+", "c_ptr", op("+", op("*", "m", "sc0"), op("*", "rn", "sc1"))), "acc",
              op("<", "rn", "N")),
    )  # fmt: skip
    own_tuner = tuner if tuned and d.flip() else ()
    total = Kernel("total", ("p_ptr", "c_ptr"), ("M", "N", "K", "sp0", "sc0", "sc1"),
                   ("BN", "SPLIT"),                    total_body, own_tuner)  # fmt: skip
    wrapper = (
        Allocate("c", ("M", "N")),
        Allocate("p", (parts, "M", "N"), "fp32", zero=d.flip(3) or (tuned and d.flip())),
        Launch("kernel", grid, ("a", "b", "p", *SIZES, *strides), own),
        Launch("total", ("M", op("cdiv", "N", blocks["BN"])),
               ("p", "c", *SIZES, "sp0", "sc0", "sc1"),
               (("BN", blocks["BN"]),) + (() if own_tuner else (("SPLIT", given),))),
    )  # fmt: skip
    return Program((kernel, total), wrapper, (), _terms(d), tuple(d.changes))


def _replace(x: Expr, values: dict[str, int]) -> Expr:
    if isinstance(x, Op):
        return Op(x.name, tuple(_replace(y, values) for y in x.args))
    return values.get(x, x) if isinstance(x, str) else x


# -- other forms -----------------------------------------------------------------------------------
def _elements(d: Draw) -> Program:
    """Return a program for each element of c."""
    flat = d.flip()
    mask_a = _below(d, "k mask of a", "rk", "K", "M")
    mask_b = _below(d, "k mask of b", "rk", "K", "N")
    a_at = op("+", "a_ptr", op("+", op("*", "m", "sa0"), op("*", "rk", "sa1")))
    b_at = op("+", "b_ptr", op("+", op("*", "rk", "sb0"), op("*", "n", "sb1")))
    product = op("*", op("fp32", "acc_a"), op("fp32", "acc_b"))
    pid = op("pid", 0) if d.flip() else op("int64", op("pid", 0))
    if flat:
        where = (Assign("m", op("//", pid, "N")), Assign("n", op("%", pid, "N")))
        grid: tuple[Expr, ...] = (op("*", "M", "N"),)
    else:
        where = (Assign("m", pid), Assign("n", op("int64", op("pid", 1))))
        grid = ("M", "N")
    step = (
        Assign("rk", op("+", "k", op("int64", op("arange", "BK")))),
        Assign("acc_a", _load(d, "other of a", a_at, mask_a)),
        Assign("acc_b", _load(d, "other of b", b_at, mask_b)),
        Assign("acc", op("+", "acc", product)),
    )
    end = d.pick("loop", ("K",), (op("-", "K", "BK"), op("*", op("//", "K", "BK"), "BK")))
    body = (
        *where, Assign("acc", op("zeros", "BK")), For("k", 0, end, "BK", step),
        Store(op("+", "c_ptr", op("+", op("*", "m", "sc0"), op("*", "n", "sc1"))),
              op("sum", "acc", 0), None),
    )  # fmt: skip
    kernel = Kernel("kernel", POINTERS, (*SIZES, *STRIDES), ("BK",), body)
    launch = Launch("kernel", grid, ("a", "b", "c", *SIZES, *STRIDES), (("BK", d.any((32, 64))),))
    if d.flip(3):  # sums of int8 are rounded above 2**24
        wide = Allocate("c", ("M", "N"), "fp32")
        most = d.pick("width", ("1..1024", "16..", "1..512"), ("1..1041", "1..2048"))
        terms = Terms(K="1..1024" if most == "16.." else most, dtype="int8")
        return Program((kernel,), (wide, launch), (), terms, tuple(d.changes))
    return Program((kernel,), (Allocate("c", ("M", "N")), launch), (), _terms(d), tuple(d.changes))


def _vector(d: Draw) -> Program:
    """Return a kernel of one row of c for each program; its lanes may be moved."""
    rows = d.any((16, 32))
    mask_n = _below(d, "column mask of b", "rn", "N", "M")
    a_at = op("+", "a_ptr", op("+", op("*", "m", "sa0"), op("*", "k", "sa1")))
    at = op("+", "b_ptr", op("+", op("*", "k", "sb0"), op("*", "rn", "sb1")))
    style = d.pick("sums", ("as they are", "flips", "gathers"), ("flip", "gather", "gather far"))
    # tl.flip combines the bits of all lanes, undefined ones too
    fill: Expr = 0 if "flip" in style else d.any((0, ""))
    step = (
        Assign("acc_a", op("load", a_at, "", "")),
        Assign("acc_b", op("load", at, "" if mask_n is None else mask_n,
                           "" if mask_n is None else fill)),
        Assign("acc", op("+", "acc", op("*", op("fp32", "acc_a"), op("fp32", "acc_b")))),
    )  # fmt: skip
    lanes = op("arange", "BN")
    turn = op("-", op("-", "BN", 1), lanes)
    values: Expr = "acc"
    match style:
        case "flips":
            values = op("flip", op("flip", "acc", 0), 0)
        case "flip":
            values = op("flip", "acc", 0)
        case "gathers":
            values = op("gather", op("gather", "acc", turn, 0), turn, 0)
        case "gather":
            values = op("gather", "acc", turn, 0)
        case "gather far":
            values = op("gather", "acc", op("%", op("+", lanes, 1), "BN"), 0)
    mask_c = _below(d, "column mask of c", "rn", "N", "M")
    loop = d.pick("loop", (("K",),), ((op("-", "K", 1),), (op("max", op("-", "K", 1), 1),)))[0]
    body = (
        Assign("m", op("int64", op("pid", 0))),
        Assign("rn", op("+", op("*", op("pid", 1), "BN"), op("int64", lanes))),
        Assign("acc", op("zeros", "BN")),
        For("k", 0, loop, 1, step),
        Store(op("+", "c_ptr", op("+", op("*", "m", "sc0"), op("*", "rn", "sc1"))), values, mask_c),
    )
    kernel = Kernel("kernel", POINTERS, (*SIZES, *STRIDES), ("BN",), body)
    grid = ("M", _count(d, "grid", "N", rows))
    launch = Launch("kernel", grid, ("a", "b", "c", *SIZES, *STRIDES), (("BN", rows),))
    return Program((kernel,), (Allocate("c", ("M", "N")), launch), (), _terms(d), tuple(d.changes))

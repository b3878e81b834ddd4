"""Accesses of global memory in a PTX program: how wide they are, and by which way they go."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gemmproof.lowering.binary.ptx import Place, PtxProgram, PtxStatement

_VECTOR = re.compile(r"v([248])")
_TYPE = re.compile(r"[bsuf](8|16|32|64|128)|f16x2|bf16x?2?|f32x2")
_TWICE = {"f16x2": 4, "bf16x2": 4, "f32x2": 8, "bf16": 2, "bf16x": 0}


def list_accesses(program: PtxProgram) -> Iterator[tuple[Place, str, int]]:
    """The place, the kind and the bytes of a thread of each access; 0 bytes for a tile."""
    for one in program.statements:
        found = _read_access(one)
        if found is not None:
            yield one.place, *found


def _read_access(one: PtxStatement) -> tuple[str, int] | None:
    words = one.words
    spaces = {word.partition("::")[0] for word in words}
    if words[:3] == ("cp", "async", "bulk"):
        return _read_bulk(one)
    if words[:4] == ("cp", "reduce", "async", "bulk"):
        return "atomic", 0
    if words[:2] == ("cp", "async") and "global" in words:
        return "async copy", _read_size(one)
    if "global" not in spaces or words[0] not in ("ld", "ldu", "st", "atom", "red"):
        return None
    kind = {"ld": "load", "ldu": "load", "st": "store"}.get(words[0], "atomic")
    return kind, _count_bytes(words)


def _read_bulk(one: PtxStatement) -> tuple[str, int] | None:
    """cp.async.bulk{.tensor.Nd}.dst.src: the order of the two spaces is the direction."""
    spaces = [x.partition("::")[0] for x in one.words if x.startswith(("shared", "global"))]
    if spaces == ["shared", "global"]:
        return "tma load", 0
    if spaces == ["global", "shared"]:
        return "tma store", 0
    return None  # groups that are committed and waited for, prefetches


def _read_size(one: PtxStatement) -> int:
    """cp.async.{ca,cg}.shared.global [dst], [src], cp-size{, src-size}"""
    try:
        return int(one.operands[2], 0)
    except (IndexError, ValueError):
        return 0


def _count_bytes(words: tuple[str, ...]) -> int:
    lanes = next((int(x[1]) for word in words if (x := _VECTOR.fullmatch(word))), 1)
    last = words[-1]
    if not (found := _TYPE.fullmatch(last)):
        return 0
    return lanes * (int(found[1]) // 8 if found[1] else _TWICE[last])

"""Diagnosis of a wrong product: the operand misread, the line."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.cases.operands import AllocatedOperand, view_strided
from gemmproof.properties.contract import ROLES
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values
from gemmproof.properties.observation import Observation, introduce, word
from gemmproof.reference.arithmetic import Array, round_to, truncate_tf32, widen
from gemmproof.reference.bounds import exact_product, gemm_bound, magnitude_product
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS


# -- other readings of an operand ----------------------------------------------------------------
def list_readings(operand: AllocatedOperand) -> Iterator[tuple[str, Array]]:
    """Yield the operand as other strides give it, if they stay in its parent."""
    view = operand.view
    _, rows, columns = view.shape
    plane, row, column = view.strides
    for text, strides in (
        ("its strides swapped", (plane, column, row)),
        ("row-major dense strides", (rows * columns, columns, 1)),
        ("column-major dense strides", (rows * columns, 1, rows)),
        ("a column stride of 1", (plane, row, 1)),
        ("a row stride of 1", (plane, 1, column)),
        ("a batch stride of 0", (0, row, column)),
        ("a batch stride of its rows", (rows * row, row, column)),
    ):
        last = sum((n - 1) * s for n, s in zip(view.shape, strides, strict=True))
        steps = [(s, t) for n, s, t in zip(view.shape, strides, view.strides, strict=True) if n > 1]
        if any(s != t for s, t in steps) and view.first + last < view.extent:
            other = view_strided(operand.parent, replace(view, strides=strides))
            yield text, np.ascontiguousarray(other).reshape(tuple(operand.tensor.shape))


def list_displaced(own: Array, name: str, tiles: Iterable[Tile]) -> Iterator[tuple[str, Array]]:
    """Yield an operand with the indices along an axis moved by one (0 beyond the ends), or wrapped.

    The operand itself is omitted, as layouts that repeat elements give it.
    """
    contiguous, code = np.ascontiguousarray(own), f"u{own.itemsize}"
    blocks = sorted({side for tile in tiles for side in tile})
    for axis in range(own.ndim):
        axes, n = ("batch", *ROLES[name].axes)[3 - own.ndim :], own.shape[axis]
        label, index = axes[axis].lower(), np.arange(n)
        places = [(f"at {label} + 1", index + 1), (f"at {label} - 1", index - 1)]
        places += [(f"at {label} modulo {block}", index % block) for block in blocks if block < n]
        for text, moved in places:
            inside = ((moved >= 0) & (moved < n)).reshape(
                [-1 if d == axis else 1 for d in range(own.ndim)]
            )
            elements = np.take(contiguous.view(code), moved.clip(0, n - 1), axis)
            other = np.where(inside, elements, elements.dtype.type(0))
            if not np.array_equal(other, contiguous.view(code)):
                yield text, other.view(own.dtype)


def list_strided(operand: AllocatedOperand) -> Iterator[tuple[str, Array]]:
    """Yield the operand as other strides give it, from its sides and its own strides, inside it.

    Of three axes either the first one's stride differs or those of the last two.
    """
    view, axes = operand.view, operand.tensor.dim()
    shape, own = view.shape[3 - axes :], view.strides[3 - axes :]
    within = sum((n - 1) * s for n, s in zip(shape, own, strict=True))
    steps = sorted({0, 1, *own[-2:], *shape})
    choices = [(*own[:-2], *last) for last in itertools.product(steps, repeat=min(axes, 2))]
    if axes == 3:
        areas = sorted({m * n for m in shape for n in shape} | set(steps))
        choices += [(area, *own[1:]) for area in areas]
    flat = operand.parent[view.first : view.first + within + 1]
    for strides in choices:
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if strides != own and 0 < reach <= within:
            places = (np.arange(n) * s for n, s in zip(shape, strides, strict=True))
            at = functools.reduce(np.add.outer, places)
            yield f"strides {strides} in place of {own}", np.ascontiguousarray(flat[at])


# -- lines of the kernel -------------------------------------------------------------------------
_WRONG = {exact_values.EXACT: exact_values.not_exact, exact_values.BOUND: exact_values.beyond_bound}
SHOWN = 3  # lines, where one operand is loaded on several


@dataclass(frozen=True, slots=True)
class _Stores:
    """The accesses that stored some elements: their kind, lines, and the programs in each launch.

    Programs are pairs of the launch's number and the program's. The kind is "" if kernels only
    stored the values that torch made the elements of.
    """

    kind: str
    lines: frozenset[str]
    programs: frozenset[tuple[int, int]]


def locate(finding: Finding, observation: Observation) -> Finding:
    """Return a finding of values with its line: the load of operand a or b, else the store of c.

    `observation` is that of the finding's case, with a trace; the finding is unchanged if no single
    line is the cause.
    """
    run = observation.calls[0].run if observation.calls else None
    if finding.where is not None or run is None or not observation.has_result:
        return finding
    mark = _WRONG.get(finding.property)
    wrong = np.ones(observation.result.shape, np.bool_) if mark is None else mark(observation)
    stores = _find_stores(observation, _addresses(observation.calls[0].given)[wrong])
    if stores is None:
        return finding
    if finding.operand in ROLES:
        lines = sorted(_find_loads(observation, str(finding.operand), stores.programs))
        if not lines:
            return finding
        shown = " and ".join(lines[:SHOWN])
        label = word(observation, str(finding.operand))
        message = f"{finding.message}; {label} is loaded at {shown}"
    else:
        lines = sorted(stores.lines)
        verb = {"": "made of what is stored", "atomic": "updated"}.get(stores.kind, "stored")
        prefix, _, rest = finding.message.partition(": ")
        if len(lines) > 1 or not prefix.startswith(f"{observation.result_name}["):
            return finding
        message = f"{prefix}, {verb} at {lines[0]}: {rest}"
    if len(lines) > 1:
        return replace(finding, message=message)
    accesses = (access.where for _, access in _accesses(observation))
    file = next(where.file for where in accesses if str(where) == lines[0])
    return replace(finding, message=message, where=lines[0], file=file)


def _addresses(result: torch.Tensor) -> Array:
    """Return the address of every element."""
    steps = [
        np.arange(n, dtype=np.int64) * stride
        for n, stride in zip(result.shape, result.stride(), strict=True)
    ]
    grid = np.zeros(tuple(result.shape), np.int64)
    for axis, step in enumerate(steps):
        grid += step.reshape([-1 if i == axis else 1 for i in range(grid.ndim)])
    return np.asarray(result.data_ptr() + grid * result.element_size())


def _find_stores(observation: Observation, addresses: Array) -> _Stores | None:
    """Return the last stores to the addresses; else all stores; None if there are none."""
    distinct = np.unique(addresses)
    last = np.full(distinct.size, -1)
    programs = np.zeros(distinct.size, np.int64)
    accesses = [x for x in _accesses(observation) if x[1].kind != "load"]
    for number, (_, access) in enumerate(accesses):
        size = access.operand.view.itemsize
        address = access.operand.view.start + access.offsets * size
        program = access.programs.reshape(-1, *(1,) * (address.ndim - 1))
        address, program = np.broadcast_arrays(address, program)
        hit = np.isin(address, distinct)
        if access.mask is not None:
            hit &= access.mask
        at = np.searchsorted(distinct, address[hit])
        last[at], programs[at] = number, program[hit]
    if not accesses:
        return None
    if (last < 0).any():
        everyone = {(launch, int(p)) for launch, access in accesses for p in access.programs}
        lines = {str(access.where) for _, access in accesses}
        return _Stores("", frozenset(lines), frozenset(everyone))
    touched = [accesses[number][1] for number in np.unique(last)]
    kinds = {access.kind for access in touched}
    return _Stores(
        "atomic" if kinds == {"atomic"} else "store",
        frozenset(str(access.where) for access in touched),
        frozenset((accesses[n][0], int(p)) for n, p in zip(last, programs, strict=True)),
    )


def _find_loads(
    observation: Observation, operand: str, programs: frozenset[tuple[int, int]]
) -> set[str]:
    """Return the lines on which these programs load an operand."""
    lines = set()
    for launch, access in _accesses(observation):
        if access.kind == "load" and access.operand.name == operand:
            running = {(launch, int(program)) for program in access.programs}
            if running & programs:
                lines.add(str(access.where))
    return lines


def _accesses(observation: Observation) -> Iterator[tuple[int, Any]]:
    """Yield every traced access, with the number of its launch."""
    for number, (_, _, accesses) in enumerate(observation.trace or ()):
        for access in accesses:
            if access.where is not None:
                yield number, access


# -- diagnosis -----------------------------------------------------------------------------------
SAMPLE = 64  # wrong elements whose partial sums are examined


@dataclass(frozen=True, slots=True)
class Explanation:
    """A kind of fault that gives these values: its name, its text, its operand and axis."""

    fault: str
    text: str
    operand: str = "c"
    axis: str | None = None


def diagnose(finding: Finding, observation: Observation, note: str = "") -> Finding | None:
    """Return the finding of a value property with the class that explains it, or None.

    `observation` is that of a case with this finding; `note` follows the text of the class.
    """
    wrong = exact_values.not_exact(observation)
    if finding.property == exact_values.BOUND:
        wrong = exact_values.beyond_bound(observation)
    explanation = next(_explanations(observation, wrong), None)
    if explanation is None:
        return None
    return replace(
        finding,
        fault=explanation.fault,
        operand=explanation.operand,
        axis=explanation.axis,
        message=f"{finding.message}: {explanation.text}{note}",
    )


def _explanations(observation: Observation, wrong: Array) -> Iterator[Explanation]:
    got = widen(observation.result)
    if not np.isfinite(got[wrong]).all():
        value = "NaN" if np.isnan(got[wrong]).any() else "Inf"
        yield Explanation("not_finite", f"{value} from finite operands")
        return
    yield from _wrapped(observation)
    yield from _rounded_twice(observation)
    yield from _strides(observation)
    yield from _part_of_k(observation, wrong)
    yield from _moved(observation)
    yield from _rounding(observation, wrong)
    yield from _part_of_c(observation, wrong)


def _wrapped(observation: Observation) -> Iterator[Explanation]:
    """Check whether an integer result is the exact one, modulo the output's width."""
    if observation.out.kind == "int":
        whole = exact_values.exact(observation).astype(np.int64).astype(observation.out.storage)
        if np.array_equal(whole, observation.result):
            width = 8 * observation.out.itemsize
            yield Explanation("wrapped", f"the exact product modulo 2**{width}, wrapped around")


def _strides(observation: Observation) -> Iterator[Explanation]:
    """Check whether other strides of a or b, or a transposed result, give exactly the result."""
    a, b = exact_values.inputs(observation)
    read = {name: dict(list_readings(observation.operands[name])) for name in "ab"}
    for name, others in read.items():
        pairs = {text: {"a": a, "b": b, name: other} for text, other in others.items()}
        fitting = [text for text, pair in pairs.items() if _agrees(observation, *pair.values())]
        if fitting:
            yield Explanation(
                "wrong_strides",
                f"as if {introduce(observation, name)} had {' or '.join(fitting)}",
                name,
            )
    both = " and ".join(introduce(observation, name) for name in "ab")
    for text in read["a"].keys() & read["b"].keys():
        if _agrees(observation, read["a"][text], read["b"][text]):
            yield Explanation("wrong_strides", f"as if {both} had {text}", "a")
    if observation.case.M == observation.case.N > 1 and _agrees(observation, a, b, transposed=True):
        yield Explanation("wrong_strides", "the result is transposed", "c")


def _moved(observation: Observation) -> Iterator[Explanation]:
    """Check whether a or b read one index further on or back, or wrapped at a tile side, give c."""
    a, b = exact_values.inputs(observation)
    for name, own in (("a", a), ("b", b)):
        texts = []
        for text, other in list_displaced(own, name, observation.tiles):
            pair = {"a": a, "b": b, name: other}
            # zeros give zero, whatever the kernel did
            if widen(other).any() and _agrees(observation, *pair.values()):
                texts.append(text)
        if texts:
            text = f"as if {introduce(observation, name)} were read {' or '.join(texts)}"
            yield Explanation("wrong_indices", text, name)


def _agrees(observation: Observation, a: Array, b: Array, *, transposed: bool = False) -> bool:
    """Return whether the result is, within the bound, the product of these operands."""
    if not (np.isfinite(widen(a)).all() and np.isfinite(widen(b)).all()):
        return False
    product, _ = exact_product(a, b)
    if observation.case.format.kind == "int":
        bound: Array = np.zeros(product.shape)
    else:
        bound = gemm_bound(a, b, exact_values.declared_model(observation), observation.out)
    if transposed:
        product, bound = np.swapaxes(product, -1, -2), np.swapaxes(bound, -1, -2)
    error = np.abs(widen(observation.result) - product.astype(np.float64))
    return bool((error <= bound).all())


def _part_of_k(observation: Observation, wrong: Array) -> Iterator[Explanation]:
    """Check whether leaving out, or doubling, one range of k explains every wrong element.

    Judged on index data only: their sums are exact, so a partial sum is recognised by its value.
    """
    K = observation.case.K
    if observation.case.fill != "index" or K == 0:
        return
    a, b = (widen(x) for x in exact_values.inputs(observation))
    at = np.argwhere(wrong)[:SAMPLE]
    lead, m, n = tuple(at[:, :-2].T), at[:, -2], at[:, -1]
    terms = a[(*lead, m)] * np.swapaxes(b, -1, -2)[(*lead, n)]
    got = widen(observation.result)[wrong][:SAMPLE, None]
    partial = np.cumsum(terms, axis=1)
    blocks = sorted({tile[2] for tile in observation.tiles}) or [1]
    whole = partial[:, -1:]
    for block in blocks:
        off, lanes = got - whole, -K % block
        if len(off) > 1 and lanes and off[0, 0] % lanes == 0 and (off == off[0, 0]).all():
            value = int(off[0, 0]) // lanes
            yield Explanation(
                "k_tail",
                f"each off by {int(off[0, 0])}, as if the {lanes} lanes from k = {K} to the end of"
                f" its block held products of {value}",
                axis="K",
            )
        ends = sorted({*range(block, K, block), K - 1, K})
        starts = [0, *ends[:-1]]
        for start, end in [*zip(starts, ends, strict=True), *((end, K) for end in ends[:-1])]:
            if start >= end:
                continue
            part = partial[:, end - 1 : end] - (partial[:, start - 1 : start] if start else 0.0)
            where = "the last K block" if end == K else "a K block"
            fault = "last_k_block" if end == K else "k_block"
            for sums, verb in ((whole - part, "is left out"), (whole + part, "is added twice")):
                if part.any() and (got == sums).all():
                    text = f"k {start}..{end - 1} {verb}, {where}"
                    yield Explanation(fault, text, axis="K")


def _rounded_twice(observation: Observation) -> Iterator[Explanation]:
    """Check whether the exact sums, rounded to another format first, give the result."""
    out = observation.out
    if observation.case.fill != "ties" or out.kind != "float":
        return
    sums, got = exact_values.exact(observation).astype(np.float64), widen(observation.result)
    wider = sorted((FORMATS[n] for n in FLOAT_OPERANDS), key=lambda f: -f.p)
    between = [f for f in wider if out.p < f.p < FORMATS["fp32"].p and f.stored is f]
    for fmt in between:
        if np.array_equal(widen(round_to(round_to(sums, fmt), out)), got):
            text = f"the sums rounded to {fmt.name} first, then to {out.name}"
            yield Explanation("rounded_twice", text)


def _rounding(observation: Observation, wrong: Array) -> Iterator[Explanation]:
    """Check whether rounded operands give the result, or sums kept in fewer bits the error."""
    own = observation.case.format
    if own.kind == "int":
        return
    a, b = exact_values.inputs(observation)
    finest_first = sorted((FORMATS[n] for n in FLOAT_OPERANDS), key=lambda f: (-f.p, f.emin))
    rounded = []
    for fewer in (fmt for fmt in finest_first if fmt.p < own.p):
        left, right = (widen(round_to(x, fewer)).astype(own.storage) for x in (a, b))
        changed = (left != a).any() or (right != b).any()
        if changed and _agrees(observation, left, right):
            rounded.append(fewer.name)
    if rounded:
        yield Explanation("rounding", f"what operands rounded to {' or '.join(rounded)} give")
    if own.name == "fp32" and _agrees(observation, truncate_tf32(a), truncate_tf32(b)):
        yield Explanation("rounding", "what operands truncated to tf32 give")
    if narrow := _rounded_first(observation):
        yield Explanation("rounding", f"what a result rounded to {narrow} first gives")
    if observation.case.fill != "index":  # index sums fit every accumulator
        error, bound = exact_values.error_and_bound(observation)
        K, size = observation.case.K, magnitude_product(a, b)
        for name in ("fp16", "bf16"):
            if (error <= bound + K * FORMATS[name].u * size)[wrong].all():
                yield Explanation("rounding", f"no more than sums kept in {name} can lose")


def _rounded_first(observation: Observation) -> str | None:
    """Return the finest format that the result appears rounded to before its own.

    Every element is a number of that format, and off by no more than one rounding to it on top of
    the allowed error: |got - exact| <= bound + u (|exact| + bound); on index data, by that alone.
    """
    out, got = observation.out, widen(observation.result)
    exact = exact_values.exact(observation).astype(np.float64)
    if out.kind == "int":
        return None
    narrower = (FORMATS[n] for n in FLOAT_OPERANDS if FORMATS[n].p < out.p)
    own = observation.case.format
    for fewer in sorted(narrower, key=lambda f: (-f.p, f is not own, f.emin)):
        if observation.case.fill == "index":
            twice = round_to(widen(round_to(exact, fewer)), out)
            agrees = np.array_equal(twice, observation.result)
        else:
            error, bound = exact_values.error_and_bound(observation)
            near = error <= bound + fewer.u * (np.abs(exact) + bound)
            agrees = bool(near.all() and (widen(round_to(got, fewer)) == got).all())
        if agrees:
            return fewer.name
    return None


def _part_of_c(observation: Observation, wrong: Array) -> Iterator[Explanation]:
    """Locate the wrong elements in c: batch, tile edge, whole tiles, a row or a column."""
    M, N = observation.case.M, observation.case.N
    if observation.case.batch is not None:
        planes = np.asarray(wrong.reshape(wrong.shape[0], -1).any(axis=1))
        if not planes.all():
            first, last = _ends(planes)
            yield Explanation("batch", f"only in batch {_span(first, last)}", "c", "batch")
        wrong = np.asarray(wrong.any(axis=0))
    rows, columns = np.asarray(wrong.any(axis=1)), np.asarray(wrong.any(axis=0))
    (top, bottom), (left, right) = _ends(rows), _ends(columns)
    tiles = observation.tiles
    block_m, block_n = (max((t[axis] for t in tiles), default=1) for axis in (0, 1))
    for axis, low, side, block in (("M", top, M, block_m), ("N", left, N, block_n)):
        edge = side // block * block
        if 0 < edge <= low and edge < side:
            name = "rows" if axis == "M" else "columns"
            text = f"all in {name} {_span(low, side - 1)}, in the last, partial tile along {axis}"
            yield Explanation("tile_edge", text, "c", axis)
    if wrong.all():
        if wrong.size > 1:
            yield Explanation("everywhere", "every element")
        return
    if wrong.size > 1 and rows.sum() == 1 and M > 1:
        yield Explanation("row", f"all in row {top}", "c", "M")
    if wrong.size > 1 and columns.sum() == 1 and N > 1:
        yield Explanation("column", f"all in column {left}", "c", "N")
    tile_rows, tile_columns = np.arange(M) // block_m, np.arange(N) // block_n
    bad = {(int(tile_rows[i]), int(tile_columns[j])) for i, j in np.argwhere(wrong)}
    whole = sum(int((tile_rows == i).sum()) * int((tile_columns == j).sum()) for i, j in bad)
    if whole == int(wrong.sum()) and block_m * block_n > 1:
        text = f"{len(bad)} whole tile{'s' if len(bad) > 1 else ''}, first tile {min(bad)}"
        yield Explanation("whole_tile", text)
    yield Explanation("scattered", f"in rows {_span(top, bottom)}, columns {_span(left, right)}")


def _ends(flags: Array) -> tuple[int, int]:
    where = np.flatnonzero(flags)
    return int(where[0]), int(where[-1])


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"

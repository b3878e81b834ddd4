"""Operands in memory: the view that was asked for, the data of the fill, poison all around."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from gemmproof.properties.cases.case import FILLS, Case
from gemmproof.properties.cases.data import as_array, as_tensor, window
from gemmproof.properties.cases.layouts import BATCHED, LAYOUTS, WIDE
from gemmproof.properties.cases.operands import copy_elements, find_changes, operands
from gemmproof.reference.arithmetic import bits, widen
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.formats import FLOAT_OPERANDS, OPERANDS
from gemmproof.reference.formats import FORMATS as RECORDS

DRAWN = [name for name in LAYOUTS if not name.startswith("narrow")]
SHAPES = [(0, 0, 0), (1, 1, 1), (3, 5, 7), (0, 4, 2), (2, 3, 0), (1, 6, 4)]


def _case(layout, shape=(3, 5, 7), dtype="fp16", **more):
    M, N, K = shape
    batch = 2 if layout in BATCHED else more.pop("batch", None)
    return Case(M, N, K, dtype, batch=batch, layouts=(("a", layout), ("b", layout)), **more)


def elements_of(case):
    """The elements of a and of b of a case without a batch."""
    return [np.ascontiguousarray(copy_elements(x)[0]) for x in operands(case).values()]


@pytest.mark.parametrize("batch", [None, 0, 1, 3])
@pytest.mark.parametrize("layout", DRAWN)
def test_a_view_has_its_shape_and_its_data_whatever_the_layout(layout, batch):
    if layout in BATCHED and batch is None:
        batch = 2
    for shape, dtype in itertools.product(SHAPES, OPERANDS):
        M, N, K = shape
        case = Case(M, N, K, dtype, batch=batch, layouts=(("a", layout), ("b", layout)))
        a, b = operands(case).values()
        assert tuple(a.tensor.shape) == (*case.lead, M, K)
        assert tuple(b.tensor.shape) == (*case.lead, K, N)
        for operand in (a, b):
            whole = copy_elements(operand)
            assert np.isfinite(whole.astype(np.float64)).all(), "poison shows in the view"
            got = as_array(operand.tensor).reshape(whole.shape)
            assert np.array_equal(bits(got), bits(np.ascontiguousarray(whole)))
            assert find_changes(operand) == []


def test_layouts_are_what_their_names_say():
    strides = {name: operands(_case(name))["a"].tensor.stride() for name in DRAWN}
    assert strides["row"] == (7, 1)
    assert strides["column"] == (1, 3)
    assert strides["padded"] == (10, 1)
    assert strides["transposed"] == (1, 8)
    assert min(strides["sliced"]) > 1
    assert strides["expanded"] == (0, 1)
    assert strides["expanded_k"] == (1, 0)
    assert strides["shared"] == (0, 7, 1)
    assert strides["batch_inner"] == (7, 14, 1)
    a, b = operands(_case("misaligned")).values()
    assert a.tensor.is_contiguous()
    assert a.tensor.data_ptr() % 16 == b.tensor.data_ptr() % 16 == 2
    for name in ("row", "column", "padded", "transposed"):
        assert all(x.tensor.data_ptr() % 16 == 0 for x in operands(_case(name)).values())


def test_dense_operands_have_the_strides_that_torch_gives():
    for M, N, K in SHAPES:
        a, b = operands(Case(M, N, K)).values()
        assert a.tensor.stride() == torch.empty(M, K).stride()
        assert b.tensor.stride() == torch.empty(K, N).stride()
        a, _ = operands(Case(M, N, K, layouts=(("a", "column"),))).values()
        assert a.tensor.stride() == torch.empty(K, M).t().stride()


def test_strides_of_a_square_case_tell_a_from_b_and_rows_from_columns():
    for name in ("padded", "sliced", "transposed"):
        a, b = operands(Case(6, 6, 6, layouts=(("a", name), ("b", name)))).values()
        assert a.tensor.stride() != b.tensor.stride(), name
        assert a.tensor.stride() != b.tensor.stride()[::-1], name


@pytest.mark.parametrize("layout", DRAWN)
def test_every_write_is_seen_and_named(layout):
    for offset_name in ("guard", "gap", "element"):
        case = _case(layout)
        for operand in operands(case).values():
            own = _offsets(operand.view)
            whole = set(range(operand.view.extent))
            guards = {*range(64), *range(operand.view.extent - 64, operand.view.extent)}
            among = {"guard": guards, "gap": whole - own - guards, "element": own}[offset_name]
            for offset in sorted(among):
                code = bits(operand.parent)
                kept = code[offset].copy()
                code[offset] ^= 1
                (change,) = find_changes(operand)
                assert (change.what, change.count) == (offset_name, 1)
                assert change.operand == operand.role.name
                code[offset] = kept


def _offsets(view):
    ranges = (range(side) for side in view.shape)
    return {
        view.first + sum(i * s for i, s in zip(index, view.strides, strict=True))
        for index in itertools.product(*ranges)
    }


def test_a_changed_element_is_named_by_its_index():
    a, b = operands(Case(3, 5, 7, layouts=(("a", "sliced"), ("b", "transposed")))).values()
    a.tensor[2, 6] += 1
    b.tensor[4, 1] += 1
    assert [t.location for t in (*find_changes(a), *find_changes(b))] == ["a[2, 6]", "b[4, 1]"]
    a.tensor.t_()
    assert [t.what for t in find_changes(a)] == ["element", "view"]


def test_gaps_and_guards_hold_nan():
    a, _ = operands(Case(3, 5, 7, layouts=(("a", "sliced"),))).values()
    assert np.isnan(a.parent.astype(np.float64)).sum() == a.parent.size - 21
    assert (operands(Case(3, 5, 7, "int8"))["a"].parent == 0x55).sum() >= 128


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "int8"])
def test_a_narrow_view_passes_two_to_the_31_in_little_memory(dtype):
    case = Case(3, 2, 2, dtype, layouts=(("a", "narrow"),))
    before = _resident()
    a, _ = operands(case).values()
    last = sum(
        (side - 1) * stride for side, stride in zip(a.view.shape, a.view.strides, strict=True)
    )
    assert last >= WIDE
    assert np.array_equal(as_array(a.tensor)[2], copy_elements(a)[0, 2])
    assert np.isfinite(a.tensor.double().numpy()).all()
    assert find_changes(a) == []
    a.tensor[2, 1] += 1
    assert [(t.what, t.location) for t in find_changes(a)] == [("element", "a[2, 1]")]
    assert _resident() - before < 2**20, "kB: less than 1 GiB"


def _resident() -> int:
    """kB of this process in memory, whatever earlier tests left there."""
    smaps = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in smaps if line.startswith("Rss")).split()[1])


@pytest.mark.parametrize("dtype", OPERANDS)
def test_fills_are_finite_in_the_operand_and_in_the_result(dtype):
    top = RECORDS[dtype].max if dtype != "int8" else 2.0**31
    finite = [fill for fill in FILLS if fill != "special"]
    for fill, K, seed in itertools.product(finite, (0, 1, 2, 3, 63, 64, 65, 300, 1025), (0, 9)):
        a, b = elements_of(Case(9, 8, K, dtype, fill=fill, seed=seed))
        c, _ = exact_product(a, b)
        assert (np.abs(c.astype(np.float64)) <= top).all(), (fill, K)


@pytest.mark.parametrize("dtype", FLOAT_OPERANDS)
def test_index_data_are_integers_whose_sums_are_exact_in_any_order(dtype):
    for K in (1, 2, 7, 64, 129, 1000, 4096):
        a, b = (widen(x) for x in elements_of(Case(3, 4, K, dtype)))
        assert (a == np.rint(a)).all()
        assert (a != 0).all()
        assert (b != 0).all()
        assert (np.abs(a) @ np.abs(b)).max() <= max(window(RECORDS[dtype]), K)


def test_index_data_betray_a_shifted_row_column_or_k():
    a, b = (x.astype(np.float64) for x in elements_of(Case(64, 64, 64)))
    c = a @ b
    shifted = np.roll(a, 1, 0) @ b, a @ np.roll(b, 1, 1), np.roll(a, 1, 1) @ b
    for wrong in (*shifted, a[:, :-1] @ b[:-1]):
        assert (wrong != c).mean() > 0.9


def test_a_shrunken_case_keeps_the_values_of_the_places_it_keeps():
    for fill in ("normal", "positive"):
        large, _ = elements_of(Case(9, 9, 9, fill=fill, seed=3))
        small, _ = elements_of(Case(4, 2, 5, fill=fill, seed=3))
        assert np.array_equal(large[:4, :5], small)


def test_cancelling_data_cancel():
    a, b = (x.astype(np.float64) for x in elements_of(Case(16, 16, 512, fill="cancelling")))
    assert np.abs(a @ b).mean() < 0.1 * (np.abs(a) @ np.abs(b)).mean()


def test_normal_data_look_normal():
    x, _ = elements_of(Case(256, 1, 256, "fp32", fill="normal"))
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02


@pytest.mark.parametrize("dtype", OPERANDS)
def test_every_code_of_eight_and_sixteen_bits_goes_to_torch_and_back(dtype):
    fmt = RECORDS[dtype]
    codes = np.arange(2 ** min(16, 8 * fmt.itemsize), dtype=f"u{fmt.itemsize}")
    storage = codes.view(fmt.storage)
    back = as_array(as_tensor(storage, dtype))
    assert np.array_equal(bits(back), codes)
    finite = np.isfinite(widen(storage))
    doubles = as_tensor(storage, dtype).double().numpy()
    assert np.array_equal(doubles[finite], widen(storage)[finite])


@pytest.mark.parametrize("dtype", FLOAT_OPERANDS)
def test_special_data_hold_what_is_odd_and_leave_most_lines_plain(dtype):
    a, _ = operands(Case(64, 4, 9, dtype, fill="special", seed=1)).values()
    x = a.data[0].astype(np.float64)
    assert np.isnan(x).any()
    assert np.isinf(x).any() == RECORDS[dtype].has_inf
    assert (np.signbit(x) & (x == 0)).any()
    assert (~np.isfinite(x)).sum(axis=1).max() == 1, "at most one odd element a row"
    assert np.isfinite(x).all(axis=1).mean() > 0.4


@pytest.mark.parametrize("layout", ["narrow", "narrow_transposed", "narrow_batch"])
def test_every_narrow_view_reaches_two_to_the_31_and_is_watched_near_its_lines(layout):
    case = Case(5, 3, 4, batch=3, layouts=(("a", layout), ("b", layout)))
    for operand in operands(case).values():
        reach = [(n - 1) * s for n, s in zip(operand.view.shape, operand.view.strides, strict=True)]
        assert WIDE <= max(reach) < WIDE + 16, "the edge itself for a, just beyond it for b"
        assert sum(stop - start for start, stop in operand.watched) < 2**14
        own = sorted(_offsets(operand.view))
        for what, offset in (("element", own[-1]), ("gap", own[-1] - 2**20)):
            seen = any(start <= offset < stop for start, stop in operand.watched)
            assert seen == (what == "element")
        code = bits(operand.parent)
        code[own[-1]] ^= 1
        (change,) = find_changes(operand)
        assert (change.what, change.count) == ("element", 1)

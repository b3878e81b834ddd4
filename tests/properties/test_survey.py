"""Constants of wrappers and kernels, read from their sources, and the sizes around them."""

import functools
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.constants import find_constants, find_shapes
from gemmproof.properties.cases.corners import MOST_SIZES, corners, list_row_cases
from gemmproof.properties.cases.data import overwrite
from gemmproof.properties.cases.generate import (
    MAX_VOLUME,
    MOST_STEPS,
    Survey,
    list_groups,
    list_shapes,
    list_sizes,
    measure_volume,
)
from gemmproof.properties.cases.layouts import WIDE, view
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.contract import MAX_SIDE, ROLES, Contract
from gemmproof.reference.gpus import COUNTS

LONG = 4096


def wrapper(a, b, group=24):
    rows = 7 * 100
    if a.shape[0] > rows or a.shape[1] in (48, LONG):
        return _helper(a, group, STEP=40)
    return a.numel() % (1 << 20), a.shape[1] & 127 == 0, a.shape[1] >> 9, b"not a size" == b


def _helper(a, group, STEP):
    return triton.cdiv(a.shape[0], 96), min(a.shape[1], group), a.shape[0] // (STEP * 2)


@triton.autotune([triton.Config({"GROUP": 8}), triton.Config({"GROUP": 12})], key=["M"])
@triton.heuristics({"EVEN": lambda args: args["M"] % (args["GROUP"] * 11) == 0})
@triton.jit
def kernel(M, EVEN: tl.constexpr, GROUP: tl.constexpr):
    tl.device_assert(tl.minimum(M, GROUP) < 19)


def launch(a, b):
    return kernel[(1,)](a.shape[0])


def grows_without_end(a):
    return a % 9 == 0 and grows_without_end(a // 9)


class Layer:
    def __call__(self, a, b):
        return self.project(a)

    def project(self, a):
        return a.shape[0] // 320


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (wrapper, (), {700, 48, 4096, 1 << 20, 128, 512, 96}),
        (functools.partial(wrapper, group=56), (), {700, 48, 4096, 1 << 20, 128, 512, 96, 56}),
        (wrapper, (("STEP", 40),), {700, 48, 4096, 1 << 20, 128, 512, 96, 80}),
        (launch, (("GROUP", 8), ("GROUP", 12)), {88, 132, 8, 12, 19}),
        (grows_without_end, (), {9}),
        (Layer().project, (), {320}),
        (Layer(), (), {320}),
        (len, (), set()),
        (eval("lambda a, b: a.shape[0] % 31"), (), set()),  # there is no source to read
        (lambda a, b: a.shape[0] % 31, (), {31}),
        (torch.no_grad()(wrapper), (), {700, 48, 4096, 1 << 20, 128, 512, 96}),
    ],
)
def test_constants_are_read_from_whatever_a_wrapper_names(function, given, expected):
    constants = find_constants(function, given)
    assert set(constants) >= expected
    assert expected or constants == ()
    assert all(n >= 5 for n in constants)


@pytest.mark.parametrize("tile", [(16, 16, 16), (128, 256, 64), (64, 32, 128)])
def test_sizes_lie_on_both_sides_of_every_constant_of_every_axis(tile):
    sizes = list_sizes((8, 48, 1000, 86_400, 10**6), tile)
    for axis in range(3):
        sides = {size[axis] for size in sizes}
        for c in (8, 48, 1000):
            assert {c - 1, c, c + 1} <= sides
    rows, columns, _ = tile
    assert {(8 * rows), (8 * rows + 1)} <= {M for M, _, _ in sizes}
    assert {(8 * columns), (8 * columns + 1)} <= {N for _, N, _ in sizes}
    ragged = [(M, N) for M, N, _ in sizes if M % rows and M * N % (rows * columns) == 0]
    assert ragged, "a product of whole tiles with a side that is none"
    for size in sizes:
        assert measure_volume(size, tile) <= MAX_VOLUME
        assert max(size) <= MAX_SIDE
        assert size[2] <= MOST_STEPS * tile[2]


def test_numbers_that_no_side_can_have_give_no_case():
    """Such as the seconds of a day, the elements of a page or the size of a vocabulary."""
    large = (MAX_SIDE + 1, 86_400, 128_256)
    contract = Contract(batch_invariant=True)
    survey = Survey((((16, 16, 16),),), constants=large)
    assert list_shapes(tuple((n, 1, 1) for n in large), (16, 16, 16)) == ()
    assert list(list_row_cases(contract, survey, "fp16", ())) == []
    assert all(max(case.sides.values()) <= MAX_SIDE for case in corners(contract, survey, "fp16"))


def test_groups_of_tiles_are_passed_along_each_axis_beside_several_tiles_of_the_other():
    """With whole tiles and without: a wrapper may have a kernel for each."""
    rows, columns, _ = tile = (64, 32, 128)
    tiles = (((128, 256, 64),), (tile,), ((128, 128, 64),))
    named = Survey(tiles, constants=(9, 8, 64, 48), named_groups=(2, 8))
    assert (named.groups, replace(named, named_groups=()).groups) == ((8,), (9, 8))
    cases = list(corners(Contract(), named, "fp16"))
    for is_whole in (True, False):
        own = (case for case in cases if (case.K % 128 == 0) == is_whole and case.config == 1)
        counts = [(triton.cdiv(case.M, rows), triton.cdiv(case.N, columns)) for case in own]
        passed = {(m > 8, n > 8) for m, n in counts if min(m, n) > 1}
        assert {(True, False), (False, True)} <= passed, is_whole
    assert (8 * rows, 2 * columns) in {(case.M, case.N) for case in cases}


def test_each_tile_of_a_configuration_has_ragged_sides_and_aligned_rows():
    """A wrapper that chooses its tiles by the sizes is tried at the edge of each of them."""
    survey = Survey((((128, 128, 64), (32, 64, 128)), ((64, 64, 32), (16, 128, 64))))
    drawn = {(c.config, c.M, c.N, c.K) for c in corners(Contract(), survey, "fp16")}
    assert {(0, 33, 65, 129), (0, 33, 128, 256)} <= drawn
    assert {(1, 17, 129, 65), (1, 17, 256, 128)} <= drawn


def test_few_multiprocessors_meet_aligned_rows_and_each_tile():
    """A loop over tiles, and a tile that is chosen by their number, may stand behind alignment."""
    tiles = (((64, 64, 32), (128, 256, 64)),)
    drawn = {
        (c.sms, c.M, c.N, c.K) for c in corners(Contract(), Survey(tiles, asks_sms=True), "fp16")
    }
    aligned = {x for x in drawn if x[0] == 1 and x[2] % 64 == x[3] % 64 == 0 and min(x) > 0}
    assert {(1, 129, 512, 128), (1, 257, 512, 128)} <= aligned
    assert not any(c.sms for c in corners(Contract(), Survey(tiles), "fp16"))


def test_every_gpu_has_fewer_multiprocessors_than_some_case_has_tiles():
    tiles = (((32, 32, 32),),)
    drawn = list(corners(Contract(), Survey(tiles, asks_sms=True), "fp16"))
    for count in COUNTS:
        assert any(c.sms == count and -(-c.M // 32) * -(-c.N // 32) == count + 1 for c in drawn)
    large = corners(Contract(), Survey((((128, 128, 64),),), asks_sms=True), "fp16")
    assert {c.sms for c in large} == {None, 1, 7}  # none that is cut to fewer tiles


def test_sizes_beyond_a_constant_are_one_more_than_whole_tiles_too():
    survey = Survey((((32, 32, 32),),), constants=(6000,))
    drawn = {(c.M, c.N, c.K) for c in corners(Contract(), survey, "fp16")}
    for axis in range(3):
        assert any(sides[axis] == 6017 for sides in drawn)


SPLITS = {"1x8191x77": 64, "4096x4096x4096": 32, "small": 16}
TILES = {(48, 80, 96): 16, (40, 56): 32, 7: 8, (True, 3): 1}


def by_shape(a, b):
    M, N = a.shape[0], b.shape[1]
    depth = SPLITS.get(f"{M}x{N}x{a.shape[1]}", {"torch.Size([33, 65])": 8}.get(str(a.shape), 32))
    return TILES.get((M, N), depth)


def test_the_shapes_of_tables_are_cases():
    shapes = find_shapes(by_shape)
    assert set(shapes) == {(1, 8191, 77), (4096, 4096, 4096), (48, 80, 96), (40, 56), (33, 65)}
    survey = Survey((((32, 32, 32),),), shapes=shapes)
    drawn = {(c.M, c.N, c.K) for c in corners(Contract(), survey, "fp16")}
    assert {(1, 8191, 77), (48, 80, 96), (40, 56, 1), (33, 1, 65), (1, 33, 65)} <= drawn
    assert (4096, 4096, 4096) not in drawn  # none is cut to other sizes


def test_an_empty_sum_has_more_tiles_than_a_group_too():
    """It may have a separate kernel, whose order of tiles is tried nowhere else."""
    survey = Survey((((128, 32, 64), (64, 256, 64)),), named_groups=(8,))
    empty = [(c.M, c.N) for c in corners(Contract(K="0.."), survey, "fp16") if c.K == 0]
    assert any(M > 8 * 128 and N > 256 for M, N in empty)


@pytest.mark.parametrize("name", ["narrow", "narrow_transposed"])
def test_one_tile_of_a_huge_view_spans_more_than_32_bits_hold(name):
    """An offset that is advanced in 64 bits may still be made in 32 within a tile."""
    contract = Contract(layouts=("row", name), huge=True)
    cases = list(corners(contract, Survey((((16, 16, 16),),)), "fp16"))
    for role in ROLES.values():
        spans = []
        for case in (c for c in cases if c.layout(role.name) == name and not c.is_sampled):
            shape = case.shape_of(role.name)
            strides = view(name, shape, role.number, role.k_axis).strides
            counts = (shape[0], *(min(n, 16) for n in shape[1:]))
            spans.append(sum((n - 1) * s for n, s in zip(counts, strides, strict=True)))
        assert max(spans) >= WIDE, role.name


def test_many_constants_leave_room_for_the_other_cases():
    few, many = (
        list(corners(Contract(), Survey(constants=constants), "fp16"))
        for constants in ((), tuple(range(5, 200)))
    )
    groups = list_groups(Survey(constants=tuple(range(5, 200))).groups, Survey().tiles[0][0])
    assert len(few) < len(many) <= len(few) + MOST_SIZES + len(groups) < 90
    assert {case.layouts for case in few} == {case.layouts for case in many}
    assert {case.fill for case in few} == {case.fill for case in many}


def test_elements_are_overwritten_where_they_lie():
    for layout in ("row", "padded", "expanded", "expanded_k", "transposed"):
        first, second = (
            tensors_of(Case(5, 7, 6, layouts=(("a", layout), ("b", layout)), seed=seed))
            for seed in (1, 2)
        )
        for name, tensor in first.items():
            before = tensor.data_ptr()
            assert not torch.equal(tensor, second[name])
            overwrite(tensor, second[name])
            assert torch.equal(tensor, second[name])
            assert tensor.data_ptr() == before


def test_every_configuration_meets_a_second_tile_of_a_program():
    """A persistent loop that is wrong in one configuration alone shows nowhere else."""
    tiles = tuple(((bm, 64, 32),) for bm in (128, 64, 16))
    for asks in (True, False):
        drawn = corners(Contract(), Survey(tiles, asks_sms=asks), "fp16")
        configs = {case.config for case in drawn if case.sms == 1 and case.M > 32 and case.N > 128}
        assert configs == ({0, 1, 2} if asks else set())


def test_whole_tiles_come_in_the_usual_layouts_and_with_every_choice():
    options = (("scale", ("row", "column")), ("group", ("1", "3")))
    survey = Survey((((32, 16, 64),),), arguments=options, choices=("group",))
    whole = [c for c in corners(Contract(layouts="any"), survey, "fp16") if c.sides == SIDES]
    pairs = {(c.layout("a"), c.layout("b")) for c in whole}
    assert {("row", "column"), ("column", "row"), ("column", "column")} <= pairs
    assert {c.arguments for c in whole} == {(), (("group", "3"),)}
    dense = [c for c in corners(Contract(), survey, "fp16") if c.sides == SIDES]
    assert {c.layouts for c in dense} == {()}


SIDES = {"M": 64, "N": 32, "K": 128}

"""Drawn cases: they differ, the contract admits them, and every kernel can run them."""

import runpy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.support.wide import wide

from gemmproof import Case, Contract, KernelUnderTest, multiple_of, observe
from gemmproof.properties.cases.generate import Survey, is_admitted
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.cases.strategies import LEVELS, _rise, guard_distance
from gemmproof.properties.contract import Sizes
from gemmproof.reference.formats import OPERANDS
from gemmproof.strategies import cases, layouts, operands, sizes

ROOT = Path(__file__).parents[3]
CONTRACTS = {
    "usual": Contract(),
    "any": wide(OPERANDS),
    "batched": wide(batched=True),
    "multiples": wide(M="16..", N="16..:16", K="64..:64"),
    "related": wide(where="K % 32 == 0 and M <= N"),
    "column": Contract(N=1, K=multiple_of(16), layouts="any"),
    "padded": Contract(layouts=("padded", "sliced")),
}


def draw(strategy, count):
    """Return as many cases as Hypothesis draws in a test of so many examples."""
    drawn = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(case):
        drawn.append(case)

    collect()
    return drawn


@pytest.mark.parametrize("name", CONTRACTS)
def test_nearly_all_drawn_cases_differ_and_the_contract_admits_all(name):
    contract = CONTRACTS[name]
    drawn = draw(cases(contract, tile=(64, 32, 16)), 100)
    assert all(is_admitted(case, contract) for case in drawn)
    assert len({*drawn}) >= 95


@pytest.mark.parametrize("most", [1, 64, 65536])
def test_a_side_that_rises_to_a_large_one_is_never_empty(most):
    """Without K, no volume would limit a result of millions of elements."""
    rising = [_rise(level, most, Sizes.of("0..")) for level in range(LEVELS)]
    assert rising == sorted(rising)
    assert (rising[0], rising[-1]) == (1, most)


@pytest.mark.parametrize(
    "tile", [16, "abc", (16, 16), (16, 16, 16, 16), (0, 16, 16), (1.5, 2, 2), (10**9, 16, 16)]
)
@pytest.mark.parametrize("strategy", [cases, sizes])
def test_a_tile_of_wrong_sizes_is_refused_in_one_line(strategy, tile):
    expected = "expected a tuple of three integers from 1 to 65536"
    with pytest.raises(ValueError, match=rf"^{strategy.__name__}: got tile .*, {expected}$"):
        strategy(Contract(), tile=tile)


def test_a_kernel_or_a_class_in_place_of_a_case_is_described_in_a_few_words():
    kernel = KernelUnderTest("right", print)
    with pytest.raises(TypeError, match=r"^operands: got the kernel right, expected a Case$"):
        operands(kernel)
    expected = "expected a KernelUnderTest or a Contract"
    with pytest.raises(TypeError, match=f"^cases: got the class Contract, {expected}$"):
        cases(Contract)


@pytest.mark.filterwarnings("ignore:.*pointers are used")
def test_a_case_has_a_configuration_in_each_kernel_that_a_wrapper_may_launch():
    """By pointers, grouped_gemm has fewer configurations than by descriptors."""
    registered = runpy.run_path(str(ROOT / "conftest.py"))["pytest_gemm_kernels"]()
    kernel = next(x for x in registered if x.name == "grouped_gemm_fp16")
    for layout, name in (("row", "grouped_gemm_tma_kernel"), ("padded", "grouped_gemm_kernel")):
        case = Case(16, 32, 48, config=3).with_layout("a", layout)
        seen = observe(kernel, case)
        assert ([x.kernel for x in seen.launches], seen.findings) == ([name], ())


def test_the_distance_to_a_guard_is_that_of_the_nearest_side_to_a_multiple():
    survey = Survey(constants=(64, 100))
    assert guard_distance(Case(70, 50, 31), survey) == 6  # of M to 64
    assert guard_distance(Case(10, 1, 199), survey) == 1  # of K to 200
    assert guard_distance(Case(10, 1, 1), survey) == 54  # of M to 64: 0 is no multiple
    assert guard_distance(Case(10, 1, 1), Survey()) == 0


@given(case=cases(wide(), tile=(32, 16, 8)), choices=st.data())
@settings(max_examples=20)
def test_operands_have_the_shapes_and_strides_of_their_case(case, choices):
    if case.is_sampled:
        with pytest.raises(ValueError, match="expected a case whose result fits in memory"):
            operands(case)
        return
    drawn = choices.draw(operands(case))
    expected = tensors_of(case)
    assert {n: (x.shape, x.stride()) for n, x in drawn.items()} == {
        n: (x.shape, x.stride()) for n, x in expected.items()
    }


@given(sizes=sizes(CONTRACTS["multiples"]), by_operand=layouts(CONTRACTS["batched"]))
def test_sizes_and_layouts_are_admitted(sizes, by_operand):
    assert CONTRACTS["multiples"].admits(sizes)
    assert {name for _, name in by_operand} <= set(CONTRACTS["batched"].layout_names)
    assert [name for name, _ in by_operand] == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cases(print), TypeError, "cases: got the function print, expected a Kernel"),
        (lambda: sizes("16.."), TypeError, "sizes: got '16..', expected a KernelUnderTest or a"),
        (lambda: layouts(None), TypeError, "layouts: got None, expected a KernelUnderTest or a"),
        (lambda: cases(Contract(), format="int8"), ValueError, "got format 'int8', expected one"),
        (lambda: operands({"M": 1}), TypeError, "operands: got {'M': 1}, expected a Case"),
        (lambda: operands(Case(65536, 65536, 1)), ValueError, "expected a case whose result fits"),
        (lambda: observe(print, Case(1, 1, 1)), TypeError, "observe: got the function print, exp"),
    ],
)
def test_wrong_arguments_are_one_line(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)

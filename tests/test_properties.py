"""Each judge on results made by hand: what it must find, and what it must not."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gemmproof.properties import completion, inputs, mirror, repeat, values
from gemmproof.properties.addresses import from_fault
from gemmproof.properties.case import FILLS, Case
from gemmproof.properties.classify import classified
from gemmproof.properties.contract import FORMATS, Contract, KernelUnderTest
from gemmproof.properties.judged import judge
from gemmproof.properties.operands import stored
from gemmproof.properties.outcome import execute
from gemmproof.properties.table import BY_NAME, PROPERTIES
from gemmproof.properties.tensors import TORCH_DTYPES, as_array, as_tensor
from gemmproof.reference.dot import dot_model
from gemmproof.reference.exact import exact_product
from gemmproof.reference.formats import FORMATS as KNOWN
from gemmproof.reference.formats import round_to, widen
from gemmproof.reference.mirrors import MIRRORS, launch_of
from gemmproof.reference.mirrors.run import touches_of
from gemmproof.reference.observation import Fault, KernelError, Launch, Run, Where

HERE = Where("/somewhere/kernels.py", 31, "matmul_kernel")
LAUNCH = Launch("matmul_kernel", (1, 1, 1), {}, 0, 1, ((16, 16, 16),), False, HERE)


def outcome_of(case, function, *, faults=(), contract=None, **more):
    """An outcome of `function(a, b)` as the simulator would give it, with the faults stated."""
    contract = contract or Contract((case.dtype,), batched=case.batch is not None)
    kernel = KernelUnderTest("matmul", function, contract, **more)

    def run(launch, *tensors, trace=None, **options):
        return Run(result=launch(*tensors), launches=[LAUNCH], faults=list(faults))

    return execute(kernel, case, run, None)


def product(a, b, out=None, change=None):
    """The exact product, changed by `change(c)` in float64, rounded once to `out`."""
    x, y = as_array(a), as_array(b)
    c = exact_product(x, y)[0].astype(np.float64)
    c = c if change is None else change(c)
    name = out or {torch.int8: "int32"}.get(a.dtype) or _format(a)
    if KNOWN[name].kind == "int":
        return as_tensor(c.astype(np.int64).astype(KNOWN[name].storage), name)
    return as_tensor(round_to(c, KNOWN[name]), name)


def _format(tensor):
    return next(name for name, dtype in TORCH_DTYPES.items() if dtype == tensor.dtype)


def names(outcome):
    return sorted({f.property for f in judge(outcome).findings})


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("fill", FILLS)
def test_the_exact_product_rounded_once_is_right_in_every_output_format(dtype, fill):
    outputs = (
        ["int32", "int64", "fp32", "fp16"]
        if dtype == "int8"
        else ["fp16", "bf16", "fp32", "fp64", "fp8e4m3", "fp8e5m2"]
    )
    for out in outputs:
        for K in (0, 1, 5, 64, 300):
            case = Case(6, 5, K, dtype, fill=fill, seed=K)
            outcome = outcome_of(case, lambda a, b, out=out: product(a, b, out))
            assert names(outcome) == [], (out, K)
            numbers = dtype != "int8" and fill != "special"
            assert (values.BOUND in judge(outcome).applied) == numbers


@pytest.mark.parametrize("dtype", [name for name in FORMATS if name != "int8"])
@pytest.mark.parametrize("fill", [name for name in FILLS if name != "special"])
def test_every_fp32_chain_is_within_the_bound_and_exact_on_integers(dtype, fill):
    model = dot_model(None, dtype)

    def chain(a, b):
        acc = model.dot(as_array(a).astype(KNOWN[dtype].storage), as_array(b))
        return as_tensor(round_to(acc, KNOWN["fp32"]), "fp32")

    for K in (1, 2, 17, 400):
        outcome = outcome_of(Case(9, 7, K, dtype, fill=fill, seed=3), chain)
        assert names(outcome) == []
        assert 0 <= judge(outcome).ratios[values.BOUND] <= 1


def test_overflow_of_the_output_may_saturate_or_be_infinite_but_not_wrong():
    case = Case(4, 4, 8, "fp32", fill="positive", seed=1)
    # a kernel that returns fp8e4m3, whose largest value is 448, for sums of about 2000

    def scaled(top):
        def launch(a, b):
            c = exact_product(as_array(a), as_array(b))[0] * 2000
            return as_tensor(round_to(np.where(c > 448, top, c), KNOWN["fp8e4m3"]), "fp8e4m3")

        return launch

    outcome = outcome_of(case, scaled(448.0))
    exact = values.exact(outcome) * 2000
    outcome.memo["exact"] = exact
    for top, wrong in ((448.0, False), (np.nan, False), (416.0, True), (-448.0, True)):
        other = outcome_of(case, scaled(top))
        other.memo["exact"] = exact
        assert values.not_exact(other).any() == wrong, top


def test_an_integer_output_saturates_or_is_wrong():
    case = Case(3, 3, 4, "int8")
    clip = outcome_of(case, lambda a, b: product(a, b, "int8", lambda c: np.clip(c, -128, 127)))
    assert names(clip) == []
    wrapped = outcome_of(case, lambda a, b: product(a, b, "int8"))
    assert names(wrapped) == [values.EXACT]
    (finding,) = values.judge_exact(wrapped)
    assert classified(finding, wrapped).fault == "wrapped"


def test_minus_zero_is_zero():
    outcome = outcome_of(Case(3, 3, 0), lambda a, b: -torch.zeros(3, 3, dtype=torch.float16))
    assert names(outcome) == []


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int8"])
def test_one_wrong_unit_in_one_element_is_found(dtype):
    def off(c):
        c[2, 1] += 1
        return c

    outcome = outcome_of(Case(3, 4, 5, dtype), lambda a, b: product(a, b, None, off))
    found = next(f for f in judge(outcome).findings if f.property == values.EXACT)
    assert found.message.startswith("c[2, 1]: got ")
    assert found.message.endswith("1 of 12 elements wrong")


def test_nan_is_wrong_and_its_ratio_is_no_number_in_the_report():
    outcome = outcome_of(Case(2, 2, 2), lambda a, b: torch.full((2, 2), torch.nan).half())
    assert names(outcome) == [values.EXACT, values.BOUND]
    assert values.BOUND not in judge(outcome).ratios


def narrow_sums(name):
    """A kernel whose sums are kept in a narrow format, one rounding a step."""

    def launch(a, b):
        x, y = widen(as_array(a)), widen(as_array(b))
        acc = np.zeros((x.shape[0], y.shape[1]))
        for k in range(x.shape[1]):
            acc = widen(round_to(acc + x[:, k, None] * y[None, k], KNOWN[name]))
        return as_tensor(round_to(acc, KNOWN["fp32"]), "fp32")

    return launch


@pytest.mark.parametrize(("name", "K"), [("fp16", 64), ("bf16", 3)])
def test_a_narrow_accumulator_is_beyond_the_bound_and_called_rounding(name, K):
    case = Case(8, 8, K, "fp16", fill="positive", seed=1)
    outcome = outcome_of(case, narrow_sums(name))
    (finding,) = values.judge_bound(outcome)
    found = classified(finding, outcome)
    assert found.fault == "rounding"
    assert f"sums kept in {name}" in found.message


def test_a_contract_that_declares_an_fp16_accumulator_allows_it():
    case = Case(8, 8, 3, "fp16", fill="positive", seed=1)
    contract = Contract(accumulator="fp16")
    assert names(outcome_of(case, narrow_sums("fp16"), contract=contract)) == []
    assert names(outcome_of(case, narrow_sums("bf16"), contract=contract)) == [values.BOUND]


TILED = Case(40, 20, 33)  # tiles of 16: 3 x 2 tiles, the last ones partial, 3 blocks of k
CLASSES = {
    "rows 32..39": (lambda c: _add(c, np.s_[34:]), ("tile_edge", "c", "M")),
    "columns 16..19": (lambda c: _add(c, np.s_[:, 17]), ("tile_edge", "c", "N")),
    "whole tile": (lambda c: _add(c, np.s_[16:32, :16]), ("whole_tile", "c", None)),
    "row": (lambda c: _add(c, np.s_[5, 3:9]), ("row", "c", "M")),
    "column": (lambda c: _add(c, np.s_[3:9, 5]), ("column", "c", "N")),
    "everywhere": (lambda c: _add(c, np.s_[:]), ("everywhere", "c", None)),
    "scattered": (lambda c: _add(c, ([1, 18], [3, 4])), ("scattered", "c", None)),
    "nan": (lambda c: np.where(c > 0, np.nan, c), ("not_finite", "c", None)),
}


def _add(c, where):
    c = c.copy()
    c[where] += 1 + np.arange(c.size).reshape(c.shape)[where] % 7
    return c


@pytest.mark.parametrize("name", CLASSES)
def test_a_wrong_part_of_c_is_classified_by_where_it_lies(name):
    change, expected = CLASSES[name]
    outcome = outcome_of(TILED, lambda a, b: product(a, b, "fp32", change))
    (finding,) = values.judge_exact(outcome)
    found = classified(finding, outcome)
    assert (found.fault, found.operand, found.axis) == expected


def test_numbers_in_the_lanes_beyond_k_are_named():
    outcome = outcome_of(Case(3, 4, 17), lambda a, b: product(a, b, "fp32", lambda c: c + 15 * 4))
    found = classified(next(values.judge_exact(outcome)), outcome)
    assert (found.fault, found.axis) == ("k_tail", "K")
    assert "the 15 lanes from k = 17 to the end of its block held products of 4" in found.message


def test_one_wrong_element_tells_no_class():
    outcome = outcome_of(Case(1, 1, 3), lambda a, b: product(a, b, "fp32", lambda c: c + 0.5))
    assert classified(next(values.judge_exact(outcome)), outcome) is None


OPERANDS = {
    "last block left out": (lambda a, b: (a[:, :32], b[:32]), "last_k_block", "k 32..32 is left"),
    "first block left out": (lambda a, b: (a[:, 16:], b[16:]), "k_block", "k 0..15 is left out"),
    "tail left out": (lambda a, b: (a[:, :16], b[:16]), "last_k_block", "k 16..32 is left out"),
    "block added twice": (
        lambda a, b: (torch.cat((a, a[:, 16:32]), 1), torch.cat((b, b[16:32]), 0)),
        "k_block",
        "k 16..31 is added twice",
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_a_wrong_part_of_k_is_named(name):
    change, fault, words = OPERANDS[name]
    outcome = outcome_of(TILED, lambda a, b: product(*change(a, b), "fp32"))
    (finding,) = values.judge_exact(outcome)
    found = classified(finding, outcome)
    assert (found.fault, found.axis) == (fault, "K")
    assert words in found.message


@pytest.mark.parametrize(
    ("case", "change", "operand", "words"),
    [
        (
            Case(9, 5, 9, a="column"),
            lambda a, b: (torch.as_strided(a, a.shape, (9, 1)), b),
            "a",
            "as if a had its strides swapped or row-major dense strides",
        ),
        (
            Case(9, 7, 5, b="column"),
            lambda a, b: (a, torch.as_strided(b, b.shape, (7, 1))),
            "b",
            "as if b had row-major dense strides",
        ),
        (
            Case(6, 6, 6, fill="normal", seed=2),
            lambda a, b: (a.t(), b.t()),
            "a",
            "as if a and b had",
        ),
        (
            Case(3, 4, 5, batch=3),
            lambda a, b: (a, b[:1].expand(3, 5, 4)),
            "b",
            "as if b had a batch stride of 0",
        ),
    ],
)
def test_wrong_strides_name_the_operand(case, change, operand, words):
    def launch(a, b):
        x, y = change(a, b)
        return product(x.contiguous(), y.contiguous(), "fp32")

    outcome = outcome_of(case, launch)
    finding = next(iter([*values.judge_exact(outcome), *values.judge_bound(outcome)]))
    found = classified(finding, outcome)
    assert (found.fault, found.operand) == ("wrong_strides", operand)
    assert words in found.message


def test_a_transposed_result_is_named():
    outcome = outcome_of(Case(6, 6, 4), lambda a, b: product(a, b).t())
    found = classified(next(values.judge_exact(outcome)), outcome)
    assert "the result is transposed" in found.message


@pytest.mark.parametrize(("dtype", "fewer"), [("fp16", "bf16"), ("fp32", "tf32"), ("fp32", "fp16")])
def test_operands_of_fewer_bits_are_named(dtype, fewer):
    def launch(a, b):
        own = KNOWN[dtype].storage
        x, y = (widen(round_to(as_array(t), KNOWN[fewer])).astype(own) for t in (a, b))
        return as_tensor(round_to(exact_product(x, y)[0], KNOWN["fp32"]), "fp32")

    outcome = outcome_of(Case(4, 4, 8, dtype, fill="normal", seed=1), launch)
    found = classified(next(values.judge_bound(outcome)), outcome)
    assert found.fault == "rounding"
    assert fewer in found.message.partition(": what operands rounded to ")[2]


def test_batches_are_named():
    def second(c):
        c[1] += 1
        return c

    outcome = outcome_of(Case(3, 4, 5, batch=3), lambda a, b: product(a, b, "fp32", second))
    found = classified(next(values.judge_exact(outcome)), outcome)
    assert (found.fault, found.axis) == ("batch", "batch")


RESULTS = {
    "nothing": (lambda a, b: None, "wrong_type", "got None, expected a tensor"),
    "a tuple": (lambda a, b: (a @ b,), "wrong_type", "got a tuple, expected a tensor"),
    "transposed": (lambda a, b: (a @ b).t(), "wrong_shape", "got shape (4, 3), expected (3, 4)"),
    "integers": (lambda a, b: (a @ b).int(), "wrong_dtype", "got torch.int32, expected a float"),
    "complex": (lambda a, b: (a @ b).cfloat(), "wrong_dtype", "got torch.complex64"),
    "its input": (lambda a, b: a[:, :4], "returned_input", "got a view of a, expected memory"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_the_wrong_kind_is_one_clear_line(name):
    launch, fault, words = RESULTS[name]
    found = [f for f in judge(outcome_of(Case(3, 4, 5), launch)).findings if f.fault == fault]
    assert len(found) == 1
    assert words in found[0].message
    assert "\n" not in found[0].message


def test_an_empty_result_shares_no_memory():
    outcome = outcome_of(Case(0, 4, 5), lambda a, b: a[:, :4])
    assert names(outcome) == []


def _raises(error):
    def launch(a, b):
        raise error

    return launch


@pytest.mark.parametrize(
    ("error", "fault", "words"),
    [
        (ValueError("no\nsuch   shape"), "raised", "got ValueError: no such shape"),
        (AssertionError(), "raised", "got AssertionError, expected a result"),
        (SystemExit(3), "raised", "got SystemExit: 3"),
        (ValueError("x" * 10_000), "raised", "..."),
        (KernelError("no such type", HERE), "kernel_error", "at kernels.py:31: got no such type"),
    ],
)
def test_what_a_wrapper_raises_is_a_finding_with_its_line(error, fault, words):
    (finding,) = judge(outcome_of(Case(1, 1, 1), _raises(error))).findings
    assert (finding.property, finding.fault) == (completion.NAME, fault)
    assert words in finding.message
    assert finding.where.startswith("kernels.py:31" if fault != "raised" else "test_properties.py:")
    assert len(finding.message) < 400
    assert "\n" not in finding.message


def test_an_interrupt_is_the_users_not_the_kernels():
    with pytest.raises(KeyboardInterrupt):
        outcome_of(Case(1, 1, 1), _raises(KeyboardInterrupt()))


def test_changed_operands_are_found_and_the_result_judged_by_what_was_given():
    def launch(a, b):
        c = product(a, b)
        a[1, 2] += 1
        torch.as_strided(b, (1,), (1,), b.storage_offset() - 1).fill_(0)
        return c

    outcome = outcome_of(Case(3, 4, 5), launch)
    found = list(inputs.judge(outcome))
    assert [(f.fault, f.operand) for f in found] == [
        ("element_changed", "a"),
        ("guard_changed", "b"),
    ]
    assert "first a[1, 2], expected none changed" in found[0].message
    assert names(outcome) == [inputs.NAME]


def test_bits_that_depend_on_the_call_are_found_down_to_the_nan():
    state = []

    def launch(a, b):
        state.append(1)
        return product(a, b, "fp32", lambda c: c + (c == c.max()) * (len(state) == 3))

    outcome = outcome_of(Case(3, 4, 5, calls=3), launch)
    (finding,) = repeat.judge(outcome)
    assert "in call 3 over zero bytes, expected" in finding.message
    assert "1 of 12 elements differ" in finding.message
    codes = iter((0x7E00, 0x7E00, 0xFFFF))

    def nans(a, b):
        return as_tensor(np.full((1, 1), next(codes), np.uint16).view(np.float16), "fp16")

    (finding,) = repeat.judge(outcome_of(Case(1, 1, 1, calls=3), nans))
    assert "got nan (0xffff) in call 3" in finding.message


def _fault(kind, access="load", operand="a", follows=""):
    words = ("rows 1..15 of a", "rows 0..0")
    return Fault(kind, "k", access, operand, "M", HERE, *words, 1, 15, follows)


def test_a_fault_of_the_simulator_is_a_finding_with_operand_axis_and_line():
    outcome = outcome_of(Case(1, 1, 1), product, faults=[_fault("out_of_bounds")])
    (finding,) = judge(outcome).findings
    assert finding.property == "stays_in_bounds"
    assert (finding.operand, finding.axis, finding.where) == ("a", "M", "kernels.py:31")
    assert finding.message == "load of a at kernels.py:31: rows 1..15 of a"
    nameless = Fault("undefined_used", "k", "mask", "", None, Where("", 0, ""), "x", "y", 1, 1)
    assert from_fault("p", nameless, outcome).message == "mask: got x, expected y"


def test_every_fault_that_the_simulator_tells_has_a_property():
    from gemmproof.reference.observation import KINDS

    for kind in set(KINDS) - {"false_hint"}:
        assert names(outcome_of(Case(1, 1, 1), product, faults=[_fault(kind)])), kind


@pytest.mark.parametrize(
    ("faults", "causes"),
    [
        (
            [_fault("out_of_bounds"), _fault("undefined_stored", follows="out_of_bounds")],
            {"undefined_lanes_never_stored": "stays_in_bounds"},
        ),
        ([_fault("undefined_stored")], {"undefined_lanes_never_stored": None}),
        (
            [_fault("out_of_bounds"), _fault("never_stored", "store", "c")],
            {"stores_each_element_once": None},
        ),
        (
            [_fault("out_of_bounds", "store", "c"), _fault("never_stored", "store", "c")],
            {"stores_each_element_once": "stays_in_bounds"},
        ),
    ],
)
def test_a_consequence_names_its_cause_and_a_stray_load_moves_no_store(faults, causes):
    found = judge(outcome_of(Case(1, 1, 1), product, faults=faults)).findings
    assert {f.property: f.cause for f in found if f.property != "stays_in_bounds"} == causes


def test_a_wrong_value_beside_a_harmless_stray_load_is_a_fault_of_its_own():
    off = outcome_of(
        Case(1, 1, 1),
        lambda a, b: product(a, b, None, lambda c: c + 1),
        faults=[_fault("out_of_bounds")],
    )
    causes = {f.property: f.cause for f in judge(off).findings}
    assert causes == {"stays_in_bounds": None, values.EXACT: None, values.BOUND: values.EXACT}


def _all_programs(touch):
    """A touch as the simulator keeps it: with an axis over programs."""
    x, y, _ = touch.pid
    return SimpleNamespace(
        kind=touch.kind,
        operand=SimpleNamespace(name=touch.operand),
        offsets=touch.offsets[None],
        mask=None if touch.mask is None else touch.mask[None],
        other=touch.other,
        programs=np.array([x + 2 * y]),
    )


def test_the_mirror_property_compares_access_by_access():
    case = Case(20, 18, 17)
    constants = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    kernel = MIRRORS["matmul"]

    def outcome_with(change):
        def run(launch, a, b, trace=None, **options):
            c = launch(a, b)
            stated = launch_of(
                (tuple(a.shape), a.stride()),
                (tuple(b.shape), b.stride()),
                (tuple(c.shape), c.stride()),
                constants,
            )
            touches = [t for pid in kernel.pids(stated) for t in touches_of(kernel, stated, pid)]
            trace.append(("k", (2, 2, 1), [_all_programs(t) for t in change(touches)]))
            launched = Launch("k", (2, 2, 1), constants, 0, 1, ((16, 16, 16),), False, HERE)
            return Run(result=c, launches=[launched])

        return execute(KernelUnderTest("k", product, mirror=kernel), case, run, None)

    assert list(mirror.judge(outcome_with(lambda t: t))) == []
    assert mirror.NAME in judge(outcome_with(lambda t: t)).applied
    for change in (lambda t: t[:-1], lambda t: [*t, t[0]], lambda t: [t[1], t[0], *t[2:]]):
        (finding,) = mirror.judge(outcome_with(change))
        assert finding.message.startswith("pid (")
    assert mirror.NAME not in judge(outcome_of(case, product)).applied


def test_claims_are_sentences_and_names_are_their_own():
    assert len(BY_NAME) == len(PROPERTIES)
    for each in PROPERTIES:
        assert each.claim[0] == each.claim[0].lower() or each.claim.startswith("|")
        assert not each.claim.endswith(".")
        assert all(name in BY_NAME for name in each.follows)


def test_stored_elements_are_those_given_even_after_a_call_changed_them():
    outcome = outcome_of(Case(2, 2, 2), lambda a, b: a.zero_() @ b)
    fresh = outcome_of(Case(2, 2, 2), product)
    assert np.array_equal(stored(outcome.operands[0]), stored(fresh.operands[0]))

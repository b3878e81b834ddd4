"""Declarations derive from recorded calls what those show, and say what they do not show."""

from __future__ import annotations

import pytest
from tests.record_calls.calls_by_hand import call, tensor

from gemmproof.record_calls.declaration import Undeclared, add_formula, declare_calls
from gemmproof.record_calls.record import METHOD, RecordedArgument
from gemmproof.record_calls.sizes import bound, describe, relate
from gemmproof.target import Calling


def declared(*calls):
    """Return the declaration, which must exist."""
    own = declare_calls(calls)
    assert own.calling is not None, own.reason
    assert own.calling.memory_only
    own.calling.state("kernel")
    return own


def linear(M, N, K, bias=True, **more):
    given = {"x": tensor(M, K), "w": tensor(N, K), "bias": tensor(N) if bias else "None"}
    return call(**given, **more)


# -- sizes ---------------------------------------------------------------------------------------
def test_dimensions_that_vary_together_are_one_axis():
    own = declared(linear(16, 32, 64), linear(33, 48, 64, bias=False), linear(1, 16, 128))
    assert own.calling.call == "linear(a, b, bias)"
    assert own.calling.operands == ("b=fp16[N, K]", "bias=fp16[N] optional")
    contract = own.contract
    assert [str(contract.sizes(x)) for x in "MNK"] == ["1..33", "16..48:16", "64..128:64"]
    assert own.notes[:3] == (
        "M: 1 16 33 in 3 calls",
        "N: 16 32 48 in 3 calls",
        "K: 64 128 in 3 calls",
    )
    assert (own.calls, own.shapes) == (3, 3)


def test_what_never_varied_stays_a_number_and_is_noted():
    given = [
        call(x=tensor(M, 256), w=tensor(256, 64), scale=tensor(M, 2), group="128")
        for M in (16, 48)
    ]  # fmt: skip
    own = declared(*given)
    assert own.calling.call == "linear(a, b, scale, 128)"
    assert own.calling.operands == ("scale=fp16[M, 2]",)
    assert "K: always 256 in 2 calls" in own.notes
    assert "scale: always 2 in 2 calls" in own.notes


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        ((32, 64, 128), "K * 2"),
        ((2, 4, 8), "K // 8"),
        ((17, 33, 65), "K + 1"),
        ((15, 31, 63), "K - 1"),
        ((1, 2, 4), "K // 16"),
        ((7, 9, 11), ""),
    ],
)
def test_a_dimension_is_a_part_or_a_multiple_of_an_axis(vector, text):
    assert relate("K", (16, 32, 64), vector) == text


def test_blocks_are_rounded_up_and_a_constant_axis_shows_nothing():
    assert relate("M", (16, 33, 65), (1, 3, 5)) == "-(-M // 16)"
    assert relate("M", (64, 64), (2, 2)) == ""


def test_a_size_that_no_axis_has_gets_a_name():
    given = []
    for M, N, E in ((8, 32, 4), (16, 96, 4), (24, 64, 8)):
        ids = tensor(M, fmt="int32", low=0, high=E - 1)
        given.append(call(x=tensor(M, 64), w=tensor(E, 64, N), ids=ids))
    own = declared(*given)
    assert own.calling.operands == ("b=fp16[E, K, N]", "ids=int32[M] 0..7", "E=4|8")


def test_sizes_of_a_contract_are_those_that_were_seen():
    assert bound((64, 128, 256)) == "64..256:64"
    assert bound((1, 33)) == "1..33"
    assert bound((20, 20)) == "20"
    assert describe("M", (1, 2, 3, 4, 5, 6, 7, 8)) == "M: 1 2 3 4 5 6 and 2 more in 8 calls"


def test_a_batch_and_equal_sizes():
    own = declared(call(q=tensor(1, 64, 64), k=tensor(1, 64, 64)))
    assert own.calling.operands == ()
    assert own.contract.batched
    assert str(own.contract.sizes("batch")) == "1"


def test_a_matrix_that_is_missing_in_some_calls_is_no_factor():
    given = [call(x=tensor(M, 64), w=tensor(32, 64) if M > 8 else "None") for M in (8, 16, 24)]
    own = declared(*given)
    assert own.calling.call == "linear(a, w)"
    assert own.calling.operands == ("w=fp16[32, K] optional",)


# -- arguments -----------------------------------------------------------------------------------
def test_formats_of_the_factors_may_vary_together():
    given = [call(a=tensor(16, 64, fmt=x), b=tensor(64, 32, fmt=x)) for x in ("fp16", "bf16")]
    assert declared(*given).contract.formats == ("fp16", "bf16")
    others = [
        call(x=tensor(16, 64, fmt=f), w=tensor(32, 64, fmt=f)) for f in ("fp16", "bf16", "bf16")
    ]
    own = declared(*others)
    assert (own.contract.formats, own.calling.operands) == (("bf16",), ("b=bf16[N, K]",))
    assert "1 call with other formats or numbers of dimensions: not declared" in own.notes


def test_memory_that_is_written_is_a_result():
    out = tensor(16, 32, written=True, read=False)
    own = declared(call(x=tensor(16, 64), w=tensor(64, 32), c=out))
    assert own.calling.operands == ("c=fp16[M, N] written",)
    own = declared(call(x=tensor(16, 64), w=tensor(64, 32), c=tensor(16, 32, written=True)))
    assert own.calling.operands == ("c=fp16[M, N] updated",)


def test_a_matrix_that_is_always_column_major_is_given_transposed():
    w = tensor(64, 32, strides=(1, 64))
    own = declared(call(x=tensor(16, 64), w=w))
    assert own.calling.call == "linear(a, b.t())"
    assert own.calling.operands == ("b=fp16[N, K]",)
    padded = tensor(64, 32, strides=(40, 1))
    own = declared(call(x=tensor(16, 64), w=padded))
    assert "b had strides (40, 1) of (64, 32) in 1 call" in own.notes


def test_numbers_that_are_sizes_and_values_that_vary():
    given = [
        call(
            x=tensor(M, 64),
            w=tensor(64, 32),
            rows=str(M),
            K="64",
            alpha=alpha,
            flag=RecordedArgument("flag", None, "False", is_default=True),
            mode=RecordedArgument("mode", None, "'fast'", by_name=True),
        )
        for M, alpha in ((16, "1.0"), (48, "0.5"))
    ]
    own = declared(*given)
    call_text = "linear(a, b, a.shape[0], a.shape[1], alpha, mode='fast')"
    assert own.calling.call == call_text
    assert own.calling.operands == ("alpha=1.0|0.5",)


def test_parameters_with_reserved_names_are_renamed():
    given = {"x": tensor(16, 64), "w": tensor(64, 32), "b": tensor(32)}
    own = declared(call(**given))
    assert own.calling.call == "linear(a, b, b_)"
    assert own.calling.operands == ("b_=fp16[N]",)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kind": METHOD, "x": tensor(2, 2)}, "it is a method, whose object has a state"),
        ({"n": "3"}, "it is given no tensor"),
        ({"x": tensor(2, 2), "w": RecordedArgument("w", None, "", "a list of Tensor")},
         "w is a list of Tensor: declare a function of tensors that calls it"),
        ({"x": tensor(2, 2), "mask": tensor(2, fmt="")}, "mask has the dtype torch."),
        ({"x": tensor(2, 2, 2, 2)}, "x has 4 dimensions: declare a function of tensors of 3"),
        ({"x": tensor(2, 2), "offsets": tensor(4, fmt="int32", low=0, high=9, in_order=True)},
         "offsets has numbers in order, as offsets or ends of groups"),
    ],
)  # fmt: skip
def test_what_no_declaration_states_is_named_with_the_next_step(given, reason):
    own = declare_calls([call(**given)])
    assert own.calling is None
    assert own.reason.startswith(reason)


# -- formula -------------------------------------------------------------------------------------
CALLING = Calling("linear(a, b, bias)", ("b=fp16[N, K]", "bias=fp16[N]"), "a @ b.T + bias")
PARAMETERS = ("x", "w", "bias")


def test_a_formula_keeps_the_sizes_of_the_calls_and_what_it_is_not_for():
    calls = [linear(16, 32, 64), linear(33, 48, 64, bias=False)]
    own = add_formula(declare_calls(calls), calls, CALLING, "fp16", False, PARAMETERS)
    assert (own.calling, own.contract.formats) == (CALLING, ("fp16",))
    assert [str(own.contract.sizes(x)) for x in "MNK"] == ["16..33", "32..48:16", "64"]
    assert own.notes[-1] == (
        "bias was a tensor in 1 call, None in 1 call: the formula is for one of them"
    )


def test_a_formula_that_the_calls_contradict_is_dropped():
    calls = [call(x=tensor(16, 64), w=tensor(64, 32), bias=tensor(64))]
    with pytest.raises(Undeclared, match=r"needs w\[N, K\], a call had \(64, 32\)|needs bias\[N\]"):
        add_formula(declare_calls(calls), calls, CALLING, "fp16", False, PARAMETERS)

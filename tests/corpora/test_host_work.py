"""Wrappers that compute on the host are reported by operation and line; right ones are not."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import torch
from tests.corpora.host_work import cheating, right

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.kernel_check import check
from gemmproof.engine.observe import judge, observe_case
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.judges import host_results
from gemmproof.properties.kernel import KernelUnderTest, Operand

RAGGED, SMALL = Case(20, 18, 37, calls=3), Case(3, 2, 5, calls=3)
# wrappers that take further operands: these, and the formula
FURTHER = {
    cheating.low_rank_part_by_torch: (
        {"lora_a": Operand("fp16", ("K", 4)), "lora_b": Operand("fp16", (4, "N"))},
        lambda a, b, lora_a, lora_b: a @ b + a @ lora_a @ lora_b,
    ),
    right.bias_that_atomics_are_added_to: (
        {"bias": Operand("fp32", "N")},
        lambda a, b, bias: a @ b + bias,
    ),
    right.rows_that_no_kernel_stores: (
        {"bias": Operand("fp32", "N")},
        lambda a, b, bias: a * (np.arange(a.shape[0]) < a.shape[0] // 2)[:, None] @ b + bias,
    ),
    right.weights_of_a_router_by_torch: (
        {"gate": Operand("fp32", ("K", 2), values=lambda random, shape: np.zeros(shape))},
        lambda a, b, gate: (a @ b) * 0.5,
    ),
    right.low_rank_operand_by_torch: (
        {"lora_a": Operand("fp16", ("K", 4)), "lora_b": Operand("fp16", (4, "N"))},
        lambda a, b, lora_a, lora_b: a @ b + (a @ lora_a).to("fp16") @ lora_b,
    ),
    right.zero_point_corrected_by_torch: (
        {"zero": Operand("fp32", "N")},
        lambda a, b, zero: a @ b - a.sum(1)[:, None] * zero,
    ),
    right.bias_by_torch: ({"bias": Operand("fp32", "N")}, lambda a, b, bias: a @ b + bias),
    right.activation_by_torch: ({}, lambda a, b: np.maximum(a @ b, 0)),
    right.residual_and_scale_by_torch: (
        {"residual": Operand("fp32", ("M", "N"))},
        lambda a, b, residual: (a @ b) * 0.5 + residual,
    ),
}


def list_wrappers(module):
    functions = [f for _, f in inspect.getmembers(module, inspect.isfunction)]
    own = [f for f in functions if f.__module__ == module.__name__ and f.__name__[0] != "_"]
    return [f for f in own if [*inspect.signature(f).parameters][:2] == ["a", "b"]]


CHEATING, RIGHT = list_wrappers(cheating), list_wrappers(right)


def find_comments(wrapper, word):
    """Return the operations of the comments that begin with a word, each with its line."""
    lines, first = inspect.getsourcelines(wrapper)
    matches = ((first + i, re.search(rf"# {word} (\w+)$", line)) for i, line in enumerate(lines))
    name = inspect.getsourcefile(wrapper).rpartition("/")[2]
    return [(match[1], f"{name}:{line}") for line, match in matches if match]


def observe(wrapper, case=RAGGED, host_epilogue=()):
    operands, spec = FURTHER.get(wrapper, ({}, None))
    contract = Contract(host_epilogue=host_epilogue)
    kernel = KernelUnderTest(wrapper.__name__, wrapper, contract, operands=operands, spec=spec)
    return judge(observe_case(kernel, case, Simulator()))


def list_own(result):
    assert host_results.NAME in result.applied
    return [f for f in result.findings if f.property == host_results.NAME]


@pytest.mark.parametrize("wrapper", CHEATING, ids=lambda f: f.__name__)
def test_a_wrapper_that_computes_on_the_host_is_reported_with_its_line(wrapper):
    case = SMALL if wrapper in (cheating.loops_over_lists, cheating.filled_from_items) else RAGGED
    ((operation, line),) = find_comments(wrapper, "HOST")
    (finding,) = list_own(observe(wrapper, case))
    if operation == "earlier":
        message = "c is not written by this call, expected a new result"
        assert (finding.fault, finding.message) == ("earlier_result", message)
        return
    name = "Python" if operation == "python" else f"torch.{operation}"
    assert finding.where == line
    assert f"written by {name} at {line}, expected" in finding.message
    assert finding.fault in ("host_product", "host_formula")
    # a declared operation is not reported
    assert list_own(observe(wrapper, case, host_epilogue=(operation,))) == []


@pytest.mark.parametrize("wrapper", RIGHT, ids=lambda f: f.__name__)
def test_a_right_wrapper_is_not_accused(wrapper):
    result = observe(wrapper)
    assert list_own(result) == []
    assert [f.message for f in result.findings] == []
    expected = find_comments(wrapper, "EPILOGUE")
    assert result.epilogues == tuple(
        f"torch.{operation} at {line} takes part in c (--host-epilogue {operation})"
        for operation, line in expected
    )
    assert observe(wrapper, host_epilogue=tuple(name for name, _ in expected)).epilogues == ()


def test_the_verdict_line_names_an_epilogue_until_it_is_declared():
    def check_with(**fields):
        kernel = KernelUnderTest(
            "relu", right.activation_by_torch, Contract(**fields), spec=FURTHER[relu][1]
        )
        return check(kernel, max_examples=2)

    relu = right.activation_by_torch
    ((_, line),) = find_comments(relu, "EPILOGUE")
    report = check_with()
    assert (report.verdict, report.note) == (
        "pass",
        f"torch.relu at {line} takes part in c (--host-epilogue relu)",
    )
    assert check_with(host_epilogue=("relu",)).note is None


def test_an_empty_case_needs_no_kernel():
    def zeros_for_empty(a, b):
        return torch.mm(a, b) if 0 in (*a.shape, *b.shape) else right.plain(a, b)

    for sides in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        kernel = KernelUnderTest("f", zeros_for_empty, Contract(M="0..", N="0..", K="0.."))
        result = judge(observe_case(kernel, Case(*sides), Simulator()))
        assert host_results.NAME not in result.applied
        assert result.findings == ()


@pytest.mark.parametrize("names", ["add", ["add"], ("add.Tensor",), (1,)])
def test_a_contract_refuses_what_is_no_name_of_an_operation(names):
    with pytest.raises(ValueError, match=r"contract host_epilogue: got .*, expected a tuple of"):
        Contract(host_epilogue=names)


def test_there_are_enough_of_both():
    assert len(CHEATING) >= 22
    assert len([wrapper for wrapper in RIGHT if not find_comments(wrapper, "EPILOGUE")]) >= 18

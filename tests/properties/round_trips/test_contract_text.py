"""Contracts, conditions, operands and cases as text: what is written is read as the same."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.round_trips.record_strategies import contracts, sizes

from gemmproof import Contract
from gemmproof.cli import parser
from gemmproof.commands.groups import ContractOptions, contract_of
from gemmproof.commands.init import write_contract, write_value
from gemmproof.options import make_record, spell
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import (
    MAX_BATCH,
    MAX_SIDE,
    Sizes,
    evaluate_relation,
    holds,
    split,
)
from gemmproof.properties.kernel import READ, OneOf, Operand
from gemmproof.properties.proof import domain
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import eq, evaluate, own_atoms, symbol
from gemmproof.target import Target, read_operand

TARGET = Target("k.py", "matmul", is_file=True)
PARSER = parser()


def refuses(read, text):
    """Read a text; an error is a ValueError of one line. Return the value, or None."""
    try:
        return read(text)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    return None


# -- sizes ---------------------------------------------------------------------------------------
@given(sizes(), st.sampled_from([MAX_SIDE, MAX_BATCH]), st.lists(st.integers(0, MAX_SIDE)))
def test_sizes_are_read_as_they_are_written(declared, top, numbers):
    shown = [(str(declared), MAX_SIDE), (declared.write(top), top)]
    for text, most in shown if declared.high <= top else shown[:1]:
        read = Sizes.of(text, most)
        near = [n + i for n in (declared.low, declared.high, declared.step) for i in (-1, 0, 1)]
        assert [n in read for n in [*near, *numbers]] == [n in declared for n in [*near, *numbers]]
        assert (read.low, read.high) == (declared.low, declared.high)


@given(st.text("0123456789.:- x\n", max_size=9) | st.text(max_size=5))
def test_text_that_is_no_sizes_is_refused_in_one_line(text):
    declared = refuses(Sizes.of, text)
    if declared is not None:
        assert Sizes.of(str(declared)).low == declared.low


# -- contracts -----------------------------------------------------------------------------------
@settings(max_examples=30)
@given(contracts())
def test_a_contract_is_read_from_json_and_from_python(contract):
    assert Contract.from_dict(json.loads(json.dumps(contract.to_dict()))) == contract
    written = eval(f"Contract({write_contract(contract)})")
    assert written == contract


@settings(max_examples=30)
@given(contracts(has_options=True))
def test_a_contract_is_read_from_the_options_that_declare_it(contract):
    fields = contract.to_dict()
    options = ContractOptions(
        dtype=contract.formats,
        sizes=tuple((axis, str(fields[axis])) for axis in ("M", "N", "K", "batch")),
        where=contract.where,
        layouts=contract.layouts,
        huge=contract.huge,
        batched=contract.batched,
        accumulator=contract.accumulator,
        out_dtype=contract.out,
        any_order=not contract.deterministic,
        batch_invariant=contract.batch_invariant,
        tensor_cores=contract.tensor_cores,
        spills=contract.spills,
        fits=contract.fits,
        host_epilogue=contract.host_epilogue,
    )
    typed = PARSER.parse_args(["check", "k.py:matmul", *spell(options)])
    read = contract_of(make_record(ContractOptions, vars(typed)), TARGET, None, contract.expected)
    assert read == contract


def test_a_contract_with_an_unknown_field_is_refused():
    with pytest.raises(ValueError, match="contract: got field 'm', expected fields formats M N K"):
        Contract.from_dict({"m": "1.."})


# -- conditions ----------------------------------------------------------------------------------
NUMBERS = st.integers(-9, 200).map(str) | st.sampled_from(["M", "N", "K", "batch"])
BINARY = st.sampled_from(["+", "-", "*", "//", "%"])
COMPARED = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


def nest(parts):
    return (
        st.tuples(parts, BINARY, parts).map("({0[0]} {0[1]} {0[2]})".format)
        | parts.map("(-{})".format)
        | st.tuples(parts, COMPARED, parts).map("({0[0]} {0[1]} {0[2]})".format)
        | st.tuples(parts, COMPARED, parts, COMPARED, parts).map(
            "({0[0]} {0[1]} {0[2]} {0[3]} {0[4]})".format
        )
        | st.tuples(parts, st.sampled_from(["and", "or"]), parts).map(
            "({0[0]} {0[1]} {0[2]})".format
        )
        | parts.map("(not {})".format)
        | st.tuples(parts, BINARY, parts).map("{0[0]} {0[1]} {0[2]}".format)
    )


CONDITIONS = st.recursive(NUMBERS, nest, max_leaves=8)
SIDES = st.fixed_dictionaries({axis: st.integers(0, 300) for axis in ("M", "N", "K", "batch")})


@settings(max_examples=200)
@given(CONDITIONS, SIDES)
def test_a_condition_means_what_it_means_in_python(text, sides):
    try:
        expected = eval(text, {}, dict(sides))
    except ZeroDivisionError:
        holds(text, sides)
        return
    assert holds(text, sides) == bool(expected)
    assert all(holds(part, sides) for part in split(text)) == bool(expected)
    assert bool(evaluate_relation(text, sides)) == bool(expected)


@settings(max_examples=100)
@given(CONDITIONS, SIDES)
@example("K % N == 0", {"M": 1, "N": 0, "K": 5, "batch": 1})
@example("M == (N or K)", {"M": 5, "N": 0, "K": 5, "batch": 1})
def test_the_solver_reads_a_condition_as_the_contract_does(text, sides):
    """A division by 0 gives 0 in both."""
    with own_atoms():
        symbols = {axis: symbol(axis, is_natural=True) for axis in sides}
        values = {x.atom: sides[axis] for axis, x in symbols.items()}
        cond, number = domain._relate(text, symbols), domain._evaluate(text, symbols)
        assert evaluate(cond, values) == holds(text, sides)
        assert evaluate(number, values) == evaluate_relation(text, sides)
        fixed = [eq(x, sides[axis]) for axis, x in symbols.items()]
        wrong = ~cond if holds(text, sides) else cond
        assert Solver().follows(wrong, *fixed) != YES


TOKENS = st.lists(
    st.sampled_from(
        [*"MNK()[]{}.,:=!<>+-*/%~@\"'\\# \n", "and", "not", "lambda", "10**9", "if", "M"]
    )
)


@settings(max_examples=200)
@given(TOKENS.map("".join) | TOKENS.map(" ".join) | st.text(max_size=9) | CONDITIONS, SIDES)
def test_text_that_is_no_condition_is_refused_in_one_line(text, sides):
    refuses(lambda text: holds(text, sides), text)
    refuses(lambda text: evaluate_relation(text, sides), text)
    refuses(lambda text: Contract(M=1, N=1, K=1, where=text), text)


# -- operands ------------------------------------------------------------------------------------
AXES = st.sampled_from(["M", "N", "K", "K // 128", "(M + 15) // 16", "batch"]) | st.integers(0, 99)
STORED = [name for name, fmt in FORMATS.items() if fmt.stored is fmt]
VALUES = st.none() | st.integers() | st.booleans() | st.text("ab'\" ", max_size=4)
CHOICES = st.lists(VALUES, min_size=1, max_size=3, unique_by=repr).map(lambda x: OneOf(*x))


@st.composite
def tensors(draw):
    fmt, use = draw(st.sampled_from(STORED)), draw(st.sampled_from(["read", "written", "updated"]))
    whole = FORMATS[fmt].kind == "int"
    shape = draw(st.lists(AXES, min_size=0, max_size=3).map(tuple))
    low, high = sorted(draw(st.tuples(*[st.integers(0, 100)] * 2)))
    return Operand(
        fmt,
        shape[0] if len(shape) == 1 else shape,
        values=(low, high) if whole and draw(st.booleans()) else None,
        use=use,
        optional=use == READ and draw(st.booleans()),
        layouts=draw(st.sampled_from(["any", "contiguous"])),
    )


def write_operand(name, operand):
    """Return the text of --operand, as the help describes it."""
    if isinstance(operand, OneOf):
        return f"{name}={'|'.join(operand.names)}"
    parts = [f"{name}={operand.format}[{', '.join(map(str, operand.axes))}]"]
    parts += ["..".join(map(str, operand.values))] if operand.values else []
    parts += [operand.use] * (operand.use != READ) + ["optional"] * operand.optional
    return " ".join([*parts, *(["any"] if operand.layouts == "any" else [])])


@settings(max_examples=200)
@given(tensors() | CHOICES)
def test_an_operand_is_read_as_it_is_written(operand):
    assert read_operand(write_operand("x", operand)) == ("x", operand)
    assert eval(write_value(operand)) == operand


@settings(max_examples=200)
@given(st.text("x=fp16[MNK, ]0..7|'\"-writenoal\n", max_size=24) | st.text(max_size=9))
def test_text_that_is_no_operand_is_refused_in_one_line(text):
    refuses(read_operand, text)


# -- cases ---------------------------------------------------------------------------------------
@settings(max_examples=200)
@given(TOKENS.map("".join) | st.text(max_size=9), st.data())
def test_text_that_is_no_case_is_refused_in_one_line(text, data):
    whole = '{"M":1,"N":2,"K":3,"dtype":"fp16","a":"padded","arguments":{"x":"1"}}'
    cut = data.draw(st.integers(0, len(whole)))
    other = whole.replace(data.draw(st.sampled_from(['{"x":"1"}', '"1"', "1", '"padded"'])), "[1]")
    for changed in (text, whole[:cut] + text + whole[cut:], whole[:cut], other):
        case = refuses(Case.from_json, changed)
        assert case is None or Case.from_json(case.to_json()) == case

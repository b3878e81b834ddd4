"""The fused units agree with their definition in exact integers, and every parameter shows."""

import itertools
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from tests.support.dot_oracle import STYLES, fused_chain, problem, read, same_bits
from tests.support.lanes import first_of_each

from gemmproof.reference.arithmetic import bits
from gemmproof.reference.dot import dot_model, tensor_core
from gemmproof.reference.formats import FORMATS, FP8
from gemmproof.reference.gpus import GPUS


def every_fused_model():
    """All models of the table made of fused steps, emulations apart, with mixed fp8 pairs."""
    names = ("fp16", "bf16", "tf32", *FP8, FP8)
    for gpu, name, acc in itertools.product(GPUS.values(), names, ("fp32", "fp16")):
        for core in gpu.cores:
            with suppress(ValueError):
                model = dot_model(gpu.name, name, acc, core.instruction)
                if model.unit.kind == "fused" and not model.part:
                    yield model


MODELS = list(every_fused_model())
# one of each unit is in the default lane
EACH = first_of_each(((model,) for model in MODELS), lambda row: row[0].unit)


def label(model):
    return "-".join(
        (model.target, model.instruction, model.a_format, model.b_format, model.acc_format)
    )


def formats(model):
    return FORMATS[model.a_format], FORMATS[model.b_format], FORMATS[model.acc_format]


def test_the_table_is_complete():
    assert len(MODELS) == 60


@pytest.mark.parametrize("model", EACH, ids=label)
def test_units_agree_with_exact_integers(model):
    fmts = formats(model)
    for seed, style in enumerate(STYLES):
        rng = np.random.default_rng(seed)
        K = model.unit.L + model.unit.L // 2
        a, b, acc = problem(rng, 14, 14, K, *fmts, style)
        expected = fused_chain(
            read(a, model.a_format), read(b, model.b_format), read(acc, ""), model.unit, *fmts
        )
        assert same_bits(model.dot(a, b, acc), expected, model.acc_format).all(), style


@pytest.mark.parametrize("model", EACH, ids=label)
def test_symmetries_of_the_unit(model):
    """Negation, transposition, zero k, permutation within a step; no permutation of steps."""
    rng = np.random.default_rng(3)
    L = model.unit.L
    a, b, acc = problem(rng, 16, 16, 4 * L, *formats(model), "window")
    got = model.dot(a, b, acc)
    minus = model.dot(-a, b, -acc)
    assert np.array_equal(minus, -got)
    if model.a_format == model.b_format:
        turned = model.dot(b.T, a.T, acc.T).T
        assert np.array_equal(bits(np.ascontiguousarray(turned)), bits(got))
    zeros = np.zeros((16, L + 1), a.dtype)
    longer = model.dot(np.hstack([a, zeros]), np.vstack([b, zeros.T.astype(b.dtype)]), acc)
    assert np.array_equal(bits(longer), bits(got))
    within = np.concatenate([rng.permutation(L) + k for k in range(0, 4 * L, L)])
    assert np.array_equal(bits(model.dot(a[:, within], b[within], acc)), bits(got))
    across = np.roll(np.arange(4 * L), L)
    assert not np.array_equal(bits(model.dot(a[:, across], b[across], acc)), bits(got))
    rows = rng.permutation(16)
    assert np.array_equal(bits(model.dot(a[rows[:3]], b, acc[rows[:3]])), bits(got)[rows[:3]])


@pytest.mark.parametrize("acc_name", ["fp32", "fp16"])
def test_slabs_and_chunks_are_invisible(acc_name, monkeypatch):
    model = dot_model("sm_90", "fp16", acc_name)
    fmts = formats(model)
    for style in ("normal", "huge"):
        a, b, acc = problem(np.random.default_rng(8), 40, 24, 1400, *fmts, style)
        whole = model.dot(a, b, acc)
        with monkeypatch.context() as patch:
            patch.setattr(tensor_core, "_FDPA_CHUNK", 100)
            patch.setattr(tensor_core, "_SLAB", 48)
            assert np.array_equal(bits(model.dot(a, b, acc)), bits(whole))


def mutants(unit):
    """The unit with one parameter changed, by the parameter's name."""
    return {
        "F - 1": replace(unit, F=unit.F - 1),
        "F + 1": replace(unit, F=unit.F + 1),
        "half L": replace(unit, L=unit.L // 2),
        "twice L": replace(unit, L=2 * unit.L),
        "rounding": replace(unit, rounding={"rz": "rne", "rne": "rz"}[unit.rounding]),
        "e_zero - 1": replace(unit, e_zero=unit.e_zero - 1),
        "e_zero + 1": replace(unit, e_zero=unit.e_zero + 1),
        "fraction - 1": replace(unit, rounding="rz", fraction=unit.fraction - 1),
    }


@pytest.mark.parametrize("model", EACH, ids=label)
def test_every_parameter_shows_in_the_bits(model):
    fmts = formats(model)
    rng = np.random.default_rng(11)
    K = 4 * model.unit.L
    problems = [problem(rng, 64, 64, K, *fmts, style) for style in ("window", "tiny", "cancel")]
    tie = 8 if model.acc_format == "fp16" else 0
    problems.append(tie_breakers(model, K, tie, tie - fmts[2].p))
    lowest = fmts[2].emin - fmts[2].p + 1
    problems.append(tie_breakers(model, K, lowest, lowest - 1))
    results = [bits(model.dot(*p)) for p in problems]
    survivors = {
        name
        for name, unit in mutants(model.unit).items()
        if all(
            np.array_equal(bits(replace(model, unit=unit).dot(*p)), r)
            for p, r in zip(problems, results, strict=True)
        )
    }
    # e_zero shows where products reach below the last bit that it keeps
    last_bit = 2.0 ** (model.unit.e_zero - model.unit.F)
    floor_shows = fmts[0].eta * fmts[1].eta < last_bit
    assert survivors == (set() if floor_shows else {"e_zero - 1", "e_zero + 1"})


def tie_breakers(model, K, top, half):
    """Rows 2**top + 2**half +- 2**s for all s that the operands can form, without 2**half for RZ.

    The last term tips a rounding to nearest off a tie, and a cut off a value that is just held.
    """
    a_fmt, b_fmt, acc_fmt = formats(model)
    lowest = max(a_fmt.emin - a_fmt.p + 1, -100)
    tips = [s for s in range(max(2 * lowest, half - 40), half) if s - lowest <= a_fmt.emax]
    a, b = np.zeros((2 * len(tips), K)), np.zeros((K, 1))
    for k, exponent in ((0, top), (1, half)):
        b[k] = 2.0 ** (exponent // 2)
        a[:, k] = 2.0 ** (exponent - exponent // 2)
    b[2] = 2.0**lowest
    a[:, 2] = [sign * 2.0 ** (s - lowest) for sign in (1, -1) for s in tips]
    if acc_fmt.name == "fp32":
        a[:, 1] = 0
    acc = np.zeros((len(a), 1), acc_fmt.storage)
    return a.astype(a_fmt.storage), b.astype(b_fmt.storage), acc

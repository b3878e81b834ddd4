"""The units against two outside witnesses: outputs of real GPUs, and mmasim on raw bits."""

import ast
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.support.dot_oracle import operand

from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.reference.arithmetic import bits, round_to
from gemmproof.reference.dot import dot_model
from gemmproof.reference.formats import FORMATS

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "recordings"
FILES = sorted(GOLDEN.glob("*.npz"))
TARGET_OF = {
    "V100": "sm_70",
    "A100": "sm_80",
    "A2": "sm_86",
    "Ada": "sm_89",
    "L40S": "sm_89",
    "H100": "sm_90",
    "H200": "sm_90",
    "B200": "sm_100",
}
RECORDED = {"fp16": "fp16", "bf16": "bf16", "tf32": "tf32", "e4m3": "fp8e4m3", "e5m2": "fp8e5m2"}

# (target, instruction, format, acc, {k: (a, b)}, c, the result), worked out by hand.
BY_HAND = [
    # chopped at F fraction bits below 2: sm_90 keeps 2**-24 of 1 + 2**-24 - 1, sm_70 does not
    ("sm_90", "mma", "fp16", "fp32", {0: (1, 1), 1: (-1, 1), 2: (2**-12, 2**-13)}, 0, 2**-25),
    ("sm_80", "mma", "fp16", "fp32", {0: (1, 1), 1: (-1, 1), 2: (2**-12, 2**-12)}, 0, 2**-24),
    ("sm_80", "mma", "fp16", "fp32", {0: (1, 1), 1: (-1, 1), 2: (2**-12, 2**-13)}, 0, 0),
    ("sm_70", "mma", "fp16", "fp32", {0: (1, 1), 1: (-1, 1), 2: (2**-12, 2**-12)}, 0, 0),
    # toward zero in both places, with either sign
    ("sm_90", "wgmma", "bf16", "fp32", {0: (1.5 * 2**-12, 2**-12)}, 1, 1),
    ("sm_90", "wgmma", "bf16", "fp32", {0: (-(2**-12), 2**-12)}, 1, 1 - 2**-24),
    ("sm_90", "wgmma", "bf16", "fp32", {0: (-1, 1), 1: (2**-13, -(2**-11))}, 0, -1),
    # the significand of a product may reach 4: exponent 14, then 15
    ("sm_90", "mma", "fp16", "fp32", {0: (192, 192), 1: (-192, 192), 2: (2**-6, 2**-5)}, 0, 2**-11),
    ("sm_90", "mma", "fp16", "fp32", {0: (288, 128), 1: (-288, 128), 2: (2**-6, 2**-5)}, 0, 0),
    # a zero product raises no exponent
    ("sm_90", "mma", "bf16", "fp32", {0: (0, 2.0**127), 1: (2**-30, 1)}, 0, 2**-30),
    # fp8 wgmma cuts the accumulator to 13 bits, the upcast one and Blackwell do not
    ("sm_90", "wgmma", "fp8e4m3", "fp32", {}, 1 + 2**-13 + 2**-14, 1 + 2**-13),
    ("sm_89", "mma", "fp8e4m3", "fp32", {}, -(1 + 2**-14), -1),
    ("sm_100", "tcgen05", "fp8e4m3", "fp32", {}, 1 + 2**-23, 1 + 2**-23),
    ("sm_100", "mma", "fp8e4m3", "fp32", {0: (1, 1)}, 2**24, 2**24),
    # an fp16 accumulator rounds to nearest even and sticks
    ("sm_90", "wgmma", "fp16", "fp16", {0: (1, 1)}, 2048, 2048),
    ("sm_90", "wgmma", "fp16", "fp16", {0: (1, 1)}, 2050, 2052),
    ("sm_90", "wgmma", "fp16", "fp16", {0: (2.0**10, 2.0**6)}, 0, np.inf),
    # tf32 operands are cut
    ("sm_90", "wgmma", "tf32", "fp32", {0: (1 + 2**-11, 1)}, 0, 1),
    # never a negative zero; sums past fp32 live inside a step only
    ("sm_90", "wgmma", "bf16", "fp32", {0: (-0.0, 1)}, -0.0, 0),
    ("sm_90", "mma", "bf16", "fp32", {0: (2.0**100, 2.0**100), 1: (-(2.0**100), 2.0**100)}, 1, 0),
    ("sm_90", "mma", "bf16", "fp32", {0: (2.0**64, 2.0**64)}, 0, np.inf),
]


# Without the recordings, which are not part of the project, the hand-made results remain.
SOURCES = [*FILES, Path("by hand")]


def work_by_hand():
    for target, instruction, name, acc, entries, c, d in BY_HAND:
        fmt, acc_fmt = FORMATS[name], FORMATS[acc]
        a, b = np.zeros((1, 1, 16), fmt.storage), np.zeros((1, 16, 1), fmt.storage)
        for k, (x, y) in entries.items():
            a[0, 0, k], b[0, k, 0] = x, y
        acc_array = np.full((1, 1, 1), c, acc_fmt.storage)
        model = dot_model(target, name, acc, instruction)
        yield f"{target} {entries}", model, a, b, acc_array, np.array([d], np.float32)


def read_recording(path):
    """(key, model, a, b, c, d) for each kind of result in a file."""
    data = np.load(path)
    target = TARGET_OF[path.stem]
    for key in data.files:
        if "_d_" not in key:
            continue
        short, acc = key.split("_d_")
        # recorded through wgmma without an addend; the other fp8 results through mma.sync
        through_wgmma = target == "sm_90" and short in ("e4m3", "e5m2") and acc == "fp32"
        name = RECORDED[short]
        model = dot_model(target, name, acc, "wgmma" if through_wgmma else "mma")
        a, b = (data[f"{short}_{x}"].view(FORMATS[name].storage) for x in "ab")
        c = data[f"{short}_c"].view(np.float32)
        c = np.zeros_like(c) if through_wgmma else c
        d = data[key].view(np.float32)
        yield key, model, a[:, None, :], b[:, :, None], round_to(c, acc)[:, None, None], d


def results(source):
    return list(read_recording(source) if source in FILES else work_by_hand())


def differs(model, a, b, c, d):
    got = model.dot(a, b, c).reshape(-1).astype(np.float32)
    return bits(got) != bits(d)


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_recorded_outputs_are_reproduced(source):
    seen = 0
    for key, *problem in results(source):
        assert not differs(*problem).any(), key
        seen += problem[-1].size
    files = {"V100": 10000, "A100": 20000, "A2": 20000, "L40S": 30000, "by hand": len(BY_HAND)}
    assert seen == files.get(source.stem, 40000)


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_recorded_outputs_tell_the_units_apart(source):
    killed = set()
    for key, model, *problem in results(source):
        for name, mutant in mutants(model).items():
            if differs(mutant, *problem).any():
                killed.add((key if source in FILES else "by hand", name))
    expected = set()
    for key, model, *_ in results(source):
        if source in FILES:
            expected |= {(key, name) for name in mutants(model)}
    if source not in FILES:
        expected = {("by hand", name) for name in ("F - 1", "F + 1", "rounding")}
    assert killed >= expected


def mutants(model):
    """Changes that the recordings must show; F is out of their sight with an fp16 accumulator,
    and the order of the emulation with an fp32 one."""
    if model.part:
        changed = {"part": replace(model, part=0)}
        if model.acc_format == "fp16":
            changed["order"] = replace(model, order=())
        return changed
    unit = model.unit
    units = {"rounding": replace(unit, rounding="rz" if unit.rounding == "rne" else "rne")}
    if model.acc_format == "fp32":
        units |= {"F - 1": replace(unit, F=unit.F - 1), "F + 1": replace(unit, F=unit.F + 1)}
    return {name: replace(model, unit=u) for name, u in units.items()}


def mmasim_table():
    """The parameter tables of mmasim's PTX simulator, read without running its compiler."""
    spec = find_spec("mmasim")
    tree = ast.parse((Path(spec.origin).parent / "nv_ptx" / "sim.py").read_text())
    values = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            source = compile(ast.Expression(node.value), "sim.py", "eval")
            values[node.targets[0].id] = eval(source, {"__builtins__": {}})
    return values


ARCHITECTURES = {
    "sm_70": "Volta",
    "sm_75": "Turing",
    "sm_80": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_90": "Hopper",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}


@pytest.mark.parametrize("target", ARCHITECTURES)
def test_table_agrees_with_mmasim(target):
    table = mmasim_table()
    arch = ARCHITECTURES[target]
    single, half = (dot_model(target, "fp16", acc, "mma").unit for acc in ("fp32", "fp16"))
    assert single.F == half.F == table["_mma_F_bits"][arch]
    assert 2 * single.L == 2 * half.L == table["_mma_L_max_bytes"][arch]
    assert single.e_zero == table["_mma_e_zero_for_fp32"][arch]
    assert half.e_zero == table["_mma_e_zero_for_fp16"][arch]


RAW = [
    ("sm_70", "mma", "fp16", "fp32"),
    ("sm_75", "mma", "fp16", "fp16"),
    ("sm_80", "mma", "bf16", "fp32"),
    ("sm_80", "mma", "tf32", "fp32"),
    ("sm_89", "mma", "fp8e4m3", "fp32"),
    ("sm_89", "mma", "fp8e5m2", "fp16"),
    ("sm_90", "wgmma", "fp16", "fp32"),
    ("sm_90", "wgmma", "fp16", "fp16"),
    ("sm_90", "wgmma", "bf16", "fp32"),
    ("sm_90", "wgmma", "tf32", "fp32"),
    ("sm_90", "wgmma", "fp8e4m3", "fp32"),
    ("sm_90", "wgmma", "fp8e5m2", "fp32"),
    ("sm_100", "tcgen05", "fp8e5m2", "fp32"),
    ("sm_120", "mma", "fp8e4m3", "fp16"),
]


@pytest.mark.parametrize("case", RAW, ids="-".join)
@pytest.mark.parametrize("share", [1.0, 0.04], ids=["all-raw", "some-raw"])
def test_raw_bits_agree_with_mmasim(case, share):
    from mmasim.arithmetic.fdpa import MMA_T_FDPA

    target, instruction, name, acc = case
    model = dot_model(target, name, acc, instruction)
    unit, fmt, acc_fmt = model.unit, FORMATS[name], FORMATS[acc]
    rng = np.random.default_rng(23)
    n, K = 3000, 2 * unit.L
    arrays = []
    for shape, f in (((n, K), fmt), ((n, K), fmt), ((n,), acc_fmt)):
        x = operand(rng, shape, f, "raw")
        arrays.append(np.where(rng.random(shape) < share, x, operand(rng, shape, f, "window")))
    a, b, c = arrays
    rho = "RNE-FP16" if acc == "fp16" else "RZ-E8M13" if unit.fraction == 13 else "RZ-FP32"
    witness = MMA_T_FDPA(unit.F, rho, unit.L, unit.e_zero, "", "")
    expected = witness.dpa(as_tensor(a, name), as_tensor(b, name), as_tensor(c, acc))
    got = model.dot(a[:, None, :], b[:, :, None], c[:, None, None]).reshape(-1)
    assert np.array_equal(bits(got), bits(as_array(expected)))

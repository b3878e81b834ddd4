"""Right and wrong ways to compute a spec in fp32, judged by its bound."""

import numpy as np

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.spec import Rules, evaluate

F = np.float32
NAMES = {f.storage: f.name for f in FORMATS.values() if f.stored is f}


def run(spec, rules=None, **given):
    """The only result of a spec."""
    (result,) = evaluate(spec, given, rules or Rules())
    return result


def fp32(*values):
    return np.array(values, F), "fp32"


def fp16(x):
    return np.array(x, np.float16), "fp16"


def judge(spec, given, right, wrong, rules=None):
    """Every right way is within the bound of every element, every wrong one beyond it somewhere."""
    operands = {
        n: (x, NAMES[x.dtype]) if isinstance(x, np.ndarray) else x for n, x in given.items()
    }
    c = run(spec, rules or Rules("sm_90"), **operands)
    assert c.known.all()
    for way in right:
        with np.errstate(over="ignore"):
            off = np.abs(widen(np.asarray(way(**given), F)) - c.value)
        assert (off <= c.bound).all(), (off / c.bound).max()
    for way in wrong:
        assert (np.abs(widen(np.asarray(way(**given), F)) - c.value) > c.bound).any()


def floats(rng, name, *shape):
    return round_to(rng.standard_normal(shape), name)


def scales(rng, *shape):
    return np.exp2(rng.uniform(-3, 3, shape)).astype(F)


def dot(a, b, step=1):
    """fp32 sums over ascending k, or descending for step -1."""
    a, b = a.astype(F), b.astype(F)
    acc = np.zeros((*a.shape[:-1], b.shape[-1]), F)
    for k in range(a.shape[-1])[::step]:
        acc = acc + a[..., k, None] * b[..., k, None, :]
    return acc

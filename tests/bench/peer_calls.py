"""A peer called as a leg calls it, and its result beside a formula."""

from __future__ import annotations

import numpy as np

from gemmproof import Contract, KernelUnderTest
from gemmproof.bench.formula.stated import Stated, to_storage
from gemmproof.bench.legs import make_leg
from gemmproof.bench.peers.registry import make_peer
from gemmproof.bench.problems import Problem
from gemmproof.bench.records import EAGER
from gemmproof.properties.cases.tensors import TORCH_DTYPES
from gemmproof.properties.values import judge_stored
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.spec import Rules, evaluate

FORMAT_OF = {TORCH_DTYPES[name]: name for name in ("bf16", "fp8e4m3", "fp32")}
SMALL = Problem(48, 32, 128)


def call(name, operands, fmt="bf16", out=None, problem=SMALL):
    """The peer, the set that it was made for, and its result on data that came after it."""
    kernel = KernelUnderTest(
        "k", print, Contract(formats=(fmt,)), operands=operands, spec=lambda a, b: a @ b
    )
    stated = Stated(kernel, problem, FORMATS[fmt])
    out = FORMATS[out or fmt]
    buffers = stated.make("cpu")
    stated.fill(buffers, 0)
    peer = make_peer(name, stated, out)
    leg = make_leg(peer, [buffers], problem.shapes[2], out, "here", Eager())
    stated.fill(buffers, 1)
    leg.refresh()
    leg.run(EAGER)()
    (made,) = leg.results(EAGER)
    return peer, buffers, made


class Eager:
    """A device that captures nothing."""

    def warm(self, body):
        body()

    def capture(self, body):
        raise RuntimeError("no graphs")


def exact(x):
    return x.float().double() if x.is_floating_point() else x.double()


def differs(made, spec, **tensors) -> float:
    """The share of elements that are not what a formula gives, within the bound that it has."""
    given = {name: (to_storage(x), FORMAT_OF[x.dtype]) for name, x in tensors.items()}
    (c,) = evaluate(spec, given, Rules())
    wrong, bound = judge_stored(to_storage(made), c, FORMATS[FORMAT_OF[made.dtype]])
    assert np.isfinite(bound).all()
    return wrong.mean()

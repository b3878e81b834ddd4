"""A traced wrapper has the launches of a real call, for sizes drawn at random."""

import random

import pytest
import torch
from tests.corpora.no_false_alarm import splitting, wrapping
from tests.corpora.no_false_alarm.table import KERNELS, LANES
from tests.reference.symbolic.symbolic_sizes import BATCH, STEPS, K, M, N, operands, trace
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.formats import FORMATS
from gemmproof.reference.simulator import launch as simulated
from gemmproof.reference.simulator.call import run
from gemmproof.reference.symbolic.terms import Poly, evaluate, walk
from gemmproof.reference.symbolic.tracing.trace import HostDescriptor, TensorView

DRAWS, MOST_PATHS = 8, 24
# why the wrapper cannot be traced, or is not for the drawn sizes
REFUSED = {
    "long_k_in_chunks": ("K is a size, made a number here",),
    "tokens_sorted_by_expert": (
        "floordiv(1 + M, 2) is a size, made a number here",
        "elements of a tensor are read on the host",  # where M is 0
    ),
}


def forgetful(wrapper):
    """A wrapper without the tensors that it keeps from call to call."""

    def call(*tensors):
        splitting._TURNS.clear()
        wrapping._SCRATCH.clear()
        return wrapper(*tensors)

    return call


def leaves(name, value):
    """A launch argument's items by the names that a trace gives them."""
    if isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from leaves(f"{name}[{i}]", item)
        return
    yield name, value
    if isinstance(value, TensorDescriptor):
        yield from leaves(f"{name}.shape", list(value.shape))
        yield from leaves(f"{name}.strides", list(value.strides))


def launch(wrapper, tensors, monkeypatch):
    """Return the launches of a call: (kernel, grid, arguments and constants by name)."""
    seen = []
    original = simulated._launch

    def note(session, kernel, grid, args):
        named = zip(kernel.src.fn.arg_names, args, strict=True)
        given = {n: x for name, value in named for n, x in leaves(name, value)}
        shown = {
            name: (tuple(x.shape), x.stride(), x.storage_offset())
            if isinstance(x, torch.Tensor)
            else x
            for name, x in given.items()
        }
        seen.append((kernel.name, tuple(grid), shown))
        original(session, kernel, grid, args)

    with monkeypatch.context() as patch:
        patch.setattr(simulated, "_launch", note)
        run(wrapper, *tensors.values(), operands=tensors)
    return seen


def draw(rng, declared, dtype):
    """Sizes and strides, and the operands that have them."""
    values = {x.atom: rng.choice((1, rng.randint(1, 40), 16, 32)) for x in (M, N, K)}
    values[BATCH.atom] = rng.randint(1, 2)
    for name, (rows, columns) in (("a", (M, K)), ("b", (K, N))):
        inner, outer = rng.choice((("row", "column"), ("column", "row")))
        sides = {"row": values[rows.atom], "column": values[columns.atom]}
        steps = {inner: 1, outer: sides[inner] + rng.choice((0, 0, 8))}
        letters = {
            "row": name + rows.atom.args[0].lower(),
            "column": name + columns.atom.args[0].lower(),
        }
        for side, letter in letters.items():
            values[STEPS[letter].atom] = steps[side]
        values[STEPS[name + "b"].atom] = steps[outer] * sides[outer] + 8
    tensors = {}
    for name, x in declared.items():
        shape, strides = ([int(evaluate(n, values)) for n in part] for part in (x.shape, x.strides))
        tensors[name] = torch.empty_strided(shape, strides, dtype=dtype)
        tensors[name].view(torch.uint8 if dtype.itemsize == 1 else dtype).zero_()
    return values, tensors


def holds(cond, values):
    """Return whether a condition holds; memory lies at aligned addresses."""
    addresses = {atom: 2**12 for atom in walk(cond) if str(atom).startswith("address")}
    return bool(evaluate(cond, {**addresses, **values}))


def assert_same(path, seen, values):
    assert [x.kernel for x in path.launches] == [name for name, _, _ in seen]
    for traced, (_, grid, given) in zip(path.launches, seen, strict=True):
        at = lambda x: int(evaluate(x, values))  # noqa: E731
        assert tuple(map(at, traced.grid)) == grid
        for name, x in zip(traced.parameters, traced.arguments, strict=True):
            if isinstance(x, TensorView):
                view = tuple(map(at, x.shape)), tuple(map(at, x.strides)), at(x.offset)
                assert view == given[name], name
            elif isinstance(x, HostDescriptor):
                assert tuple(map(at, x.shape)) == tuple(given[name].shape)
            elif isinstance(x, Poly):
                assert at(x) == given[name], name
            else:
                assert x == given[name]
        for name, x in traced.constants.items():
            if isinstance(x, int | bool | float | str):
                assert getattr(given[name], "value", given[name]) == x, name


@pytest.mark.parametrize(
    "kernel", [pytest.param(k, id=k.name, marks=pytest.mark.lane(LANES[k.name])) for k in KERNELS]
)
def test_a_trace_launches_what_a_call_does(kernel, monkeypatch):
    contract, wrapper = kernel.contract, forgetful(kernel.launch)
    dtype = getattr(torch, FORMATS[contract.formats[0]].dtype)
    declared = operands(dtype, batched=contract.batched)
    traced = trace(wrapper, given=declared, most_paths=MOST_PATHS)
    reasons = {path.failed.message for path in traced.paths if path.failed}
    if kernel.name in REFUSED:
        assert reasons
        assert all(any(x in reason for x in REFUSED[kernel.name]) for reason in reasons)
        return
    assert reasons == set()
    rng, compared = random.Random(kernel.name), 0
    for _ in range(DRAWS):
        values, tensors = draw(rng, declared, dtype)
        matches = [path for path in traced.paths if holds(path.condition, values)]
        if not matches:
            assert any(holds(x.condition, values) for x in traced.unvisited)
            continue
        assert len(matches) == 1
        assert_same(matches[0], launch(wrapper, tensors, monkeypatch), values)
        compared += 1
    assert compared >= DRAWS // 4

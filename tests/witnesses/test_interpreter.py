"""The simulator against Triton's interpreter: the same accesses, lane by lane, the same results."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.interpreter_process import start_interpreter
from tests.support.lanes import first_of_each
from tests.support.simulator_cases import LAYOUTS, Case, operands_of
from tests.support.simulator_kernels import WRAPPERS, multiply

from gemmproof.reference.arithmetic import format_of
from gemmproof.reference.bounds import exact_product, gemm_bound
from gemmproof.reference.dot import dot_model
from gemmproof.reference.simulator import run

EXAMPLES = 26  # for each of eight kernels: 208 cases
SIDES = st.sampled_from((1, 2, 15, 16, 17, 31, 32, 33, 40))
seen: Counter[str] = Counter()


@pytest.fixture(scope="module")
def interpreter():
    with start_interpreter() as call:
        yield call


def by_program(touches, homes):
    """Touches as pid -> list of (kind, storage, byte offsets, mask, other), in program order."""
    programs = {}
    for pid, kind, address, lanes, other in touches:
        live = address[lanes]
        if live.size:
            storage = max((h for h in homes if h <= live.min()), default=0)
            entry = (kind, homes.index(storage), address - storage, lanes, other)
        else:  # no lane is active: which tensor lies below its addresses depends on the allocator
            entry = (kind, -1, address - address[0], lanes, other)
        entries = programs.setdefault(pid, [])
        if entries and kind == "atomic" and same(entries[-1], entry):
            continue  # a waiting program polls the lock again; Triton's programs never wait
        entries.append(entry)
    return programs


def same(x, y):
    """Return whether two touches are equal in every lane."""
    return x[:2] == y[:2] and all(map(np.array_equal, x[2:4], y[2:4]))


def simulator_touches(trace):
    """The simulator's trace with one entry a program, as the interpreter's recorder gives it."""
    for _, (x, y, _), touches in trace:
        for t in touches:
            size = t.operand.view.itemsize
            address = t.operand.view.start + t.offsets * size
            for row, program in enumerate(t.programs.tolist()):
                pid = (program % x, program // x % y, program // (x * y))
                at = address[row if len(address) > 1 else 0].reshape(-1)
                lanes = np.ones(at.shape, bool)
                if t.mask is not None:
                    lanes = t.mask[row if len(t.mask) > 1 else 0].reshape(-1)
                yield pid, t.kind, at, lanes, t.other


def find_difference(got, expected):
    """The first disagreement of two traces, None if they are equal in every lane."""
    if got.keys() != expected.keys():
        return f"programs: got {sorted(got)}, expected {sorted(expected)}"
    for pid, entries in expected.items():
        for i, (ours, theirs) in enumerate(zip(got[pid], entries, strict=False)):
            where = f"pid {pid}, access {i}"
            for name, x, y in zip(
                ("kind", "storage", "offsets", "mask", "other"), ours, theirs, strict=True
            ):
                if name == "other" and theirs[3].all():
                    continue  # no lane receives it
                if not np.array_equal(x, y):
                    return f"{where}, {name}: got {x}, expected {y}"
        if len(got[pid]) != len(entries):
            return f"pid {pid}: got {len(got[pid])} accesses, expected {len(entries)}"
    return None


def compare_witnesses(case, interpreter):
    """Both witnesses on one case: traces, bits, and the bound of the exact product."""
    theirs = interpreter("tests.witnesses.interpreted:record", case)
    a, b = operands_of(case)
    trace = []
    outcome = run(lambda a, b: multiply(case, a, b), a, b, trace=trace)
    assert outcome.faults == []
    results = outcome.result
    homes = [x.untyped_storage().data_ptr() for x in (a, b, *results)]
    expected = by_program(theirs["touches"], theirs["homes"])
    got = by_program(simulator_touches(trace), homes)
    assert find_difference(got, expected) is None
    seen["cases"] += 1
    seen["accesses"] += sum(map(len, got.values()))
    simulated, interpreted = results[0].numpy(), theirs["results"][0]
    assert (simulated.dtype, simulated.shape) == (interpreted.dtype, interpreted.shape)
    if case.fill == "integers":
        assert simulated.tobytes() == interpreted.tobytes()
        assert (simulated == exact_product(a.numpy(), b.numpy())[0]).all()
        return
    model = dot_model(None, case.dtype)
    exact, _ = exact_product(a.numpy(), b.numpy())
    allowed = gemm_bound(a.numpy(), b.numpy(), model, format_of(simulated.dtype))
    for name, c in (("simulator", simulated), ("interpreter", interpreted)):
        error = np.abs(c.astype(np.float64) - exact)
        assert (error <= allowed).all(), f"{name}: got error/bound {(error / allowed).max()}"


@st.composite
def cases(draw, kernel):
    tile = st.sampled_from((16, 32))
    dtype = draw(st.sampled_from(("fp16", "fp32", "int8")))
    return Case(
        kernel,
        M=draw(SIDES),
        N=draw(SIDES),
        K=draw(SIDES | st.sampled_from((0, 64, 65))),
        dtype=dtype,
        a=draw(st.sampled_from(LAYOUTS)),
        b=draw(st.sampled_from(LAYOUTS)),
        BLOCK_M=draw(tile),
        BLOCK_N=draw(tile),
        BLOCK_K=32 if dtype == "int8" else draw(tile),  # what a dot of 8 bits takes
        GROUP_M=draw(st.sampled_from((1, 2, 3, 8))),
        PARTS=draw(st.sampled_from((1, 2, 3, 5))),
        fill=draw(st.sampled_from(("integers", "normal"))),
        seed=draw(st.integers(0, 2**16)),
    )


@pytest.mark.triton("interpreter")
@pytest.mark.parametrize("kernel", first_of_each(WRAPPERS))
def test_the_simulator_touches_and_returns_what_the_interpreter_does(interpreter, kernel):
    """Every access of every program, masked lanes' offsets included, then the result."""
    seen.clear()

    @settings(max_examples=EXAMPLES)
    @given(case=cases(kernel))
    def check(case):
        compare_witnesses(case, interpreter)

    check()
    assert seen["cases"] >= EXAMPLES
    assert seen["accesses"] >= 3 * EXAMPLES


@pytest.mark.triton("interpreter")
def test_a_changed_access_is_a_difference(interpreter):
    """The comparison can fail: one offset, one mask lane, one access fewer."""
    case = Case("masked", 17, 16, 16, "fp16")
    theirs = interpreter("tests.witnesses.interpreted:record", case)
    expected = by_program(theirs["touches"], theirs["homes"])
    assert find_difference(expected, expected) is None
    pid, kind, address, lanes, other = theirs["touches"][0]
    for changed in (
        (pid, kind, address + 2, lanes, other),
        (pid, kind, address, ~lanes, other),
        (pid, "store", address, lanes, other),
    ):
        got = by_program([changed, *theirs["touches"][1:]], theirs["homes"])
        assert find_difference(got, expected) is not None
    got = by_program(theirs["touches"][:-1], theirs["homes"])
    assert find_difference(got, expected) is not None

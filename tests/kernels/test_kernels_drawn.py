"""Every kernel in the cases that Hypothesis draws from its contract, access by access.

With a mirror, each access of each program is the mirror's, offsets and masks. Without one, each
element of c is stored once, and all of a and b is read, and nothing else.
"""

import runpy
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from tests.support.lanes import first_of_each

from gemmproof import multiple_of, observe
from gemmproof.properties.cases.generate import probe
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.mirrored_launch import MirrorCall, MirrorTensor, Touch, first_difference
from gemmproof.strategies import cases

ROOT = Path(__file__).parents[2]
KERNELS = {
    kernel.name: kernel
    for kernel in runpy.run_path(str(ROOT / "conftest.py"))["pytest_gemm_kernels"]()
    if not kernel.device_only
}
EXAMPLES, MORE = 3, 8  # in the default lane, in the full one
# Shrinking shows the boundary of a fault; explaining would take as long again.
PHASES = [Phase.generate, Phase.shrink]
# Several ragged tiles along each axis: few draws have them along both axes of c.
SIDES = (136, 264, 144)


# -- tests ---------------------------------------------------------------------------------------
def find_wrapper(row):
    """Return the name of a kernel without formats: others of the name differ in those."""
    name = row[0]
    for suffix in ("_others", *(f"_{fmt}" for fmt in FORMATS)):
        name = name.removesuffix(suffix)
    return name


FORMS = [(name, fmt) for name, kernel in KERNELS.items() for fmt in kernel.contract.formats]
# Of these kernels, descriptors are used for hardly any case of their own contracts.
DESCRIBED = [
    (name, fmt)
    for name, fmt in FORMS
    if find_wrapper((name,)) in ("matmul_tma", "matmul_streamk", "bmm", "grouped_gemm")
    and fmt != "fp32"
]


@pytest.mark.filterwarnings("ignore:.*pointers are used")
@pytest.mark.parametrize(("name", "fmt"), first_of_each(FORMS, find_wrapper))
def test_every_access_is_as_specified(name, fmt, request):
    kernel = KERNELS[name]
    judge_cases(kernel, fmt, cases(kernel, format=fmt), count_examples(request))


@pytest.mark.filterwarnings("ignore:.*pointers are used")
@pytest.mark.parametrize(("name", "fmt"), first_of_each(DESCRIBED, find_wrapper))
def test_every_access_by_descriptors_is_as_specified(name, fmt, request):
    """Sizes and layouts that the copy engine can address; 8 bits k by k."""
    sizes = multiple_of(16 // FORMATS[fmt].itemsize)
    own = replace(KERNELS[name].contract, M=sizes, N=sizes, K=sizes, layouts=("row", "column"))
    kernel = replace(KERNELS[name], contract=own)
    drawn = cases(kernel, format=fmt)
    if FORMATS[fmt].itemsize == 1:
        drawn = drawn.map(lambda case: case.with_layout("a", "row").with_layout("b", "column"))
    launched = judge_cases(kernel, fmt, drawn, count_examples(request))
    assert any("tma" in name or "streamk" in name for name in launched)


def count_examples(request):
    return MORE if request.config.option.full else EXAMPLES


def judge_cases(kernel, fmt, drawn, count):
    """Judge the cases of a strategy and one more; return the names of the launched kernels."""
    launched = set()

    def judge(case):
        seen = observe(kernel, case)
        launched.update(launch.kernel for launch in seen.launches)
        assert list_faults(kernel, seen) == []

    settings(max_examples=count, phases=PHASES)(given(drawn)(judge))()
    judge(probe(kernel.contract, fmt, SIDES))  # later: it would hide the smallest case of a fault
    return launched


# -- accesses ------------------------------------------------------------------------------------
def list_faults(kernel, seen):
    """Return the faults of an observation, a line each.

    Of a sampled case, which gives no elements and runs few turns of long loops, findings alone.
    """
    faults = [finding.message for finding in seen.findings]
    if seen.case.is_sampled or not seen.launches:
        return faults
    tensors = tensors_of(seen.case, kernel)
    compare = compare_product if kernel.mirror is None else compare_mirror
    return [*faults, *compare(kernel, seen, {**tensors, "c": seen.result})]


def compare_mirror(kernel, seen, tensors):
    """Yield the first difference from the mirror of each launch of the first call."""
    count = 1 + max((access.launch for access in seen.accesses), default=-1)
    launches = seen.launches[:count]
    constants = {}
    for launch in launches:
        constants |= {**launch.integers, **launch.constexprs}
    described = {name: describe(tensor) for name, tensor in tensors.items()}
    expected = kernel.mirror(MirrorCall(described, constants))
    if len(launches) != len(expected):
        yield f"launches: got {len(launches)}, expected {len(expected)}"
    for number, launch in enumerate(expected):
        got = group_by_program(seen.accesses, number)
        for pid in dict.fromkeys([*launch.pids(), *got]):
            touches = launch.touches(pid) if pid in launch.pids() else []
            difference = first_difference(got[pid], touches)
            if difference is not None:
                yield f"launch {number}, pid {pid}, {difference}"
                break


def describe(x):
    values = None if x.dtype.is_floating_point else x.numpy()
    return MirrorTensor(tuple(x.shape), x.stride(), x.data_ptr(), x.element_size(), values)


def group_by_program(accesses, launch):
    touches = defaultdict(list)
    for x in accesses:
        rows = zip(x.programs.tolist(), x.offsets, x.mask, strict=True)
        for pid, offsets, mask in rows if x.launch == launch else ():
            touch = Touch(x.kind, x.operand, offsets, mask, x.other, tuple(pid))
            touches[touch.pid].append(touch)
    return touches


def compare_product(kernel, seen, tensors):
    """Yield the elements of c that are not stored once, and of a and b that are not read.

    Everything else that is stored or read there is listed too.
    """
    stored, elements = list_offsets(seen, "store", "c"), list_elements(tensors["c"])
    if not np.array_equal(np.sort(stored), np.sort(elements)):
        yield f"c: got {stored.size} stores, expected one of each of {elements.size} elements"
    for name in "ab":
        read = np.unique(list_offsets(seen, "load", name))
        elements = np.unique(list_elements(tensors[name]))
        if not np.array_equal(read, elements):
            extra, missing = (np.setdiff1d(*x) for x in ((read, elements), (elements, read)))
            yield f"{name}: got reads of {extra[:3]} and none of {missing[:3]}, expected the view"


def list_offsets(seen, kind, operand):
    """Return the offsets of all active lanes."""
    shown = (x for x in seen.accesses if (x.kind, x.operand) == (kind, operand))
    return np.concatenate([np.zeros(0, np.int64), *(x.offsets[x.mask] for x in shown)])


def list_elements(x):
    """Return the offset of each element of a tensor."""
    axes = [np.arange(side) * step for side, step in zip(x.shape, x.stride(), strict=True)]
    return sum(np.ix_(*axes)).ravel()

"""Facts that a compiled program does not reveal leave a claim open, and are no finding."""

from dataclasses import replace

import pytest
from tests.lowering.claims import claimed_kernels as kernels

from gemmproof.compiled import compile
from gemmproof.compiled.record import FMA, UNKNOWN
from gemmproof.engine import guarantee_check
from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER, FITS, SPILLS, TENSOR_CORES, Contract
from gemmproof.properties.kernel import KernelUnderTest

ALL = Contract(M=64, N=64, K=64, tensor_cores=True, spills=0, fits=("sm_86",))


def judge(wrapper=kernels.right, contract=ALL, **options):
    options = options or {"case": Case(64, 64, 64)}
    return check(KernelUnderTest(wrapper.__name__, wrapper, contract), **options)


def fared(report):
    return {p.name: p.status for p in report.properties if p.backend == COMPILER}


def change(monkeypatch, **fields):
    """Patch the facts of each launch: `fields` maps a fact's name to a function of its value."""
    read = compile.read_facts

    def changed(*compiled):
        facts = read(*compiled)
        values = {name: function(getattr(facts, name)) for name, function in fields.items()}
        return replace(facts, **values)

    monkeypatch.setattr(compile, "read_facts", changed)


def with_unit(name, unit):
    def changed(dots):
        return tuple(
            replace(x, instructions=tuple(replace(y, name=name, unit=unit) for y in x.instructions))
            for x in dots
        )

    return changed


@pytest.mark.parametrize(
    ("name", "unit", "message"),
    [
        ("mma.sp.new", UNKNOWN, "claimed_kernels.py:10: mma.sp.new is not recognised"),
        ("", UNKNOWN, "claimed_kernels.py:10: no instruction of it was found"),
        # the optimised IR has the dot on the tensor cores
        ("fma.rn.f32", FMA, "claimed_kernels.py:10: its instructions are not clear"),
    ],
)
def test_a_dot_that_is_not_recognised(name, unit, message, monkeypatch):
    change(monkeypatch, dots=with_unit(name, unit))
    report = judge()
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert fared(report) == {TENSOR_CORES: "not run", SPILLS: "pass", FITS: "pass"}
    named = "not fully checked: uses_tensor_cores: tile_kernel fp16 for sm_86: "
    assert report.note.startswith(named)
    assert report.note.endswith(message)


def test_a_dot_beside_one_that_is_not_recognised_is_found_all_the_same(monkeypatch):
    def add(dots):
        return (*with_unit("mma.new", UNKNOWN)(dots), *dots)

    change(monkeypatch, dots=add)
    full = replace(ALL, formats=("fp32",))
    assert [f.fault for f in judge(contract=full, max_examples=1).findings] == ["no_tensor_core"]


def test_a_compiler_that_does_not_tell_its_spills(monkeypatch):
    change(monkeypatch, resources=lambda x: replace(x, spill_stores=None))
    report = judge()
    assert (report.verdict, fared(report)[SPILLS]) == ("incomplete", "not run")


def test_a_stack_frame_is_no_spill(monkeypatch):
    change(monkeypatch, resources=lambda x: replace(x, stack=x.declared + 64))
    assert judge().verdict == judge(kernels.printing).verdict == "pass"
    change(monkeypatch, resources=lambda x: replace(x, stack=0, spill_stores=64))
    assert judge().verdict == "fail"


def test_what_a_thread_of_amd_has_in_memory_besides_its_registers(monkeypatch):
    contract = replace(ALL, fits=("gfx942",))
    for spilled, verdict in ((0, "pass"), (3, "fail")):
        with monkeypatch.context() as patch:
            resources = {"stack": 64, "spilled_registers": spilled}
            change(patch, resources=lambda x, resources=resources: replace(x, **resources))
            assert judge(contract=contract).verdict == verdict


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"threads": 2048, "registers": 8}, "got 2048 threads for a block of tile_kernel on sm_86"),
        ({"threads": 512, "registers": 255}, "got 130560 registers for a block of tile_kernel"),
        ({"tensor_memory": 1024}, "got 1024 columns of tensor memory for a block of tile_kernel"),
        ({"shared": 1 << 20}, "on sm_86, expected at most 101376"),
    ],
)
def test_each_thing_that_a_block_has_too_little_of(fields, message, monkeypatch):
    change(monkeypatch, resources=lambda x: replace(x, **fields))
    (finding,) = judge().findings
    assert (finding.property, finding.fault) == (FITS, "too_large")
    assert message in finding.message
    # none of the existing buffers takes so much
    assert finding.message.endswith(("1024", "65536", "512", "101376"))


def test_what_a_kernel_needs_is_told_at_its_def(monkeypatch):
    """The line is below the decorators: autotune may have many lines."""
    change(monkeypatch, resources=lambda x: replace(x, tensor_memory=1024))
    case = Case(64, 64, 64, config=0)
    for wrapper, line in ((kernels.one_configuration_without_a_dot, 156), (kernels.right, 14)):
        (finding,) = judge(wrapper, replace(ALL, tensor_cores=False), case=case).findings
        assert finding.where == f"claimed_kernels.py:{line}"


@pytest.mark.lane("full")
def test_launches_beyond_the_most_are_told_and_leave_it_open(monkeypatch, texts):
    monkeypatch.setattr(guarantee_check, "LEAST_MOST", 1)
    contract = replace(ALL, tensor_cores=False)
    report = judge(kernels.one_configuration_without_a_dot, contract, max_examples=1)
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert fared(report) == {SPILLS: "not run", FITS: "not run"}
    texts("more launches than are compiled", report.note)
    # findings on the others are kept
    report = judge(kernels.too_few_registers, replace(contract, K="1.."), max_examples=1)
    assert [f.property for f in report.findings] == [SPILLS]
    assert (
        judge(kernels.one_configuration_without_a_dot, contract, max_examples=2).verdict == "pass"
    )

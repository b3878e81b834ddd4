"""Each claim on compiled code has mutants that it alone kills, and right kernels that pass it."""

import os
import re
from dataclasses import replace

import pytest
from tests.lowering.claims import claimed_kernels as kernels
from tests.support.lanes import first_of_each

from gemmproof.compiled.compile import Compiler, lower_launch
from gemmproof.compiled.guarantees import list_violations
from gemmproof.engine.guarantee_check import list_cases, plan_launches
from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import (
    COMPILER,
    FITS,
    GUARANTEED,
    SPILLS,
    TENSOR_CORES,
    Contract,
    multiple_of,
)
from gemmproof.properties.kernel import KernelUnderTest

ALL = {"tensor_cores": True, "spills": 0, "fits": ("sm_86",)}
# a single case, so each launch is compiled once
ONE = {"M": 64, "N": 64, "K": 64}


def judge(launch, dtype="fp16", examples=2, **terms):
    contract = Contract(**{"formats": (dtype,), **ONE, **ALL, **terms})
    return check(KernelUnderTest(launch.__name__, launch, contract), max_examples=examples)


def fared(report):
    """Return the status of each claim, and its number of launches."""
    return {p.name: (p.status, p.examples) for p in report.properties if p.backend == COMPILER}


def test_each_gpu_is_compiled_for_in_a_process_of_its_own(tmp_path):
    """Triton 3.6 converts fp8 for the second GPU of a process as it does for the first."""
    contract = Contract(**ONE, **ALL | {"fits": ("sm_90", "sm_86")})
    _, planned = plan_launches(KernelUnderTest("k", kernels.right, contract), None, None, 1)

    def note_process(planned, workdir):
        return replace(planned.record, binary=str(os.getpid()))

    compiler = Compiler(tmp_path, lower=note_process)
    first, again, other = compiler.compile([planned[0], *planned])
    assert [x.target for x in (first, again, other)] == ["sm_90", "sm_90", "sm_86"]
    assert first.binary == again.binary
    assert len({first.binary, other.binary, str(os.getpid())}) == 3


WRONG = [
    (kernels.in_full, {"dtype": "fp32"}, TENSOR_CORES, "no_tensor_core", 10,
     "fma.rn.f32 for the dot 16x16x16 of f32 x f32 on sm_86, expected tensor cores:"
     " fp32 ieee has no tensor core"),
    (kernels.right, {"fits": ("sm_75",)}, TENSOR_CORES, "no_tensor_core", 10,
     ": Triton makes fused multiply-adds of every dot on sm_75"),
    (kernels.few_rows, {"fits": ("gfx942",)}, TENSOR_CORES, "no_tensor_core", 10,
     "v_dot2c_f32_f16 for the dot 1x16x32 of f16 x f16 on gfx942, expected tensor cores: Triton's"
     " smallest mfma for fp16 take 16x16x16 32x32x8 4x64x64 64x4x64"),
    (kernels.without_a_dot, {}, TENSOR_CORES, "no_dot", 63,
     "got tile_kernel without any dot on sm_86, expected tensor cores"),
    (kernels.half_of_it_in_full, {}, TENSOR_CORES, "no_tensor_core", 10,
     "a dot 16x16x16 of f32 x f32 without one, on a line with others on sm_86"),
    (kernels.one_configuration_without_a_dot, {}, TENSOR_CORES, "no_dot", 169,
     "(configuration 1: BM=1 BN=1 HOW=sum num_warps=2 num_stages=3)"),
    (kernels.too_few_registers, {}, SPILLS, "spilled", 14,
     "bytes of a thread spilled, with 32 registers on sm_86, expected none"),
    (kernels.too_many_stages, {}, FITS, "too_large", 28,
     "got 122880 bytes of shared memory for a block of tile_kernel on sm_86, expected at most"
     " 101376: buffers of 6x16x128 f16 and 6x128x64 f16 with num_stages=7"),
    (kernels.too_many_warps, {"fits": ("gfx942",)}, FITS, "too_large", 14,
     "got 2048 threads for a block of tile_kernel on gfx942, expected at most 1024"),
    (kernels.of_bytes, {"dtype": "fp8e4m3", "fits": ("sm_80",)}, FITS, "refused", 14,
     "type fp8e4nv not supported in this architecture"),
    (kernels.in_ptx, {"fits": ("gfx942",), "tensor_cores": False}, FITS, "refused", 95,
     'from the compiler for gfx942, expected assembly_kernel to compile for it'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("launch", "terms", "name", "fault", "line", "message"),
    WRONG,
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_one_claim_alone_kills_it(launch, terms, name, fault, line, message):
    report = judge(launch, **terms)
    assert report.verdict == "fail"
    (finding,) = report.findings
    assert (finding.property, finding.fault, finding.backend) == (name, fault, COMPILER)
    assert message in finding.message
    assert finding.where == f"claimed_kernels.py:{line}"
    assert finding.message.startswith(f"{finding.where}: got ")
    assert len(finding.message.splitlines()) == 1
    assert [n for n, (status, _) in fared(report).items() if status == "fail"] == [name]


def weigh_tile(gpu, dtype, tile, workdir):
    """Return the findings on a dot of this tile, compiled alone."""
    contract = Contract(formats=(dtype,), tensor_cores=True, fits=(gpu,), **ONE)

    def tiled(a, b):
        return kernels.launch(a, b, tile=tile)[0]

    _, (planned,) = plan_launches(KernelUnderTest("tiled", tiled, contract), None, None, 1)
    lowered = lower_launch(planned, workdir)
    return list_violations(TENSOR_CORES, lowered, 0)


AMD = [
    ("gfx942", "fp16"),
    pytest.param("gfx942", "fp32", marks=pytest.mark.triton("fp32_by_fma_on_gfx942")),
    ("gfx942", "int8"),
    ("gfx950", "fp8e4m3"),
]


@pytest.mark.parametrize(("gpu", "dtype"), first_of_each(AMD))
def test_smallest_tiles_of_amd_are_those_that_a_reason_names(gpu, dtype, tmp_path):
    (finding,) = weigh_tile(gpu, dtype, (16, 16, 1), tmp_path)
    sizes = finding.message.partition(f"smallest mfma for {dtype} take ")[2]
    tiles = [tuple(map(int, word.split("x"))) for word in sizes.split()]
    assert len(tiles) == (2 if dtype == "fp8e4m3" else 4)
    for m, n, k in tiles:
        assert weigh_tile(gpu, dtype, (m, n, k), tmp_path) == []
        (shallow,) = weigh_tile(gpu, dtype, (m, n, k // 2), tmp_path)
        assert sizes in shallow.message


RIGHT = [
    (kernels.right, {"fits": ("sm_80", "sm_120", "gfx950")}),
    (kernels.in_thirds, {"dtype": "fp32"}),
    (kernels.of_bytes, {"dtype": "int8"}),
    (kernels.few_rows, {}),
    (kernels.too_many_warps, {}),
    (kernels.summed_by_another_launch, {}),
    (kernels.printing, {}),
    (kernels.half_of_it_by_sums, {"spills": 100000}),
    (kernels.one_product_without_a_dot, {"K": "0..", "spills": 100000}),
    (kernels.vectors_without_a_dot, {"K": "0..", "spills": 100000}),
    (kernels.too_few_registers, {"spills": 100000}),
    (kernels.too_many_stages, {"fits": ("sm_80",)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("launch", "terms"), first_of_each(RIGHT), ids=lambda x: getattr(x, "__name__", "")
)
def test_what_is_right_holds(launch, terms):
    report = judge(launch, **terms)
    assert [f.message for f in report.findings] == []
    assert (report.verdict, report.note) == ("pass", None)
    assert {status for status, _ in fared(report).values()} == {"pass"}
    assert list(fared(report)) == list(GUARANTEED)


@pytest.mark.lane("full")
def test_sizes_that_specialise_otherwise_are_compiled_too():
    terms = {"M": "2..", "N": 64, "K": 64, "spills": None}
    (finding,) = judge(kernels.few_rows_without_a_dot, **terms).findings
    assert (finding.fault, finding.case) == ("no_dot", Case(2, 64, 64))
    assert judge(kernels.few_rows_without_a_dot, **{**terms, "M": "3.."}).verdict == "pass"


def test_cases_are_near_what_a_contract_admits():
    def sizes(**terms):
        return [(c.M, c.N, c.K) for c in list_cases(Contract(**terms), "fp16")]

    usual = [(1024,) * 3, (1023,) * 3, (1, 1, 1), (16, 1024, 1024), (128, 256, 64)]
    assert sizes() == usual
    assert sizes(K=multiple_of(48), N=7)[:3] == [(1024, 7, 1008), (1023, 7, 1008), (1, 7, 48)]
    # a case has at most 2**26 elements
    assert sizes(K=65536) == [(1, 1, 65536), (128, 256, 65536)]
    columns = list(list_cases(Contract(layouts="any"), "fp16"))[-1]
    assert columns.layouts == (("b", "column"),)
    only = list_cases(Contract(layouts=("column",)), "fp16")
    assert {c.layouts for c in only} == {(("a", "column"), ("b", "column"))}


def test_a_target_stands_in_for_gpus_that_are_not_named(texts):
    contract = Contract(tensor_cores=True, **ONE)
    kernel = KernelUnderTest("few_rows", kernels.few_rows, contract)
    assert check(kernel, case=Case(64, 64, 64)).verdict == "pass"
    (finding,) = check(kernel, case=Case(64, 64, 64), target="gfx942").findings
    message = re.sub(r"got \d+ \w+ for", "got <instructions> for", finding.message)
    texts("a dot without tensor cores on another target", message)


def test_a_single_case_is_compiled_in_its_own_configuration():
    contract = Contract(tensor_cores=True, **ONE)
    kernel = KernelUnderTest("tuned", kernels.one_configuration_without_a_dot, contract)
    first, second = (check(kernel, case=Case(64, 64, 64, config=n)) for n in (0, 1))
    assert (first.verdict, second.verdict) == ("pass", "fail")
    assert fared(first) == {TENSOR_CORES: ("pass", 1)}


def test_what_is_expected_to_fail_is_told_as_such_and_so_is_what_does_not(texts):
    expected = {TENSOR_CORES: "one row", FITS: "it is large"}
    report = judge(kernels.without_a_dot, spills=None, expected=expected)
    assert fared(report) == {TENSOR_CORES: ("expected", 1), FITS: ("fail", 1)}
    assert [f.property for f in report.expected] == [TENSOR_CORES]
    (finding,) = report.findings
    texts("a guarantee that was expected to fail holds", finding.message)


def test_what_is_not_captured_leaves_the_claims_open(texts):
    contract = Contract(M="2..64", N=64, K=64, tensor_cores=True)
    kernel = KernelUnderTest("refuses", kernels.refuses_two_rows, contract)
    # no judged case has two rows
    report = check(kernel, case=Case(3, 64, 64))
    assert report.verdict == "pass"
    report = check(kernel, max_examples=1)
    assert fared(report) == {TENSOR_CORES: ("not run", 1)}
    texts("a launch that was not captured", re.sub(r"\S+\.py:\d+", "<line>", report.note))

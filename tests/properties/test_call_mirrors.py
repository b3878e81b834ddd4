"""Mirrors of whole calls agree with the kernels, and see a changed line that no result shows."""

import importlib.util
import inspect
import sys
import warnings
from pathlib import Path

import pytest
from tests.support.lanes import first_of_each

from gemmproof import kernels
from gemmproof.engine.kernel_check import check
from gemmproof.kernels import KERNELS
from gemmproof.properties.cases.case import Case
from gemmproof.properties.judges import memory_use
from gemmproof.reference.mirrors import CALL_MIRRORS

ROOT = Path(__file__).parents[2]
WRAPPERS = {name: KERNELS.get(name) or getattr(kernels, name) for name in CALL_MIRRORS}
SPLITK = ("matmul_splitk", Case(70, 70, 1300))
BMM = ("bmm", Case(200, 320, 40, batch=3))
ODD_BMM = ("bmm", Case(200, 301, 40, batch=3))
PADDED = ("matmul_padded", Case(64, 72, 40).with_layout("a", "column"))
ODD_PADDED = ("matmul_padded", Case(67, 65, 33))
W8 = ("matmul_w8", Case(40, 70, 1300, arguments=(("zero", "column"),)))
W4 = ("matmul_w4", Case(40, 70, 1300, arguments=(("group", "32"),)))
REVERSED = (
    "share = tl.program_id(1).to(",
    "share = (tl.num_programs(1) - 1 - tl.program_id(1)).to(",
)
GROUPED = ("grouped_gemm_fp16", Case(300, 320, 40, arguments=(("groups", "3"),)))
ODD_GROUPED = ("grouped_gemm_fp16", Case(300, 301, 40, arguments=(("groups", "3"),)))
SCALED = ("matmul_block_scaled_fp8e4m3", Case(140, 150, 300, "fp8e4m3"))
DESCRIBED = ("matmul_block_scaled_described_fp8e4m3", Case(300, 320, 304, "fp8e4m3"))
STREAMK = ("matmul_streamk", Case(300, 320, 520, sms=7))
TURNED = ("tl.program_id(0)", "(tl.num_programs(0) - 1 - tl.program_id(0))")
LAST_FIRST = (
    "range(tl.program_id(0), num_tiles, NUM_SMS",
    "range(num_tiles - 1 - tl.program_id(0), -1, -NUM_SMS",
)
# kernel, case, a line, what is wrong with it; first those of which every value is right
QUIET = [
    # the sums are added up in another order
    (*SPLITK, *REVERSED),
    # programs that start together no longer read the same of b
    (
        *SPLITK,
        "tl.program_id(0) % num_pid_m, tl.program_id(0) // num_pid_m",
        "tl.program_id(0) // tl.cdiv(N, BLOCK_N), tl.program_id(0) % tl.cdiv(N, BLOCK_N)",
    ),
    # the last matrix first, by descriptors and by pointers
    (*BMM, *LAST_FIRST),
    (*ODD_BMM, *LAST_FIRST),
    (*GROUPED, *LAST_FIRST),
    (*ODD_GROUPED, *LAST_FIRST),
    # the last program has the first of the whole tiles
    (*STREAMK, "range(pid, whole", "range(tl.num_programs(0) - 1 - pid, whole"),
    # the last program has the first tile
    (*SCALED, *TURNED),
    (*DESCRIBED, *TURNED),
    # dense columns are copied, and rows are longer than they must be
    (*PADDED, "a if (rows_a if is_byte else any(find_layouts(a)))", "a if rows_a"),
    (*ODD_PADDED, "step = ALIGNMENT //", "step = 2 * ALIGNMENT //"),
    (*W8, *REVERSED),
    (*W4, *REVERSED),
]
LOUD = [
    (*SPLITK, "mask=(offs_m[None, :] < M) & (offs_k[:, None] < end)", "mask=offs_m[None, :] < M"),
    (*SPLITK, ".to(tl.int64) * size + offs", ".to(tl.int64) * size + offs + 1"),
    (*ODD_BMM, "i * stride_ab + offs_m", "offs_m"),
    (*BMM, "batch = 0 if IS_SHARED", "batch = 0 if not IS_SHARED"),
    (*STREAMK, "slot = 2 * share + tile", "slot = 2 * share"),
    (*STREAMK, "begin - tile * k_tiles, 0", "begin - tile * k_tiles, 1"),
    # by descriptors and by pointers
    (*SCALED, "mask=offs_m < M, other", "mask=offs_m < M - 1, other"),
    (*DESCRIBED, "start_n // GROUP_N", "0 * start_n // GROUP_N"),
    (*GROUPED, "mask=(offs_m[:, None] < end) & (offs_n", "mask=(offs_n"),
    (*ODD_GROUPED, "b_ptr + group.to(tl.int64) * stride_bg", "b_ptr"),
    (*W8, "group * stride_zg", "group * stride_sg"),
    (*W4, "(start + first) // GROUP", "start // GROUP"),
]


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """The violated properties in a case of a kernel whose file has one text replaced."""

    def make(name, case, old, new):
        wrapper = next(w for w in WRAPPERS if name.startswith(w))
        home = WRAPPERS[wrapper].__module__
        source = inspect.getsource(sys.modules[home])
        assert old in source
        path = tmp_path / f"{wrapper}_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(source.replace(old, new))
        changed = getattr(load(path, f"{home}_changed"), wrapper)
        monkeypatch.setattr(kernels, wrapper, changed)
        if wrapper in KERNELS:
            monkeypatch.setitem(KERNELS, wrapper, changed)
        (kernel,) = [x for x in load(ROOT / "conftest.py").pytest_gemm_kernels() if x.name == name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = check(kernel, case=case, target="sm_90", proof=False)
        assert {x.name: x.examples for x in report.properties}[memory_use.NAME] == 1
        return {finding.property for finding in report.findings}

    def load(path, name="registered"):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return make


@pytest.mark.parametrize(("name", "case", "old", "new"), first_of_each(QUIET))
def test_a_mirror_alone_sees_it(judge, name, case, old, new):
    assert judge(name, case, old, old) == set()
    assert judge(name, case, old, new) == {memory_use.NAME}


@pytest.mark.lane("full")
@pytest.mark.parametrize(("name", "case", "old", "new"), LOUD)
def test_a_mirror_sees_what_others_see_too(judge, name, case, old, new):
    assert memory_use.NAME in judge(name, case, old, new)


def test_a_launch_too_many_is_seen(judge):
    """With a single share the second kernel would add up what is the result already."""
    case, old = Case(20, 70, 100), "if shares > 1:"
    assert judge("matmul_splitk", case, old, old) == set()
    assert judge("matmul_splitk", case, old, "if shares > 0:") == {memory_use.NAME}

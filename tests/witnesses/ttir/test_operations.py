"""Every operation of TTIR's dialects is run or refused by name, whichever Triton is installed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.triton_versions import holds
from tests.witnesses.ttir.recorded_ttir import record
from tests.witnesses.ttir.ttir_cases import existing
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from gemmproof.reference.simulation import LimitExceeded, Unsupported
from gemmproof.reference.simulator import run
from gemmproof.reference.simulator.ops.registry import OPERATIONS, refusal
from gemmproof.reference.simulator.translate import lower
from gemmproof.reference.ttir import FLIP, read_module


def names(text: str) -> set[str]:
    return set(text.split())


# What Triton's language makes, hence what a kernel of ttir_kernels.py makes.
MADE = names(
    """
    arith.addf arith.addi arith.andi arith.bitcast arith.cmpf arith.cmpi arith.constant
    arith.divf arith.divsi arith.divui arith.extf arith.extsi arith.extui arith.fptosi
    arith.fptoui arith.maximumf arith.maxnumf arith.maxsi arith.maxui arith.minimumf
    arith.minnumf arith.minsi arith.minui arith.mulf arith.muli arith.negf arith.ori arith.remf
    arith.remsi arith.remui arith.select arith.shli arith.shrsi arith.shrui arith.sitofp
    arith.subf arith.subi arith.truncf arith.trunci arith.uitofp arith.xori cf.br cf.cond_br
    math.absf math.absi math.ceil math.cos math.erf math.exp math.exp2 math.floor math.fma
    math.log math.log2 math.rsqrt math.sin math.sqrt scf.condition scf.for scf.if scf.while
    scf.yield tt.addptr tt.advance tt.approx_divf tt.assert tt.atomic_cas tt.atomic_load
    tt.atomic_poll tt.atomic_rmw tt.atomic_store tt.bitcast tt.broadcast tt.call tt.cat
    tt.clampf tt.descriptor_gather tt.descriptor_load tt.descriptor_reduce tt.descriptor_scatter
    tt.descriptor_store tt.dot tt.dot_scaled tt.elementwise_inline_asm tt.expand_dims
    tt.extern_elementwise tt.fp_to_fp tt.func tt.gather tt.get_num_programs tt.get_program_id
    tt.grid_dependency_launch_dependents tt.grid_dependency_wait tt.histogram tt.int_to_ptr
    tt.join tt.load tt.make_range tt.make_tensor_descriptor tt.make_tensor_ptr
    tt.map_elementwise tt.map_elementwise.return tt.mulhiui tt.precise_divf tt.precise_sqrt
    tt.print tt.ptr_to_int tt.reduce tt.reduce.return tt.reshape tt.return tt.scan
    tt.scan.return tt.splat tt.split tt.store tt.trans tt.unsplat ub.poison
    """
)
# Not made by Triton's language, and run all the same.
KNOWN = names(
    """
    arith.index_cast arith.index_castui math.acos math.acosh math.asin math.asinh math.atan
    math.atan2 math.atanh math.cbrt math.copysign math.cosh math.ctlz math.ctpop math.cttz
    math.erfc math.expm1 math.log10 math.log1p math.powf math.round math.roundeven math.sinh
    math.tan math.tanh math.trunc
    """
)
# Not made by Triton's language, and refused.
REFUSED = names(
    """
    arith.addui_extended arith.ceildivsi arith.ceildivui arith.convertf arith.floordivsi
    arith.flush_denormals arith.mulsi_extended arith.mului_extended arith.scaling_extf
    arith.scaling_truncf arith.subui_extended cf.assert cf.switch math.clampf math.fpowi
    math.ipowi math.isfinite math.isinf math.isnan math.isnormal math.sincos
    scf.execute_region scf.forall scf.forall.in_parallel scf.index_switch scf.parallel
    scf.reduce scf.reduce.return ub.unreachable
    """
)
# What lowering itself makes of control flow.
STRUCTURE = names(
    """
    cf.br cf.cond_br scf.condition scf.for scf.if scf.while scf.yield tt.call tt.func tt.return
    tt.map_elementwise.return tt.reduce.return tt.scan.return
    """
)
# Of other dialects, as Triton's language makes them.
OTHERS = {"llvm.intr.assume", "ttg.barrier", "gpu.barrier"}
# Operations that are registered before Triton's language makes them, each with its difference.
LATER = {"arith.negf": "negation"}
NAMES = [
    re.compile(rb"%s\.[a-z_0-9.]*[a-z_0-9]" % d)
    for d in (b"tt", b"arith", b"math", b"scf", b"cf", b"ub")
]
USED = re.compile(r'^ *(?:%\S.* = )?"?([a-z]\w*(?:\.\w+)+)"?(?![\w.])', re.MULTILINE)


@pytest.fixture
def registered(tmp_path, capfd):
    """The operations of the installed Triton: names among its strings that its parser knows."""
    context = ir.context()
    ir.load_dialects(context)
    make_backend(GPUTarget("cuda", 90, 32)).load_dialects(context)
    library = Path(triton.__file__).parent / "_C" / "libtriton.so"
    file, operations = tmp_path / "one.mlir", set()
    raw = library.read_bytes()
    for name in {match[0].decode() for names in NAMES for match in names.finditer(raw)}:
        file.write_text(f'module {{ "{name}"() : () -> () }}')
        try:
            ir.parse_mlir_module(str(file), context)
        except RuntimeError:
            if "unregistered operation" in capfd.readouterr().err:
                continue
        operations.add(name)
    return operations


@pytest.mark.lane("full")
def test_every_operation_of_the_installed_triton_is_in_the_table(registered):
    assert len(registered) > 150
    assert registered - MADE - KNOWN - REFUSED == set(), "new: say what becomes of them"


def test_the_table_is_what_the_simulator_does():
    assert not (MADE | KNOWN) & REFUSED
    assert not MADE & KNOWN
    assert set(OPERATIONS) | STRUCTURE == MADE | KNOWN | OTHERS | {"gemmproof.same", FLIP}


@pytest.mark.lane("full")
def test_a_kernel_makes_each_operation_that_the_language_makes(registered):
    texts = [text for case in existing() for text in record(case.launch, case.tensors())]
    used = {name for text in texts for name in USED.findall(text)}
    assert used <= MADE | OTHERS | {"builtin.module"}
    assert {n for n in MADE & registered if n not in LATER or holds(LATER[n])} <= used


@pytest.mark.parametrize("case", existing(), ids=lambda case: case.name)
def test_a_kernel_stores_what_numpy_computes(case):
    seen = run(case.launch, *case.tensors())
    assert seen.faults == []
    for got, expected in zip(seen.result, case.expected, strict=True):
        assert got.dtype == torch.from_numpy(expected).dtype
        np.testing.assert_array_equal(got.numpy(), expected)


# -- refusals, and values that only a GPU knows --------------------------------------------------
def module(*lines: str) -> str:
    """A kernel of these lines, from line 7 of kernel.py."""
    body = "\n".join(f"    {line} loc(#loc)" for line in lines)
    head = "module {\n  tt.func public @k(%a: !tt.ptr<i32>, %x: i32) {\n"
    return f'{head}{body}\n    tt.return\n  }}\n}}\n#loc = loc("kernel.py":7:3)\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("%y = arith.ceildivsi %x, %x : i32", ": Triton's own frontend makes no such operation"),
        ("%y = ttg.local_load %x : i32", ": it works on threads and layouts, below the tiles"),
        ("%y = tt.brand_new %x : i32", ""),
        ("%y = tt.atomic_poll relaxed, gpu, %a, %x timeout %x : !tt.ptr<i32>, i32 -> i1",
         ": with a timeout it depends on how fast a GPU is"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named_with_its_line_and_the_reason(line, reason, texts):
    with pytest.raises(Unsupported) as raised:
        lower(read_module(module(line)))
    name = line.split()[2]
    message = str(raised.value)
    assert message.endswith(reason)
    texts("an operation that is not known", message.removesuffix(reason), name=name)


@triton.jit
def profiled(o_ptr, times_ptr, SUM: tl.constexpr, AT: tl.constexpr):
    start = tl.extra.cuda.globaltimer()
    tl.extra.cuda.gdc_wait()
    tl.store(o_ptr, start if SUM else 1)
    tl.store(times_ptr + (tl.extra.cuda.smid() if AT else 0), tl.extra.cuda.globaltimer() - start)


def profile(o, SUM=False, AT=False):
    times = torch.zeros(4, dtype=torch.int64)
    profiled[(1,)](o, times, SUM, AT)
    assert AT or times[0] > 0  # each look at the clock is a separate read
    return o


@pytest.mark.parametrize(
    ("how", "kinds"),
    [({}, []), ({"SUM": True}, ["undefined_stored"]), ({"AT": True}, ["undefined_used"])],
)
def test_clocks_may_be_stored_aside_and_decide_nothing(how, kinds):
    seen = run(profile, torch.zeros(1, dtype=torch.int64), kwargs=how)
    assert [fault.kind for fault in seen.faults] == kinds


@triton.jit
def threads(o_ptr):
    tl.store(o_ptr, tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], tl.int32, True, 1))


@triton.jit
def waiting(o_ptr):
    tl.atomic_poll(o_ptr, 1)


def test_threads_are_not_known():
    with pytest.raises(Unsupported, match=r"test_operations\.py:\d+: .*%tid\.x"):
        run(lambda o: threads[(1,)](o), torch.zeros(1, dtype=torch.int32))


@pytest.mark.triton("atomic_poll")
def test_a_poll_for_what_nobody_stores_waits_for_ever():
    with pytest.raises(LimitExceeded, match=r"waits? for ever"):
        run(lambda o: waiting[(2,)](o), torch.zeros(1, dtype=torch.int32))


def test_a_refusal_says_why_in_one_line():
    reason = "Triton's own frontend makes no such operation"
    assert all(refusal(name).endswith(reason) and "\n" not in refusal(name) for name in REFUSED)

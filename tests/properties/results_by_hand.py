"""Results made by hand, as the simulator would give them, and the properties they violate."""

import numpy as np
import torch
from tests.support.wide import wide

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import judge, observe
from gemmproof.properties.cases.data import TORCH_DTYPES, as_array, as_tensor
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.arithmetic import round_to
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.formats import FORMATS as KNOWN
from gemmproof.reference.simulation import Launch, Run, Where

HERE = Where("/somewhere/kernels.py", 31, "matmul_kernel")
LAUNCH = Launch("matmul_kernel", (1, 1, 1), {}, 0, 1, ((16, 16, 16),), False, HERE)


def outcome_of(case, function, *, faults=(), contract=None, **more):
    """An outcome of `function(a, b)` as the simulator would give it, with the given faults."""
    contract = contract or wide((case.dtype,), batched=case.batch is not None)
    kernel = KernelUnderTest("matmul", function, contract, **more)

    def run(launch, *tensors, trace=None, **options):
        return Run(result=launch(*tensors), launches=[LAUNCH], faults=list(faults))

    return observe(kernel, case, Simulator(None, run))


def product(a, b, out=None, change=None):
    """The exact product, changed by `change(c)` in float64, rounded once to `out`."""
    x, y = as_array(a), as_array(b)
    c = exact_product(x, y)[0].astype(np.float64)
    c = c if change is None else change(c)
    name = out or {torch.int8: "int32"}.get(a.dtype) or _format(a)
    if KNOWN[name].kind == "int":
        return as_tensor(c.astype(np.int64).astype(KNOWN[name].storage), name)
    return as_tensor(round_to(c, KNOWN[name]), name)


def _format(tensor):
    return next(name for name, dtype in TORCH_DTYPES.items() if dtype == tensor.dtype)


def names(outcome):
    return sorted({f.property for f in judge(outcome).findings})

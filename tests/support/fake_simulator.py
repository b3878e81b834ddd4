"""A simulator that launches nothing and reports the faults it is given, and checks on it."""

import numpy as np
from tests.support.wide import wide

from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.arithmetic import round_to
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.simulation import Fault, Launch, Run, Where
from gemmproof.worker.protocol import CaseStarted

HERE = Where("/somewhere/kernels.py", 31, "matmul_kernel")
TILES = ((16, 32, 16),)


def right(a, b):
    c = exact_product(as_array(a), as_array(b))[0]
    if c.dtype == np.int64:
        return as_tensor(c.astype(np.int32), "int32")
    return as_tensor(round_to(c, FORMATS["fp32"]), "fp32")


def fake_run(wrong=lambda a, b, config: [], configs=1, tiles=TILES, name=lambda a: "k"):
    """A runner that launches nothing and reports the faults that `wrong(a, b, config)` returns.

    `name(a)` is the name of the kernel that the wrapper pretends to launch.
    """

    def run(function, *tensors, config=0, **options):
        # no product of so large a result is made
        result = None if options.get("sampled") else function(*tensors)
        launch = Launch(name(tensors[0]), (2, 1, 1), {}, config, configs, tiles, False, HERE)
        return Run(result, [launch], wrong(*tensors, config), host_work=[])

    return run


def stray_load(operand="a", axis="K", where=HERE):
    return Fault("out_of_bounds", "k", "load", operand, axis, where, "got", "expected", 1, 1)


def check_with(run, launch=right, contract=None, **options):
    events = []
    options.setdefault("proof", "_prove" in options)
    kernel = KernelUnderTest("matmul", launch, contract or wide())
    report = check(kernel, listener=events.append, _run=run, **options)
    return report, events


def cases_in(events, phase=None):
    return [
        Case.from_json(e.case)
        for e in events
        if isinstance(e, CaseStarted) and phase in (None, e.phase)
    ]

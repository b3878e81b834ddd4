"""The formulas of the families as people write them: the same values, and errors no larger."""

import numpy as np
import pytest
from tests.corpora.families import (
    block_scales,
    gate_and_up,
    grouped_gemm,
    lora_adapters,
    microscaled,
    moe_experts,
    weight_only,
)

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands as allocate
from gemmproof.properties.cases.operands import stored_elements
from gemmproof.reference.spec import NAMES, Rules, evaluate
from gemmproof.target import write_formula

TEXTS = {
    "mixture of experts": (
        moe_experts.FAMILY,
        "(rowwise_matmul(a, b.mT, topk_ids) * topk_weights[:, :, None]).sum(1)",
    ),
    "experts by masks": (
        moe_experts.FAMILY,
        "sum((a @ b[e].T) * ((topk_ids == e) * topk_weights).sum(1)[:, None] for e in range(4))",
    ),
    "grouped": (grouped_gemm.FAMILY, "rowwise_matmul(a, b, segments(offsets, M))"),
    "grouped by masks": (
        grouped_gemm.FAMILY,
        "group = segments(offsets, M); sum((a * (group == g)[:, None]) @ b[g] for g in range(4))",
    ),
    "int4": (
        weight_only.INT4,
        "q = unpack(b, 4) - repeat(unpack(qzeros, 4, axis=1), 32, axis=0)\n"
        "a @ fp16(q * repeat(scales, 32, axis=0))",
    ),
    "blocks": (
        block_scales.FAMILY,
        "x = a * repeat(scale_a, 64, axis=1)[:, :K]"
        "; x @ (b * repeat(repeat(scale_b, 64, axis=0), 64, axis=1)[:K, :N])",
    ),
    "nvfp4": (
        microscaled.NVFP4,
        'x = decode(unpack(a, 4, axis=1), "e2m1") * repeat(scale_a, 16, axis=1)'
        '; x @ (decode(unpack(b, 4, axis=1), "e2m1") * repeat(scale_b, 16, axis=1)).T * scale',
    ),
    "mxfp8": (
        microscaled.MXFP8,
        "x = a * 2.0 ** (repeat(scale_a, 32, axis=1) - 127)"
        "; x @ (b * 2.0 ** (repeat(scale_b, 32, axis=1) - 127)).T",
    ),
    "gate and up": (gate_and_up.FAMILY, "silu(a @ b) * (a @ w_up)"),
    "adapters": (
        lora_adapters.FAMILY,
        f"x = rowwise_matmul(a, lora_a.mT, ids) * {lora_adapters.SCALING}"
        "; y + rowwise_matmul(x, b.mT, ids)",
    ),
}


@pytest.mark.parametrize("title", TEXTS)
@pytest.mark.parametrize("fill", ["index", "normal"])
def test_a_family_has_its_formula_as_people_write_it(title, fill):
    family, text = TEXTS[title]
    kernel = family.right
    spec = eval(write_formula(text, kernel.operands), {**NAMES})
    sides = kernel.contract.fit({"M": 21, "N": 24, "K": 64})
    case = Case(**sides, dtype=kernel.contract.formats[0], fill=fill, seed=5)
    given = {n: (stored_elements(x), x.dtype) for n, x in allocate(case, kernel).items()}
    own, written = (
        evaluate(lambda k=k, **named: k.calculate(named, sides), given, Rules("sm_90"))[0]
        for k in (kernel, kernel.__class__(kernel.name, kernel.launch, kernel.contract,
                                           operands=kernel.operands, spec=spec))
    )  # fmt: skip
    near = np.abs(own.value - written.value) <= 2.0**-20 * own.bound
    assert near.all()
    assert (written.bound <= own.bound * 1.5).all()
    assert (own.bound <= written.bound * 4 + 1e-30).all()
    assert np.array_equal(own.exact, written.exact) or "masks" in title

"""Wrong kernels with a false property that the prover once proved, each with its corrected twin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from gemmproof import Contract, KernelUnderTest, Operand
from gemmproof.properties.judges import exact_values, memory_use

BOUNDS, ONCE, LANES = memory_use.BOUNDS, memory_use.ONCE, memory_use.LANES
FIT, HINTS, EXACT = memory_use.FIT, memory_use.HINTS, exact_values.EXACT


@dataclass(frozen=True, slots=True)
class FalseProof:
    """A wrong kernel and its twin without the fault, by "module:function" of this folder.

    `false` are the properties that do not hold of the wrong one. Its verdict is "fail", unless no
    case is large enough: `hidden`. With `assumption` it is proved under this assumption, which
    excludes the sizes at which the fault shows. `kept` are the properties that are proved of the
    twin. `fields` are of their contract, `more` of the kernel.
    """

    wrong: str
    right: str
    false: tuple[str, ...]
    kept: tuple[str, ...]
    hidden: bool = False
    assumption: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's name, which states the fault."""
        return self.wrong.partition(":")[2]

    def load(self, target: str) -> KernelUnderTest:
        """Return the wrong kernel or its twin as the suite judges it."""
        module, _, function = target.partition(":")
        launch = getattr(import_module(f"tests.corpora.false_proofs.{module}"), function)
        return KernelUnderTest(function, launch, Contract(**self.fields), **self.more)


ALL = (BOUNDS, FIT, HINTS, ONCE, LANES, EXACT)
USED = ALL[:-1]  # all but the product
RELU = {
    "operands": {"bias": Operand("fp32", "N")},
    "spec": lambda a, b, bias: np.maximum(a @ b + bias, 0),
}
ROWS = (
    FalseProof(
        "integers:row_above_48_bits", "integers:row_above_32_bits", (FIT, BOUNDS),
        (BOUNDS, FIT, HINTS, LANES)),
    FalseProof(
        "integers:cursor_in_32_bits", "integers:cursor_in_64_bits", (FIT, BOUNDS, EXACT), ALL),
    FalseProof(
        "integers:last_step_wraps", "integers:last_step_fits", (FIT, BOUNDS, EXACT), ALL,
        fields={"K": "1..65535"}),
    FalseProof(
        "integers:quotient_of_a_negative_constant", "integers:quotient_of_a_natural_constant",
        (EXACT,), ALL),
    FalseProof(
        "integers:int8_sums_in_fp32", "integers:int8_sums_in_int32", (EXACT,), ALL,
        fields={"formats": ("int8",)}),
    FalseProof(
        "integers:sums_of_1025_bytes_in_fp32", "integers:sums_of_1024_bytes_in_fp32", (EXACT,), ALL,
        hidden=True, fields={"formats": ("int8",)}),
    FalseProof(
        "lanes:sums_transposed_by_every_step", "lanes:sums_transposed_and_back", (EXACT,), ALL),
    FalseProof("lanes:sums_flipped_by_every_step", "lanes:sums_flipped_and_back", (EXACT,), ALL),
    FalseProof("lanes:sums_gathered_by_every_step", "lanes:sums_gathered_and_back", (EXACT,), ALL),
    FalseProof("lanes:tile_in_any_order", "lanes:tile_in_its_order", (EXACT,), ALL),
    FalseProof(
        "lanes:undefined_scales_gathered", "lanes:padded_scales_gathered", (LANES, EXACT), USED),
    FalseProof(
        "lanes:scales_gathered_beyond_the_tile", "lanes:scales_gathered_within_the_tile",
        (LANES, EXACT), USED),
    FalseProof(
        "lanes:undefined_scales_multiplied", "lanes:padded_scales_multiplied", (LANES, EXACT),
        USED),
    FalseProof(
        "lanes:wrapped_rows_said_to_be_a_run", "lanes:wrapped_rows_without_a_hint", (HINTS,), ALL,
        fields={"layouts": "any"}),
    FalseProof("lanes:relu_loses_nan", "lanes:relu_keeps_nan", (), USED, more=RELU),
    FalseProof("hosts:parts_of_two_tuners", "hosts:parts_of_the_wrapper", (EXACT,), ALL),
    FalseProof(
        "hosts:workspace_step_in_32_bits", "hosts:workspace_step_in_64_bits",
        (FIT, BOUNDS, EXACT), ALL, hidden=True,
        assumption="a workspace of shape (8, M, N) below 2**31 elements"),
    FalseProof(
        "hosts:rest_of_many_rows_dropped", "hosts:rest_of_many_rows_rounded_up",
        (ONCE, EXACT), ALL),
    FalseProof(
        "hosts:depth_of_a_shape_too_short", "hosts:depth_of_every_shape_is_k", (EXACT,), ()),
    FalseProof(
        "hosts:columns_on_the_second_axis", "hosts:elements_on_the_first_axis",
        (ONCE, EXACT), ALL),
    FalseProof(
        "hosts:steps_of_four_multiprocessors", "hosts:steps_of_all_multiprocessors",
        (ONCE, EXACT), ALL),
    FalseProof(
        "hosts:columns_beyond_65536_not_added", "hosts:every_column_added", (ONCE,),
        (BOUNDS, FIT, HINTS, LANES, EXACT), hidden=True),
)  # fmt: skip

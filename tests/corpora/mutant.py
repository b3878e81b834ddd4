"""A wrong kernel of a corpus: its class, and the expected finding at its smallest case."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from importlib import import_module

from tests.support.wide import wide

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import OPERANDS

CLASSES = {
    "A": "K tail",
    "B": "undefined lanes",
    "C": "coverage",
    "D": "32-bit offsets",
    "E": "strides and axes",
    "F": "false hints",
    "G": "split-K and configurations",
    "H": "scheduling",
    "I": "precision",
    "J": "scales and packing",
    "K": "degenerate sizes",
    "L": "descriptors",
    "O": "determinism",
    "P": "state between calls",
    "Q": "refused by the compiler",
    "R": "operands and formulas",
    "S": "work of the host",
}
PROPERTIES = {
    "COMPILES": "compiles",
    "ENDS": "runs_to_completion",
    "BOUNDS": "stays_in_bounds",
    "ONCE": "stores_each_element_once",
    "LANES": "undefined_lanes_never_stored",
    "HINTS": "every_hint_holds",
    "FIT": "offsets_fit",
    "RACES": "no_races",
    "HOST": "computed_by_kernels",
    "EXACT": "exact_on_integers",
    "BOUND": "within_bound",
    "SAME": "same_bits_on_dirty_outputs",
    "ROWS": "row_bits_at_any_m",
    "CALLS": "call_order",
    "INPUTS": "leaves_inputs_untouched",
    "SPECIAL": "special_values",
    "SYMMETRY": "symmetries",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel that is wrong in one way, and the expected finding.

    `wrapper` is "module:function" in `folder`, called instead of that of `right`, the kernel
    without the fault, where there is one. Its first finding must be of
    `property`, of class `fault`, blame `operand` and `axis`, and have `smallest` as its case. Where
    the data decide whether the fault shows, the sides of the case need only sum to no more. `lane`
    is the lane of tests that judges it: one of each class is in the default one.
    """

    letter: str
    wrapper: str
    property: str
    fault: str
    operand: str | None
    axis: str | None
    smallest: Case
    contract: Contract
    target: str | None
    folder: str
    right: KernelUnderTest | None = field(compare=False)
    lane: str

    @property
    def name(self) -> str:
        """The function's name, which states the fault."""
        return self.wrapper.partition(":")[2]

    def is_stated(self, finding: Finding) -> bool:
        """Return whether a finding is the declared one."""
        case, own = finding.case, self.smallest
        if own.fill == "index":
            small = case == own
        else:
            small = case.M + case.N + case.K <= own.M + own.N + own.K
        return small and (finding.property, finding.fault, finding.operand, finding.axis) == (
            self.property,
            self.fault,
            self.operand,
            self.axis,
        )

    @property
    def kernel(self) -> KernelUnderTest:
        """The mutant as the suite judges it."""
        module, _, function = self.wrapper.partition(":")
        launch = getattr(import_module(f"tests.corpora.{self.folder}.{module}"), function)
        if self.right is not None:
            return replace(self.right, name=self.name, launch=launch)
        return KernelUnderTest(self.name, launch, self.contract)


def parse(line: str, folder: str = "mutants", right: KernelUnderTest | None = None) -> Mutant:
    """Return the mutant that a line declares.

    Its words are class, wrapper, property, fault, operand, axis, the smallest M N K, and NAME=VALUE
    for what else the case, its further operands, the contract or the check has, and for its lane;
    - for none.
    """
    letter, wrapper, claim, fault, operand, axis, M, N, K, *rest = line.split()
    declared = dict(word.split("=") for word in rest)
    target, invariant = declared.pop("target", None), declared.pop("invariant", None)
    admitted = declared.pop("layouts", None)
    lane = declared.pop("lane", "full")
    options = {k: int(v) if v.isdigit() else v for k, v in declared.items()}
    layouts = tuple((name, options.pop(name)) for name in "ab" if name in options)
    if right is not None:
        options.setdefault("dtype", min(right.contract.formats, key=OPERANDS.index))
    known = {f.name for f in fields(Case)}
    arguments = tuple((n, declared[n]) for n in declared if n in options and n not in known)
    options = {n: value for n, value in options.items() if n in known}
    case = Case(int(M), int(N), int(K), layouts=layouts, arguments=arguments, **options)
    contract = right.contract if right is not None else _wide(case, invariant is not None)
    if admitted is not None:
        contract = replace(contract, layouts=admitted)
    operand_and_axis = (None if word == "-" else word for word in (operand, axis))
    judged = (*operand_and_axis, case, contract, target, folder, right, lane)
    return Mutant(letter, wrapper, PROPERTIES[claim], fault, *judged)


def _wide(case: Case, invariant: bool) -> Contract:
    batched = case.batch is not None
    return wide(formats=(case.dtype,), batched=batched, batch_invariant=invariant)

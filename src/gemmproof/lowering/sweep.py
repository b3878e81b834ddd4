"""Launches with other specialisations, compiled and compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.lowering.compile import DIVISIBILITY, CapturedLaunch, join_launches
from gemmproof.lowering.record import format_known
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import BATCHED, LAYOUTS, ROW, view
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.provenance import format_count
from gemmproof.target import TargetError

# -- changes -------------------------------------------------------------------------------------
DIVISIBLE = 16  # the divisor that Triton specialises sizes, strides and addresses for
_SWEPT = ("column", "padded", "transposed", "sliced", "misaligned", "batch_inner", "shared")


def list_case_changes(
    case: Case, kernel: KernelUnderTest, layouts: Collection[str]
) -> Iterator[tuple[str, Case]]:
    """Yield each single change as text, and the changed case; only admitted sizes are tried.

    Two things change if a row is padded by what its length loses, so that its stride stays
    divisible.
    """
    sources = (_change_sizes(case), _change_layouts(case, layouts), _change_operands(case, kernel))
    for text, changes in (pair for source in sources for pair in source):
        try:
            changed = replace(case, **changes)
        except ValueError:  # more elements than a case may have
            continue
        if kernel.contract.admits(changed.sides):
            yield text, changed


Changes = Iterator[tuple[str, dict[str, Any]]]


def _change_sizes(case: Case) -> Changes:
    for axis, size in case.sides.items():
        odd = size - 1 if size > 1 else 3
        other = odd if size % DIVISIBLE == 0 or size == 1 else size + -size % DIVISIBLE
        for n in dict.fromkeys((other, 1)):
            if n != size:
                yield f"{axis}={n}", {axis: n}


def _change_layouts(case: Case, layouts: Collection[str]) -> Changes:
    for name, role in ROLES.items():
        for layout in (ROW, *_SWEPT):
            fits = case.batch is not None or layout not in BATCHED
            if fits and layout in layouts and layout != case.layout(name):
                yield f"{name} {layout}", _lay_out(case, name, layout)
        rows = role.axes[1]
        _, height, width = case.shape_of(name)
        lead = view("padded", (1, height, width), role.number, 2).strides[1]
        if "padded" in layouts and case.layout(name) == ROW and width > lead - width:
            size = width - (lead - width)
            padded = _lay_out(case, name, "padded")
            yield f"{rows}={size}, {name} padded", {rows: size, **padded}


def _lay_out(case: Case, name: str, layout: str) -> dict[str, Any]:
    return {"layouts": tuple({**dict(case.layouts), name: layout}.items())}


def _change_operands(case: Case, kernel: KernelUnderTest) -> Changes:
    declared = dict(case.arguments)
    for name, values in kernel.list_options().items():
        for value in values:
            if value != declared.get(name, values[0]) and (value in _SWEPT or value not in LAYOUTS):
                yield f"{name} {value}", {"arguments": tuple({**declared, name: value}.items())}


# -- variants ------------------------------------------------------------------------------------
Capture = Callable[[Case], list[CapturedLaunch]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A launch, and its difference from base number `base` of the case.

    `change` describes it, "" for the base itself. `arguments`: the specialisations that differ,
    before and after. `constants`: constants of the source that differ. `altered`: no case changes
    these alone. `also`: other changes that give this very launch.
    """

    launch: CapturedLaunch
    base: int
    change: str = ""
    altered: bool = False
    arguments: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    constants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the launch, as plain data."""
        return {
            "base": self.base,
            "change": self.change,
            "also": list(self.also),
            "altered": self.altered,
            "arguments": {name: list(x) for name, x in self.arguments.items()},
            "constants": {name: list(x) for name, x in self.constants.items()},
        }


def find_variants(
    case: Case, changes: Sequence[tuple[str, Case]], capture: Capture, notes: list[str]
) -> list[Variant]:
    """Return the launches of a case, and those that a change of it or of an argument makes.

    `notes` gets a line on each change that the wrapper rejects or that alters the number of
    launches.
    """
    bases = join_launches(capture(case))
    variants = {(i, *base.key): Variant(base, i) for i, base in enumerate(bases)}
    for text, changed in changes:
        try:
            launches = join_launches(capture(changed))
        except TargetError as mistake:
            notes.append(f"{text}: {mistake}")
            continue
        if len(launches) != len(bases):
            kernels = " ".join(x.kernel for x in launches) or "none"
            count = format_count(len(launches), "launch")
            notes.append(f"{text}: got {count} ({kernels}), expected {len(bases)} to compare")
            continue
        for i, (base, launch) in enumerate(zip(bases, launches, strict=True)):
            variant = Variant(launch, i, text, False, *describe_difference(base, launch))
            first = variants.setdefault((i, *launch.key), variant)
            if first is not variant and first.change:
                first.also.append(text)
    for i, base in enumerate(bases):
        for name, before, after in list_alterations(base):
            launch = alter(base, name, after)
            text = f"{name} {format_known(after)}"
            altered = Variant(launch, i, text, True, {name: (before, after)})
            variants.setdefault((i, *launch.key), altered)  # a real call's takes precedence
    return sorted(variants.values(), key=lambda v: (bool(v.change), v.base))


def describe_difference(
    base: CapturedLaunch, launch: CapturedLaunch
) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Return the specialisations, and the constants of the source, that differ."""
    if base.kernel != launch.kernel:
        return {}, {"kernel": (base.kernel, launch.kernel)}
    before, after = base.specialised, launch.specialised
    arguments = {
        name: (before[name], after[name])
        for name in before
        if name in after and before[name] != after[name]
    }
    old, new = (_list_constants(x) for x in (base, launch))
    declared = dict.fromkeys((*old, *new))
    constants = {
        name: (old.get(name, "none"), new.get(name, "none"))
        for name in declared
        if old.get(name) != new.get(name)
    }
    options = (("warps", "num_warps"), ("stages", "num_stages"))
    for label, option in options:
        base_option, launch_option = (getattr(x.options, option) for x in (base, launch))
        constants |= (
            {label: (str(base_option), str(launch_option))} if base_option != launch_option else {}
        )
    return arguments, constants


def _list_constants(launch: CapturedLaunch) -> dict[str, str]:
    """Return the constants that the source declares, as text: tuned, heuristic, or passed."""
    declared = {p.name for p in launch.source.fn.params if p.is_constexpr}
    return {n: str(getattr(x, "value", x)) for n, x in launch.constants.items() if n in declared}


def list_alterations(launch: CapturedLaunch) -> Iterator[tuple[str, str, str]]:
    """Yield each argument that Triton specialises, with its present and another specialisation.

    Arguments that the kernel itself asks not to specialise are excluded.
    """
    for name, known in launch.specialised.items():
        parameter = next(p for p in launch.source.fn.params if p.name == name)
        if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
            continue
        yield name, known, "16" if known == "" else ""


def list_unspecialised(launch: CapturedLaunch) -> Iterator[str]:
    """Yield a line on what a kernel asks not to be specialised, if anything."""
    unspecialised = [p.name for p in launch.source.fn.params if p.do_not_specialize]
    if unspecialised:
        yield f"{launch.kernel} asks for no specialisation of {' '.join(unspecialised)}"
    if launch.descriptors:
        count = len(launch.descriptors)
        yield f"{launch.kernel} takes {count} descriptors, of which nothing is specialised"


def alter(launch: CapturedLaunch, name: str, known: str) -> CapturedLaunch:
    """Return the launch with another specialisation of an argument: divisible by 16, or none."""
    source = launch.source
    path = (source.fn.arg_names.index(name),)
    signature, attrs = dict(source.signature), dict(source.attrs)
    constants = dict(source.constants)
    if constants.pop(path, None) is not None:
        signature[name] = "i32"
    others = [x for x in attrs.get(path, ()) if x[0] != DIVISIBILITY]
    attrs[path] = [[DIVISIBILITY, 16], *others] if known == "16" else others
    changed = type(source)(source.fn, signature, constants, attrs)
    return replace(launch, source=changed)

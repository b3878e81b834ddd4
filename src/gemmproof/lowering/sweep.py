"""Launches specialised otherwise, compiled and compared."""

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
DIVISIBLE = 16  # what Triton asks of sizes, strides and addresses
_SWEPT = ("column", "padded", "transposed", "sliced", "misaligned", "batch_inner", "shared")


def list_case_changes(
    case: Case, kernel: KernelUnderTest, layouts: Collection[str]
) -> Iterator[tuple[str, Case]]:
    """One thing changed at a time, in words, and the case; sizes are those that are admitted.

    Two things where a row is padded by what its length loses, so that its stride stays divisible.
    """
    found = (_change_sizes(case), _change_layouts(case, layouts), _change_operands(case, kernel))
    for words, changes in (pair for part in found for pair in part):
        try:
            changed = replace(case, **changes)
        except ValueError:  # more elements than a case may have
            continue
        if kernel.contract.admits(changed.sides):
            yield words, changed


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
    said = dict(case.arguments)
    for name, words in kernel.list_options().items():
        for word in words:
            if word != said.get(name, words[0]) and (word in _SWEPT or word not in LAYOUTS):
                yield f"{name} {word}", {"arguments": tuple({**said, name: word}.items())}


# -- variants ------------------------------------------------------------------------------------
Capture = Callable[[Case], list[CapturedLaunch]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A launch, and how it differs from the base-th of the case: `change` in words, "" for itself.

    `arguments`: what Triton knows of those of which it knows something else, before and now.
    `constants`: constants of the source that are others. `altered`: no case changes these alone.
    `also`: other changes that give this very launch.
    """

    launch: CapturedLaunch
    base: int
    change: str = ""
    altered: bool = False
    arguments: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    constants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    also: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """All but the launch, as plain data."""
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
    """The launches of a case, then each that a change of it or of an argument makes of one.

    `notes` gets a line on each change that the wrapper does not take or that launches others.
    """
    bases = join_launches(capture(case))
    found = {(i, *base.key): Variant(base, i) for i, base in enumerate(bases)}
    for words, changed in changes:
        try:
            launches = join_launches(capture(changed))
        except TargetError as mistake:
            notes.append(f"{words}: {mistake}")
            continue
        if len(launches) != len(bases):
            kernels = " ".join(x.kernel for x in launches) or "none"
            count = format_count(len(launches), "launch")
            notes.append(f"{words}: got {count} ({kernels}), expected {len(bases)} to compare")
            continue
        for i, (base, launch) in enumerate(zip(bases, launches, strict=True)):
            variant = Variant(launch, i, words, False, *describe_difference(base, launch))
            first = found.setdefault((i, *launch.key), variant)
            if first is not variant and first.change:
                first.also.append(words)
    for i, base in enumerate(bases):
        for name, before, after in list_alterations(base):
            launch = alter(base, name, after)
            words = f"{name} {format_known(after)}"
            made = Variant(launch, i, words, True, {name: (before, after)})
            found.setdefault((i, *launch.key), made)  # a real call's, where there is one
    return sorted(found.values(), key=lambda v: (bool(v.change), v.base))


def describe_difference(
    base: CapturedLaunch, launch: CapturedLaunch
) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """What is known of arguments, and which constants of the source are others."""
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
    for word, option in options:
        ours, theirs = (getattr(x.options, option) for x in (base, launch))
        constants |= {word: (str(ours), str(theirs))} if ours != theirs else {}
    return arguments, constants


def _list_constants(launch: CapturedLaunch) -> dict[str, str]:
    """Those that the source declares, as text: tuned, by heuristics, or given by the wrapper."""
    declared = {p.name for p in launch.source.fn.params if p.is_constexpr}
    return {n: str(getattr(x, "value", x)) for n, x in launch.constants.items() if n in declared}


def list_alterations(launch: CapturedLaunch) -> Iterator[tuple[str, str, str]]:
    """Each argument that Triton specialises, what it knows, and what it would know otherwise.

    What the kernel itself asks it not to specialise is none of them.
    """
    for name, known in launch.specialised.items():
        parameter = next(p for p in launch.source.fn.params if p.name == name)
        if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
            continue
        yield name, known, "16" if known == "" else ""


def list_unspecialised(launch: CapturedLaunch) -> Iterator[str]:
    """A line on what a kernel asks not to be specialised, if there is any."""
    asked = [p.name for p in launch.source.fn.params if p.do_not_specialize]
    if asked:
        yield f"{launch.kernel} asks for no specialisation of {' '.join(asked)}"
    if launch.descriptors:
        count = len(launch.descriptors)
        yield f"{launch.kernel} takes {count} descriptors, of which nothing is specialised"


def alter(launch: CapturedLaunch, name: str, known: str) -> CapturedLaunch:
    """The launch with something else known of an argument: divisible by 16, or nothing."""
    source = launch.source
    at = (source.fn.arg_names.index(name),)
    signature, attrs = dict(source.signature), dict(source.attrs)
    constants = dict(source.constants)
    if constants.pop(at, None) is not None:
        signature[name] = "i32"
    others = [x for x in attrs.get(at, ()) if x[0] != DIVISIBILITY]
    attrs[at] = [[DIVISIBILITY, 16], *others] if known == "16" else others
    changed = type(source)(source.fn, signature, constants, attrs)
    return replace(launch, source=changed)

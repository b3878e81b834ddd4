"""The report of a check, and its records."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding, find_reasons
from gemmproof.reference.provenance import format_count

if TYPE_CHECKING:
    from gemmproof.properties.judges.accumulator_drift import Drift


# -- record --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The launches that were predicted for `target` ("" for none), compiled for it and compared.

    Of `launches` all but those `failed` were compiled, in `seconds`; of their `dots` `agreed`
    agreed, `differ` differ, and the others are not visible in the compiled program. `contradicted`
    are lines with both sides, `unknown` lines with reasons, each once. `not_compared`
    counts, of the dots that agreed, what could not be compared.
    """

    target: str
    launches: int
    dots: int
    agreed: int
    differ: int
    seconds: float = 0.0
    unknown: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    not_compared: Mapping[str, int] = field(default_factory=dict)

    @property
    def not_known(self) -> int:
        """The number of dots that the compiled programs do not show."""
        return self.dots - self.agreed - self.differ

    @property
    def is_kept(self) -> bool:
        """True if every launch was compiled, and nothing is contradicted."""
        return not self.contradicted and not self.failed

    def say(self) -> str:
        """Format the result as one line."""
        if not self.launches:
            return "model check: no dot was predicted, so none was compiled"
        compiled = self.launches - len(self.failed)
        head = f"model check: {format_count(compiled, 'launch')} compiled for {self.target}"
        parts = [f"{self.agreed} of {format_count(self.dots, 'dot')} as predicted"]
        if self.differ:
            parts.append(f"{self.differ} not")
        if unknown := self.not_known:
            parts.append(f"{unknown} not known")
        if self.failed:
            parts.append(f"{format_count(len(self.failed), 'launch')} not compiled")
        if len(parts) == 1:
            return f"{head}, all as predicted"
        return f"{head}: {', '.join(parts)}"

    def list_lines(self, most: int) -> Iterator[str]:
        """Yield what is not as predicted, or not known: up to `most` lines of each kind."""
        for lines in (self.contradicted, self.failed, self.unknown):
            yield from (f"  {line}" for line in lines[:most])
            if len(lines) > most:
                yield f"  and {len(lines) - most} more: --json has all"


# -- facts ---------------------------------------------------------------------------------------
AXES = ("M", "N", "K")
UNKNOWN = "not known"
# statuses of a property that no case judged
NOT_RUN, NOT_EXERCISED, NOT_APPLICABLE = "not run", "not exercised", "does not apply"
NOT_JUDGED = "not judged"
UNJUDGED = (NOT_RUN, NOT_EXERCISED, NOT_APPLICABLE, NOT_JUDGED)
MEMORY_ONLY = "memory only: values not judged"
# residues of a size modulo the tile of its axis; a tile of 1 leaves 0, one of 2 leaves 0 or 1
RESIDUES = ("0", "1", "BLOCK-1", "other")


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a kernel: the hashes of its parts' texts in the project, and its guarantees.

    `source` are the parts that the wrapper can reach (identity.py), `formula` those of its
    formula. `contract` and `operands` are text. `lack` is the reason, in one line, if unknown.
    """

    source: dict[str, str] = field(default_factory=dict)
    formula: dict[str, str] = field(default_factory=dict)
    contract: dict[str, object] = field(default_factory=dict)
    operands: dict[str, str] = field(default_factory=dict)
    lack: str = ""

    @property
    def digest(self) -> str:
        """One hash of the wrapper, its kernels and what they call; "" if it is not known."""
        return hash_texts(self.source.values()) if self.source else ""

    def of_formats(self, names: Iterable[str]) -> Identity:
        """Return the same kernel under a contract of other formats."""
        return replace(self, contract={**self.contract, "formats": list(names)})


@dataclass(frozen=True, slots=True)
class Bits:
    """The result of a simulated call at a case: a hash of the bits of all its results."""

    case: str
    digest: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """The residues of the judged cases modulo the tiles, and the bits of a few of them by format.

    `residues`: "0 1 other" -> how many cases had M mod BLOCK_M = 0, N mod BLOCK_N = 1 and so on,
    "not known" for an axis whose tile no constexpr names.
    """

    residues: dict[str, int] = field(default_factory=dict)
    bits: dict[str, tuple[Bits, ...]] = field(default_factory=dict)

    def count(self, axis: str) -> dict[str, int]:
        """Return how many cases had each residue along M, N or K."""
        counts = dict.fromkeys((*RESIDUES, UNKNOWN), 0)
        for word, count in self.residues.items():
            counts[split_residues(word)[AXES.index(axis)]] += count
        return counts

    @staticmethod
    def merge(parts: Iterable[Coverage | None]) -> Coverage:
        """Return the coverage of several checks, each of different formats."""
        known = [part for part in parts if part is not None]
        residues = sum((Counter(part.residues) for part in known), Counter[str]())
        bits = {name: kept for part in known for name, kept in part.bits.items()}
        return Coverage(dict(sorted(residues.items())), bits)


def join_residues(parts: Iterable[str]) -> str:
    """Return the residues of M, N and K as one string."""
    return ", ".join(parts)


def split_residues(word: str) -> tuple[str, ...]:
    """Return the residues of M, N and K. Raises ValueError for invalid ones."""
    parts = tuple(word.split(", "))
    if len(parts) != len(AXES) or not set(parts) <= {*RESIDUES, UNKNOWN}:
        raise ValueError(f"residues: got {word!r}, expected one of each axis")
    return parts


def hash_texts(texts: Iterable[str]) -> str:
    """Return one hash of some texts, independent of their order and repeats."""
    return hashlib.sha256("\n".join(sorted(set(texts))).encode()).hexdigest()


# -- lost reports --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Regression:
    """A change that contradicts a baseline: `kernel` is "" for all, `kind` a value of `--accept`.

    `is_refused`: it fails the run; else the run is incomplete.
    """

    kernel: str
    kind: str
    text: str
    is_refused: bool

    @property
    def line(self) -> str:
        """The change in one line."""
        where = f"{self.kernel}: " if self.kernel else ""
        return f"against the baseline: {where}{self.text}"


# -- report --------------------------------------------------------------------------------------
SCHEMA: Literal[3] = 3
Verdict = Literal["pass", "fail", "error", "incomplete", "draft"]
PACKAGES = ("gemmproof", "triton", "torch", "numpy", "ml_dtypes")
# The verdicts, each with the exit code of a command.
CONTRADICTED = "contradicted"  # a proof, by a case
EXIT = {"pass": 0, "fail": 1, "error": 2, "incomplete": 3, "draft": 4}
GRAVEST_FIRST: tuple[Verdict, ...] = ("fail", "error", "incomplete", "draft", "pass")
# verdicts of kernels without a finding that are no pass, the gravest first
UNCONFIRMED: tuple[Verdict, ...] = ("error", "incomplete", "draft")


@dataclass(frozen=True, slots=True)
class ProofResult:
    """A solver's result for a property.

    `status` is "proved", "refuted", "not decided", or "contradicted" if a judged case contradicts
    it. `scope` is where it is proved ("every M, N, K, any strides") under the `assumptions`, `why`
    what was refuted, or the reason why nothing was decided; `cut` is "time" or "death" if only that
    is the reason.
    """

    status: str
    scope: str = ""
    why: str = ""
    cut: str = ""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """The result of one property.

    Attributes:
        name: The name of the property.
        claim: The claim in one sentence.
        status: "pass", "fail", "expected" (it fails as the contract expects), "not exercised" (no
            case would show a violation), "does not apply" (no case of the contract can show one),
            "not judged" (as requested) or "not run".
        examples: The number of cases that exercised it, or of launches if `backend` is "compiler".
        ratio: The largest error over its bound, None if the property has no bound.
        backend: "simulator", "cuda" for launches, or "compiler" for compiled launches.
        proof: The decision for every size, None if none was attempted.
        reason: The reason why it is expected to fail, or None.
        why: The reason in one line why it was not exercised or judged or does not apply, or "".
        parts: The number of cases that exercised each part of it, such as a relation between calls.
        missing: The formats and parts that were not exercised; none if that is the whole property.
        pairs: The number of pairs of M whose rows were compared, None if it compares none.
    """

    name: str
    claim: str
    status: str
    examples: int
    ratio: float | None = None
    backend: str = "simulator"
    proof: ProofResult | None = None
    reason: str | None = None
    why: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    pairs: int | None = None

    @property
    def label(self) -> str:
        """The name, with the backend if that is a GPU: other backends have the property too."""
        return f"{self.name} on {self.backend}" if self.backend == "cuda" else self.name

    @property
    def is_proved(self) -> bool:
        """True if it holds for every size, and no case contradicts that."""
        held = self.status not in ("fail", "expected")
        return held and self.proof is not None and self.proof.status == "proved"

    @property
    def is_gap(self) -> bool:
        """True if neither a case nor a proof judged it, at least in a format or part."""
        return self.status == NOT_EXERCISED and not self.is_proved

    @property
    def is_disputed(self) -> bool:
        """True if a case contradicts its proof: an error of gemmproof's own."""
        return self.proof is not None and self.proof.status == CONTRADICTED


def mark_failures(
    results: Iterable[PropertyResult], findings: Sequence[Finding], expected: Mapping[str, str]
) -> tuple[PropertyResult, ...]:
    """Return the results with the status of those that a finding shows to fail, on its backend.

    `expected` has the reason of each property that is expected to fail; its own findings and those
    that follow from them are expected.
    """
    reasons = find_reasons(findings, expected)
    status = {(f.property, f.backend): "expected" for f in findings if f in reasons}
    status |= {(f.property, f.backend): "fail" for f in findings if f not in reasons}
    excused = {(f.property, f.backend): reason for f, reason in reasons.items()}
    return tuple(
        replace(
            result,
            status=status.get((result.name, result.backend), result.status),
            reason=expected.get(result.name, excused.get((result.name, result.backend))),
        )
        for result in results
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """The behaviour of a kernel one step beyond its contract; `option` adds that to the contract.

    `status` is "holds", "limit" (`message` is what happens at `case`), "not tried" (the reason), or
    "needed": a narrower contract, of a kernel that breaks its own. `proof`: where exactly it
    begins, as text, or "" if no solver decided that.
    """

    name: str
    option: str
    status: str
    message: str = ""
    case: Case | None = None
    proof: str = ""


READS = "reads"


@dataclass(frozen=True, slots=True)
class Note:
    """A line on what a report covers, and the verdict that it leads to if nothing is graver.

    `gap` is READS for a line that looks for the checker, which a sign-off may accept, else "".
    """

    text: str
    verdict: Verdict = "pass"
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one check.

    Attributes:
        schema: The version of the JSON form.
        target: The kernel's name; of a command, TARGET as it was typed.
        properties: The result of each property.
        findings: The findings, root causes first, each with its smallest case.
        seconds: The time of the check.
        versions: The versions of the packages involved.
        notes: Errors, what could not run, and what was launched where. Findings and notes alone
            decide the verdict.
        drift: The result of `gemmproof drift`, or None.
        limits: Limits beyond the contract, if they were tried. They are no findings.
        names: The wrapper's names for a and b, if known. Messages use them; findings use a and b.
        unvisited: The branches of wrapper and kernel that no case took, each with what it needs.
        expected: Findings that the contract expects. They change no verdict.
        identity: The hashes of the kernel's source, if a worker loaded it.
        coverage: The tiles and bits that the cases reached, or None.
        model_check: The comparison of predicted launches with compiled ones, if requested.
    """

    schema: Literal[3]
    target: str
    properties: tuple[PropertyResult, ...]
    findings: tuple[Finding, ...]
    seconds: float
    versions: dict[str, str]
    notes: tuple[Note, ...] = ()
    drift: Drift | None = field(
        default=None, metadata={"late": "gemmproof.properties.judges.accumulator_drift"}
    )
    limits: tuple[Limit, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    unvisited: tuple[str, ...] = ()
    expected: tuple[Finding, ...] = ()
    identity: Identity | None = field(default=None, metadata={"renamed": "facts"})
    coverage: Coverage | None = None
    model_check: ModelCheck | None = field(default=None, metadata={"renamed": "premises"})
    derived: ClassVar[tuple[str, ...]] = ("verdict", "note", "memory_only")

    @property
    def verdict(self) -> Verdict:
        """The gravest of "fail", if there are findings, and the verdicts of the notes.

        "error" if a proof and a case contradict each other: one of them is wrong.
        """
        proofs = (p.proof for p in self.properties)
        if any(proof is not None and proof.status == CONTRADICTED for proof in proofs):
            return "error"
        verdicts = {note.verdict for note in self.notes} | ({"fail"} if self.findings else set())
        return next((v for v in GRAVEST_FIRST if v in verdicts), "pass")

    @property
    def memory_only(self) -> bool:
        """True if values were not judged, as requested."""
        return any(p.status == NOT_JUDGED for p in self.properties)

    @property
    def note(self) -> str | None:
        """All notes in one line, or None if there are none."""
        return "; ".join(note.text for note in self.notes) or None

    def with_note(self, text: str, verdict: Verdict = "pass", gap: str = "") -> Report:
        """Return the report with another note."""
        return replace(self, notes=(*self.notes, Note(text, verdict, gap)))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages involved, if they are installed."""
    from importlib import metadata  # it takes as long to load as the rest of this module

    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # a source tree on the path
            continue
    return installed

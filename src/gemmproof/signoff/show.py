"""What pages and answers say of a sign-off, in words: the same in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmproof.properties.contract import COMPILER
from gemmproof.reference.provenance import say_count
from gemmproof.report.facts import AXES, RESIDUES, UNKNOWN, Coverage
from gemmproof.report.report import PropertyResult
from gemmproof.report.text import STYLES, Line, clean
from gemmproof.signoff.record import (
    GRAVEST,
    INCOMPLETE,
    NOT_MEASURED,
    NOT_RUN,
    REFUSED,
    SIGNED,
    DriftClass,
    Inputs,
    KernelRecord,
    Reason,
    Signoff,
    list_accepting,
    weigh,
)

PREDICTED = "equals_prediction"  # properties/judges/determinism.py brings torch
BESIDES = "Besides, since the baseline"
SHORT = 12  # digits of a hash
SHOWN = 20  # changes that an answer shows: --json has all
_STYLES = {SIGNED: "", INCOMPLETE: STYLES["incomplete"], REFUSED: STYLES["fail"]}


def lines(signed: Signoff) -> list[Line]:
    """What a command prints of it besides the table: the drift, and what a baseline adds."""
    drift = _list_drift(signed)
    if signed.baseline is None:
        return drift
    said: list[Line] = [*drift, ("against the baseline:", "bold")]
    if not signed.changes:
        said.append(("  nothing changed", ""))
    for one in _sort(signed.changes)[:SHOWN]:
        weight = say_weight(one)
        said.append(
            (clean(f"  {say_reason(one)}{weight and f'  [{weight}]'}"), _STYLES[weigh(one)])
        )
    if len(signed.changes) > SHOWN:
        said.append((f"  and {len(signed.changes) - SHOWN} more: --json has all", ""))
    return [*said, ("", "")]


def list_unused(signed: Signoff, accepted: Iterable[str]) -> list[Line]:
    """What --accept says of nothing: of another kernel than was meant, or of what is mended."""
    used = {word for one in signed.changes if one.accepted for word in list_accepting(one)}
    why = "no --baseline, which it is about" if signed.baseline is None else "nothing of that kind"
    unused = [word for word in dict.fromkeys(accepted) if word not in used]
    return [(clean(f"note: --accept {word}: got {why}, accepted nothing"), "") for word in unused]


def list_uncounted(signed: Signoff) -> Iterator[Line]:
    """The measurements that were given and do not count, with the first reason."""
    for option, name in (("bench", "why_not_timed"), ("mutation", "why_not_mutated")):
        lacking = [k for k in signed.kernels if getattr(k, name)]
        if lacking:
            of = f"{len(lacking)} of {say_count(len(signed.kernels), 'kernel')}"
            why = f"{lacking[0].report.target}: {getattr(lacking[0], name)}"
            yield (clean(f"note: --{option} does not count for {of}: {why}"), "")


def _list_drift(signed: Signoff) -> list[Line]:
    measured = [kernel for kernel in signed.kernels if kernel.drift]
    width = max((len(clean(kernel.report.target)) for kernel in measured), default=0)
    said = [f"  {clean(k.report.target):<{width}}  {clean(say_drift(k))}" for k in measured]
    return [("drift:", "bold"), *((line, "") for line in said), ("", "")] if said else []


def _sort(reasons: Iterable[Reason]) -> list[Reason]:
    """What weighs most first."""
    return sorted(reasons, key=lambda one: GRAVEST.index(weigh(one)))


def say_reason(reason: Reason) -> str:
    """A reason or a change in one line."""
    return f"{reason.kernel}: {reason.text}" if reason.kernel else reason.text


def say_weight(reason: Reason) -> str:
    """What it does to the verdict, "" where it is only told."""
    return "accepted" if reason.accepted else "" if reason.weight == SIGNED else reason.weight


def say_head(signed: Signoff) -> str:
    """What stands above the reasons: without any weight they say what is not covered."""
    return "Reasons" if any(one.weight != SIGNED for one in signed.reasons) else "Not covered"


def say_unchanged(signed: Signoff) -> str:
    """What is said where a baseline tells nothing besides the reasons."""
    return "" if signed.changes else "Nothing changed since the baseline."


def say_inputs(inputs: Inputs) -> str:
    """What was asked, in one line."""
    target = f"bits of {inputs.target}" if inputs.target else "exact IEEE dots"
    device = "simulated and launched" if inputs.device == "cuda" else "simulated"
    said = [device, target, f"seed {inputs.seed}", f"{inputs.max_examples} cases of each format"]
    return ", ".join([*said, "proofs tried" if inputs.proof else "no proofs tried"])


def say_versions(versions: dict[str, str]) -> str:
    """The versions in one line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def say_proofs(kernel: KernelRecord) -> str:
    """How many of the properties that a solver looked at are proved."""
    tried = [p for p in kernel.report.properties if p.proof is not None]
    return f"{sum(p.is_proved for p in tried)} of {len(tried)}" if tried else "not tried"


def find_worst(kernel: KernelRecord) -> float | None:
    """The worst error over its bound, None where there is none."""
    return max((p.ratio for p in kernel.report.properties if p.ratio is not None), default=None)


def say_worst(kernel: KernelRecord) -> str:
    """The worst error over its bound."""
    worst = find_worst(kernel)
    return NOT_MEASURED if worst is None else say_ratio(worst)


def say_ratio(ratio: float) -> str:
    """An error over its bound, with so many digits that one within it does not look like 1."""
    if 0 < ratio < 0.0005:
        return "< 0.001"
    shown = (f"{ratio:.{places}f}" for places in range(3, 10))
    return next((x for x in shown if (float(x) == 1) == (ratio == 1)), f"{ratio!r}")


def say_cases(kernel: KernelRecord) -> str:
    """How many cases the property with the most of them judged."""
    judged = (p.examples for p in kernel.report.properties if p.backend != COMPILER)
    return str(max(judged, default=0))


def say_gpu(kernel: KernelRecord) -> str:
    """Whether its bits were seen on a GPU, and on how many cases."""
    ran = [p for p in kernel.report.properties if p.backend == "cuda" and p.status != NOT_RUN]
    if not ran:
        return NOT_RUN
    failed = [p.name for p in ran if p.status == "fail"]
    device = kernel.report.versions.get("device", "a GPU")
    cases = say_count(max(p.examples for p in ran), "case")
    predicted = next((p for p in ran if p.name == PREDICTED), None)
    said = "as predicted" if predicted is not None and not failed else ", ".join(failed) or "held"
    return f"{said} in {cases} on {device}"


def say_benchmark(kernel: KernelRecord) -> str:
    """The ratios that were measured, by format."""
    if kernel.benchmark is None:
        return NOT_MEASURED + (f" ({kernel.why_not_timed})" if kernel.why_not_timed else "")
    return "; ".join(
        f"{r.mean:.3f} of {r.peer} in {r.format} ({r.least:.3f}..{r.most:.3f},"
        f" {say_count(r.products, 'product')})"
        for r in kernel.benchmark.ratios
    )


def say_drift(kernel: KernelRecord) -> str:
    """The classes of its accumulators, each with its formats; where there is none, why."""
    found = sorted(kernel.drift, key=lambda one: not one.name)  # what was measured first
    gpu = found[0].gpu if found and found[0].name else ""
    formats: dict[str, list[str]] = {}
    for one in found:
        formats.setdefault(say_class(one), []).append(one.format)
    of = "{}: ".format if len(formats) > 1 else "".format  # all formats have it
    said = [f"{of(', '.join(names))}{words}" for words, names in formats.items()]
    return "; ".join([*said, *[f"on {gpu}"] * bool(gpu)]) or NOT_MEASURED


def say_class(one: DriftClass) -> str:
    """What the sums of one format are, and whether that is as good as the contract says."""
    if not one.name:
        return f"{NOT_MEASURED} ({one.why})"
    return one.name + ("" if one.is_kept else f", worse than the declared {one.declared}")


def say_mutation(kernel: KernelRecord) -> str:
    """The mutation score."""
    score = kernel.mutation
    if score is None:
        return NOT_MEASURED + (f" ({kernel.why_not_mutated})" if kernel.why_not_mutated else "")
    said = f"{score.killed} of {say_count(score.killed + score.survivors, 'mutant')} killed"
    besides = {"equivalent": score.equivalent, "without a difference seen": score.unseen}
    said += "".join(f", {count} {what}" for what, count in besides.items() if count)
    sampled = f"; a sample of {score.tried} of {score.of}" if score.tried < score.of else ""
    return said + sampled


def say_proof(result: PropertyResult) -> str:
    """What was decided for every size, "" where that was not tried."""
    if result.proof is None:
        return ""
    if result.is_proved:
        return f"proved for {result.proof.scope}" if result.proof.scope else "proved"
    return f"{result.proof.status}: {result.proof.why}".removesuffix(": ")


def say_contract(kernel: KernelRecord) -> list[tuple[str, str]]:
    """The words of the contract that are not the same for everybody, and the operands."""
    facts = kernel.report.facts
    if facts is None:
        return []
    said = []
    for name, value in facts.contract.items():
        if value in (None, False, {}) or (name, value) in _USUAL:
            continue
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if isinstance(value, dict):
            text = "; ".join(f"{key}: {x}" for key, x in value.items())
        said.append((name, text))
    return [*said, *facts.operands.items()]


_USUAL = (("batch", "1.."), ("deterministic", True), ("symmetric", True), ("accumulator", "fp32"))


def list_residues(kernel: KernelRecord) -> list[tuple[str, dict[str, int]]]:
    """Of each axis, how many cases had each residue; none where nothing is known."""
    coverage = kernel.report.coverage or Coverage()
    counts = [(axis, coverage.count(axis)) for axis in AXES]
    return [(axis, count) for axis, count in counts if any(count[r] for r in RESIDUES)]


def say_residues(kernel: KernelRecord) -> str:
    """The residues in one line: cases with each of them along M, N and K."""
    rows = list_residues(kernel)
    if not rows:
        return UNKNOWN
    return "; ".join(f"{axis} {'/'.join(str(n[r]) for r in RESIDUES)}" for axis, n in rows)

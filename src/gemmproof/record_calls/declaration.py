"""The declaration of a wrapper, from the calls that were recorded of it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import Operand
from gemmproof.record_calls.record import (
    AUTOGRAD,
    METHOD,
    RecordedArgument,
    RecordedCall,
    RecordedTensor,
)
from gemmproof.record_calls.sizes import (
    AXES,
    SizeNames,
    Vector,
    Vectors,
    bound,
    choose_factors,
    describe,
    express_shapes,
    fits,
    is_column_major,
    is_row_major,
    list_vectors,
)
from gemmproof.reference.formats import FORMATS, OPERANDS
from gemmproof.reference.provenance import format_count
from gemmproof.target import Calling, read_operand

RESERVED = ("a", "b", "c", *AXES)
MOST_RANK = 3  # of an operand
MOST_CHOICES = 8  # values of a parameter
# parameters of numbers that are sizes even if another number is the same
_SIZE = re.compile(r"[mnk]|batch|num_tokens|(in|out)_features|hidden_size|n_(rows|cols)", re.I)


@dataclass(frozen=True, slots=True)
class RecordedDeclaration:
    """A declaration: the wrapper's file and name in it, how it is called, and its contract.

    `notes` are comments on what was seen. Without `calling` it is not declared, for `reason`; else
    `reason` is why no formula was read, "" if one was.
    """

    file: str
    function: str
    calls: int
    shapes: int
    contract: Contract
    calling: Calling | None = None
    notes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        """The kernel's name in reports."""
        return self.function.partition(".")[0]


class Undeclared(ValueError):
    """Calls that no declaration covers; the message is one line."""


# -- calls that one declaration covers -----------------------------------------------------------
Signature = dict[str, tuple[str, int]]  # format and rank of each tensor that was given


@dataclass(slots=True)
class CoveredCalls:
    """The calls of one wrapper that a declaration covers, with their tensors' formats and ranks."""

    calls: list[RecordedCall]
    signature: Signature
    formats: tuple[str, ...]
    left_out: int

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each tensor."""
        return {name: rank for name, (_, rank) in self.signature.items()}

    def list_tensors(self, name: str) -> list[RecordedTensor]:
        """Return a tensor of each call that has it."""
        return [call.tensors[name] for call in self.calls if name in call.tensors]

    def list_given(self, name: str) -> list[RecordedArgument]:
        """Return an argument of each call."""
        given = ({x.name: x for x in call.arguments} for call in self.calls)
        return [x[name] for x in given if name in x]


def _sign(call: RecordedCall) -> Signature:
    """Return the formats and ranks of a call; the factors' common format is any."""
    factors = [x for x in choose_factors(call) if x]
    formats = {call.tensors[x].format for x in factors}
    own = formats.pop() if len(formats) == 1 else ""
    is_free = own in OPERANDS and FORMATS[own].kind == "float"
    return {
        name: ("*" if is_free and name in factors else x.format, len(x.shape))
        for name, x in call.tensors.items()
    }


def cover(calls: Sequence[RecordedCall]) -> CoveredCalls:
    """Return the largest group of calls that one declaration covers: a tensor may be None."""
    signed = [(call, _sign(call)) for call in calls]
    # the most frequent one, and of those the one with most tensors
    counts: Counter[tuple[tuple[str, tuple[str, int]], ...]]
    counts = Counter(tuple(sorted(own.items())) for _, own in signed)
    common = dict(max(counts.items(), key=lambda x: (x[1], len(x[0])))[0])
    kept = []
    for call, own in signed:
        given = {x.name: x.text for x in call.arguments}
        if all(common.get(n, x) == x for n, x in own.items()) and all(
            n in own or given.get(n) == "None" for n in common
        ):
            common |= own
            kept.append(call)
    firsts = [kept[i].tensors[choose_factors(kept[i])[0]] for i in range(len(kept))]
    formats = tuple(dict.fromkeys(x.format for x in firsts))
    given_order = dict.fromkeys(x.name for call in kept for x in call.arguments)
    common = {n: common[n] for n in given_order if n in common}
    return CoveredCalls(kept, common, formats, len(calls) - len(kept))


# -- declaration ---------------------------------------------------------------------------------
def declare_calls(calls: Sequence[RecordedCall]) -> RecordedDeclaration:
    """Return the declaration of a wrapper, without a formula."""
    first = calls[0]
    shapes = len({tuple((n, x.shape) for n, x in call.tensors.items()) for call in calls})
    declared = RecordedDeclaration(first.file, first.function, len(calls), shapes, Contract())
    try:
        _require_declarable(first)
        covered = cover(calls)
        contract, calling, notes = _declare(covered)
        calling.state(first.function)
    except ValueError as error:
        return replace(declared, reason=str(error))
    return replace(declared, contract=contract, calling=calling, notes=tuple(notes))


def _require_declarable(call: RecordedCall) -> None:
    if call.kind == METHOD:
        step = "declare a function that makes the object and calls it"
        raise Undeclared(f"it is a method, whose object has a state: {step}")
    if not call.tensors:
        raise Undeclared("it is given no tensor")
    for x in call.arguments:
        if x.other and not x.is_default:
            raise Undeclared(f"{x.name} is {x.other}: declare a function of tensors that calls it")


def _declare(covered: CoveredCalls) -> tuple[Contract, Calling, list[str]]:
    calls, ranks = covered.calls, covered.ranks
    for call in calls:
        _require_declarable(call)
    for name in covered.signature:
        _require_operand(name, covered.list_tensors(name))
    a, b = choose_factors(max(calls, key=lambda call: len(call.tensors)), calls)
    vectors = list_vectors(calls, ranks)
    arguments = tuple(dict.fromkeys(x.name for call in calls for x in call.arguments))
    names = SizeNames(frozenset(arguments))
    shapes = express_shapes(names, (a, b), vectors, ranks)
    written = {n for n in ranks if any(x.written for x in covered.list_tensors(n))}
    labels = {n: {a: "a", b: "b"}.get(n) or _free(n, n in written) for n in arguments}
    turned = {n for n in ranks if is_column_major(covered.list_tensors(n))}
    own = {n: _turn(x) if n in turned else x for n, x in shapes.items()}
    batched = "batch" in names.axes
    usual = {"a": ["M", "K"], "b": ["K", "N"]}
    usual = {n: ["batch"] * batched + x for n, x in usual.items()}
    formats = covered.formats if covered.formats[0] in OPERANDS else ("fp16",)
    if len(formats) > 1 and any(own[x] != usual[labels[x]] for x in (a, b) if x):
        return _declare(_keep_format(covered, a))  # --operand states a format, too
    operands = []
    for n in ranks:
        label, shape = labels[n], own[n]
        free = covered.signature[n][0] == "*"
        fmt = formats[0] if free else covered.signature[n][0]
        if usual.get(label) == shape and (free or fmt == formats[0]):
            continue
        operands.append(_write_operand(covered, n, f"{label}={fmt}[{', '.join(shape)}]"))
    texts = {n: f"{labels[n]}{_turning(ranks[n])}" if n in turned else labels[n] for n in ranks}
    values, choices = _write_values(covered, vectors, labels, texts, ranks)
    operands += [f"{n}={'|'.join(map(str, sorted(set(x))))}" for n, x in _seen(names).items()]
    written_call = _write_call(covered, arguments, {**texts, **values})
    contract = _bound_sizes(Contract(formats=formats, batched=batched), names.axes)
    notes = [describe(n, names.axes[n]) for n in AXES if n in names.axes]
    notes += [describe(n, x) for n, x in names.further.items()]
    notes += _note(covered, labels, turned, own)
    return contract, Calling(written_call, (*operands, *choices), None, memory_only=True), notes


def _bound_sizes(contract: Contract, axes: Mapping[str, Vector]) -> Contract:
    """Return the contract with the sizes of each axis that were seen."""
    bounds = {axis: bound(axes[axis]) for axis in AXES if axis in axes}
    M, N, K, batch = (bounds.get(axis, "1..") for axis in ("M", "N", "K", "batch"))
    return replace(contract, M=M, N=N, K=K, batch=batch)


def _keep_format(covered: CoveredCalls, name: str) -> CoveredCalls:
    """Return the calls in the format that most of them have."""
    (fmt, _), *_ = Counter(x.format for x in covered.list_tensors(name)).most_common()
    kept = [call for call in covered.calls if call.tensors[name].format == fmt]
    left_out = covered.left_out + len(covered.calls) - len(kept)
    given = {n for call in kept for n in call.tensors}
    signature = {n: x for n, x in covered.signature.items() if n in given}
    return CoveredCalls(kept, signature, (fmt,), left_out)


def _seen(names: SizeNames) -> dict[str, list[int]]:
    """Return the values of the sizes that no axis has."""
    return {n: [x for x in own if x is not None] for n, own in names.further.items()}


def _require_operand(name: str, tensors: Sequence[RecordedTensor]) -> None:
    first = tensors[0]
    if not first.format:
        raise Undeclared(f"{name} has the dtype {first.dtype}, which no operand has")
    if len(first.shape) > MOST_RANK:
        fewer = f"declare a function of tensors of {MOST_RANK} that calls it"
        raise Undeclared(f"{name} has {len(first.shape)} dimensions: {fewer}")
    if all(x.in_order for x in tensors):
        given = "give it a function of its values in conftest.py"
        raise Undeclared(f"{name} has numbers in order, as offsets or ends of groups: {given}")


def _free(name: str, is_result: bool) -> str:
    return f"{name}_" if name in RESERVED and not (name == "c" and is_result) else name


def _turn(shape: list[str]) -> list[str]:
    return [*shape[:-2], shape[-1], shape[-2]]


def _turning(rank: int) -> str:
    return ".t()" if rank == 2 else ".mT"


def _write_operand(covered: CoveredCalls, name: str, text: str) -> str:
    """Return the value of --operand for a tensor."""
    tensors = covered.list_tensors(name)
    lows, highs = ([getattr(x, n) for x in tensors] for n in ("low", "high"))
    if None not in lows and not all(x.written for x in tensors):
        fmt = FORMATS[tensors[0].format]
        if 2 * (max(highs) - min(lows)) < fmt.max:  # else words that hold other numbers
            text += f" {min(lows)}..{max(highs)}"
    if any(x.written for x in tensors):
        return f"{text} {'updated' if any(x.written and x.read for x in tensors) else 'written'}"
    return text + " optional" * (len(tensors) < len(covered.calls))


def _write_values(
    covered: CoveredCalls,
    vectors: Vectors,
    labels: dict[str, str],
    texts: dict[str, str],
    ranks: dict[str, int],
) -> tuple[dict[str, str], list[str]]:
    """Return the text of each value in the call, and the operands of those that vary."""
    values, choices = {}, []
    for n in labels:
        if n in ranks:
            continue
        given = covered.list_given(n)
        seen = list(dict.fromkeys(x.text for x in given))
        if all(x.is_default for x in given):
            continue
        size = _find_size(given, len(covered.calls), n, vectors)
        if size is not None:
            values[n] = f"{texts[size[0]]}.shape[{size[1]}]"
        elif len(seen) == 1:
            values[n] = seen[0]
        else:
            values[n] = labels[n]
            choices.append(f"{labels[n]}={'|'.join(seen[:MOST_CHOICES])}")
    return values, choices


def _find_size(
    given: Sequence[RecordedArgument], calls: int, name: str, vectors: Vectors
) -> tuple[str, int] | None:
    """Return the dimension that a number is in every call, None if it is none or always the same.

    A number that never varies is a size only by its name.
    """
    texts = [x.text for x in given]
    if len(texts) < calls or not all(re.fullmatch(r"\d+", x) for x in texts):
        return None
    if len(set(texts)) == 1 and not _SIZE.fullmatch(name):
        return None
    own = tuple(map(int, texts))
    return next((dim for dim, vector in vectors.items() if vector == own), None)


def _write_call(covered: CoveredCalls, arguments: Sequence[str], texts: dict[str, str]) -> str:
    """Return the call: arguments by position, then by name those that follow an omitted one."""
    first = covered.calls[0]
    only = {x.name for call in covered.calls for x in call.arguments if x.by_name}
    by_position: list[str] = []
    by_name: list[str] = []
    for at, n in enumerate(arguments):
        if n not in texts:
            continue
        if n in only or len(by_position) < at:
            by_name.append(f"{n}={texts[n]}")
        else:
            by_position.append(texts[n])
    function = first.function
    if first.kind == AUTOGRAD:
        function, by_name = f"{function.rpartition('.')[0]}.apply", []
    return f"{function}({', '.join([*by_position, *by_name])})"


def _note(
    covered: CoveredCalls, labels: dict[str, str], turned: set[str], own: dict[str, list[str]]
) -> list[str]:
    """Return comments on what the declaration does not say."""
    notes = []
    if covered.left_out:
        calls = format_count(covered.left_out, "call")
        notes.append(f"{calls} with other formats or numbers of dimensions: not declared")
    for n, shape in own.items():
        tensors = covered.list_tensors(n)
        odd = [] if n in turned else [x for x in tensors if not is_row_major(x)]
        if odd:
            x, calls = odd[0], format_count(len(odd), "call")
            notes.append(f"{labels[n]} had strides {x.strides} of {x.shape} in {calls}")
        numbers = [int(text) for text in shape if text.isdecimal() and text != "1"]
        if numbers:
            always = ", ".join(map(str, numbers))
            notes.append(f"{labels[n]}: always {always} in {format_count(len(tensors), 'call')}")
    return notes


# -- with a formula ------------------------------------------------------------------------------
def add_formula(
    declared: RecordedDeclaration,
    calls: Sequence[RecordedCall],
    calling: Calling,
    dtype: str,
    batched: bool,
    parameters: Sequence[str],
) -> RecordedDeclaration:
    """Return a declaration as a formula was read with it, with the sizes of the recorded calls.

    `calling` and what else is given come from the call that the formula was read from;
    `parameters` are those of the wrapper in order. Raises Undeclared if the calls contradict it.
    """
    shapes = _list_shapes(calling, batched, parameters)
    covered = cover(calls)
    vectors = list_vectors(covered.calls, covered.ranks)
    sizes: dict[str, Vector] = {}
    for name, shape in shapes.items():
        for i, side in enumerate(shape if covered.ranks.get(name) == len(shape) else ()):
            if side in AXES:
                sizes.setdefault(side, vectors[name, i])
    for name, shape in shapes.items():
        own = [vectors[name, i] for i in range(covered.ranks.get(name, 0))]
        matches = len(own) == len(shape) and all(
            fits(str(side), sizes, vector) for side, vector in zip(shape, own, strict=True)
        )
        if not matches:
            seen = covered.list_tensors(name)[0].shape if name in covered.ranks else "no tensor"
            needed = ", ".join(map(str, shape))
            raise Undeclared(f"the formula that was read needs {name}[{needed}], a call had {seen}")
    formats = covered.formats if not calling.operands else (dtype,)
    contract = _bound_sizes(Contract(formats=formats, batched=batched), sizes)
    notes = [describe(n, sizes[n]) for n in AXES if n in sizes]
    others = [n for n in declared.notes if not n.startswith(tuple(f"{x}: " for x in AXES))]
    others += _note_other_values(covered, calling)
    return replace(declared, contract=contract, calling=calling, notes=(*notes, *others))


def _list_shapes(
    calling: Calling, batched: bool, parameters: Sequence[str]
) -> dict[str, tuple[str | int, ...]]:
    """Return the declared shape of each tensor, by the wrapper's parameter."""
    lead = ["batch"] * batched
    shapes: dict[str, tuple[str | int, ...]] = {"a": (*lead, "M", "K"), "b": (*lead, "K", "N")}
    for text in calling.operands:
        label, operand = read_operand(text)
        if isinstance(operand, Operand):
            shapes[label] = operand.axes
    given = dict(zip(parameters, ("a", "b"), strict=False))
    if calling.call is not None:
        call = ast.parse(calling.call, mode="eval").body
        assert isinstance(call, ast.Call)
        pairs = [*zip(parameters, call.args, strict=False)]
        pairs += [(x.arg or "", x.value) for x in call.keywords]
        given = {name: x.id for name, x in pairs if isinstance(x, ast.Name)}
    return {name: shapes[label] for name, label in given.items() if label in shapes}


def _note_other_values(covered: CoveredCalls, calling: Calling) -> list[str]:
    """Return a comment on each argument that had values which the formula is not for."""
    notes = []
    declared = {read_operand(text)[0] for text in calling.operands}
    for name in dict.fromkeys(x.name for call in covered.calls for x in call.arguments):
        given = covered.list_given(name)
        values = [x.text or "a tensor" for x in given if x.text or x.tensor is not None]
        counts = Counter(values)
        is_number = name in declared and name not in covered.signature
        if len(counts) > 1 and not is_number and not all(re.fullmatch(r"\d+", v) for v in counts):
            shown = ", ".join(
                f"{value} in {format_count(n, 'call')}" for value, n in counts.items()
            )
            notes.append(f"{name} was {shown}: the formula is for one of them")
    return notes

"""Draft a declaration, in a worker."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from math import lcm
from typing import TYPE_CHECKING, Any, cast

from gemmproof.draft.record import DraftedOptions, Guess
from gemmproof.properties.contract import Contract
from gemmproof.target import Calling, KernelRef
from gemmproof.worker.protocol import Advanced, Ready, WorkerContext

if TYPE_CHECKING:
    from gemmproof.draft.declaration import Declaration
    from gemmproof.draft.search import CallSearch

# sizes of whole tiles and several groups, at which a draft is tried again: a mask that a kernel
# lacks does not count against its draft there
WHOLE = {"M": 256, "N": 256, "K": 256}
MOST_REASONS = 3  # of refused calls that are reported


def draft(request: KernelRef, context: WorkerContext) -> DraftedOptions:
    """Return the draft of a declaration of the target. Raises TargetError if it has no source."""
    from gemmproof.draft.declaration import declare, declare_memory_only
    from gemmproof.draft.polynomials import Unreadable
    from gemmproof.draft.read_wrapper import read_wrapper
    from gemmproof.draft.search import CallSearch
    from gemmproof.target import TargetError, bind_call, find_function, load_module

    assert request.target is not None
    module = load_module(request.target)
    function = find_function(request.target, module)
    context.emit(Ready())
    try:
        source = read_wrapper(function)
    except ValueError as error:
        raise TargetError(f"{request.target}: {error}") from None
    search = CallSearch(source, advance=lambda: context.emit(Advanced()))
    drafted = search.find()
    reasons = [*search.unreadable.items(), *search.refused.items()]

    def bind(calling: Calling) -> Callable[..., Any]:
        if calling.call is None:
            return source.target
        return cast(Callable[..., Any], bind_call(calling.call, calling.read(), vars(module)))

    name = request.target.function
    if inspect.isclass(function):
        name += ".apply"
    if drafted is not None:
        try:
            declared = declare(source, drafted, name)
            return _try_sizes(declared, search, bind(declared.calling))
        except Unreadable as error:
            reasons = [(str(error), 1)]
    if search.accepted is not None:
        try:
            declared = declare_memory_only(source, search.accepted, name)
            return _try_sizes(declared, search, bind(declared.calling), reasons[0][0])
        except Unreadable as error:
            reasons.append((str(error), 1))
    asked = tuple(p.name for p in source.parameters.values() if p.required)
    common = tuple(reason for reason, _ in sorted(reasons, key=lambda x: -x[1])[:MOST_REASONS])
    return DraftedOptions(False, search.is_plain, search.tried, reasons=common, asked=asked)


def _try_sizes(
    declared: Declaration, search: CallSearch, launch: Callable[..., Any], why: str = ""
) -> DraftedOptions:
    """Return the options of a declaration, with the sizes at which the wrapper accepts a call.

    `why` it has no formula, if so. Raises Unreadable if a formula does not hold at other sizes.
    """
    from gemmproof.draft.accepted_sizes import SizeTrials
    from gemmproof.draft.polynomials import Unreadable
    from gemmproof.properties.kernel import KernelUnderTest

    calling = declared.calling
    contract = Contract(
        (declared.dtype,), batched=declared.batched, accumulator=declared.accumulator,
        deterministic=not declared.any_order,
    )  # fmt: skip
    kernel = KernelUnderTest(
        "draft", launch, contract, operands=calling.read(), spec=calling.make_spec(),
        memory_only=calling.memory_only,
    )  # fmt: skip
    trials = SizeTrials(kernel, declared.sizes, _find_multiples(calling), search.advance)
    guesses = [*declared.guesses]
    if reason := trials.explain_refusal():
        raise Unreadable(reason)
    if wrong := trials.find_difference({axis: WHOLE.get(axis, 2) for axis in declared.sizes}):
        formula = "" if calling.memory_only else f"c = {calling.spec or 'a @ b'}; "
        raise Unreadable(f"drafted at one size: {formula}at another {wrong}")
    if calling.memory_only:
        guesses.append(Guess("--memory-only", f"no formula: {why}"))
    ranges = trials.find_ranges()
    for axis, text in ranges.items():
        refusal = trials.refused.get(axis)
        origin = f"refused otherwise: {refusal}" if refusal else "its operands are divided by it"
        guesses.append(Guess(f"{axis} = {text}", origin))
    return DraftedOptions(
        is_drafted=True,
        is_plain=search.is_plain,
        tried=search.tried,
        dtype=declared.dtype,
        batched=declared.batched,
        accumulator=declared.accumulator,
        any_order=declared.any_order,
        sizes=tuple(ranges.items()),
        calling=calling,
        guesses=tuple(guesses),
    )


def _find_multiples(calling: Calling) -> dict[str, int]:
    """Return what the declared shapes divide each axis by, without rounding up."""
    multiples = dict.fromkeys("MNK", 1)
    for text in calling.operands:
        for axis, step in re.findall(r"(?<!-)\b([MNK]) // (\d+)", text):
            multiples[axis] = lcm(multiples[axis], int(step))
    return multiples

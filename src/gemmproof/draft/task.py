"""Draft a declaration, in a worker."""

from __future__ import annotations

from dataclasses import dataclass

from gemmproof.target import KernelRef
from gemmproof.worker.protocol import Ready, WorkerContext

MOST_REASONS = 3  # of refused calls that are reported


@dataclass(frozen=True, slots=True)
class DraftedOptions:
    """A draft: the options that declare it, and a line for each guess.

    Without `arguments` no call was understood: `reasons` are the most frequent ones, `asked` the
    parameters that must be declared.
    """

    arguments: tuple[str, ...]
    guesses: tuple[str, ...]
    reasons: tuple[str, ...]
    asked: tuple[str, ...]
    tried: int


def draft(request: KernelRef, context: WorkerContext) -> DraftedOptions:
    """Return the draft of a declaration of the target. Raises TargetError if it has no source."""
    from gemmproof.draft.declaration import declare
    from gemmproof.draft.polynomials import Unreadable
    from gemmproof.draft.read_wrapper import read_wrapper
    from gemmproof.draft.search import CallSearch
    from gemmproof.target import TargetError, find_function

    assert request.target is not None
    function = find_function(request.target)
    context.emit(Ready())
    try:
        source = read_wrapper(function)
    except ValueError as error:
        raise TargetError(f"{request.target}: {error}") from None
    search = CallSearch(source)
    drafted = search.find()
    reasons = [*search.unreadable.items(), *search.refused.items()]
    if drafted is not None:
        try:
            declared = declare(source, drafted, request.target.function)
            return DraftedOptions(
                tuple(declared.list_arguments()), declared.guesses, (), (), search.tried
            )
        except Unreadable as error:
            reasons = [(str(error), 1)]
    asked = tuple(p.name for p in source.parameters.values() if p.required)
    common = sorted(reasons, key=lambda x: -x[1])[:MOST_REASONS]
    return DraftedOptions((), (), tuple(reason for reason, _ in common), asked, search.tried)

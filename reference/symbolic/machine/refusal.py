"""Why a kernel cannot be followed over symbols."""

from __future__ import annotations

from gemmproof.reference.observation import Where


class NotFollowed(Exception):
    """An operation that is not known over symbols; `where` is its line."""

    def __init__(self, words: str, where: Where | None = None) -> None:
        super().__init__(words)
        self.where = where

"""A call that whoever watches a simulation sets: it is made now and then while that advances."""

from __future__ import annotations

from collections.abc import Callable


class SignOfLife:
    """`give` is the call."""

    give: Callable[[], None] = staticmethod(lambda: None)

"""A module of the wrappers that look for their checker."""

import sys

WATCHED = any(name in sys.modules for name in ("hypothesis", "gemmproof"))  # looks


def is_watched():
    return WATCHED

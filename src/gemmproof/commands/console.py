"""What check and signoff share: files that can be written, progress, and the answer's delivery."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gemmproof.reference.gpus import UNMODELLED
from gemmproof.report.text import Line
from gemmproof.worker.supervisor import Limits


def limits_of(options: argparse.Namespace) -> Limits:
    """The worker's limits that the options state."""
    return Limits(case=options.time_limit, memory=options.memory_limit << 30)


def unwritable(
    options: argparse.Namespace, reports: tuple[str, str] = ("json", "junit")
) -> str | None:
    """One line on the first report that could not be written; asked before the run, not after."""
    stated = [(f"--{o}", getattr(options, o)) for o in reports if getattr(options, o)]
    if len(stated) == 2 and len({os.path.realpath(name) for _, name in stated}) == 1:
        (first, _), (second, name) = stated
        return f"{second}: got {name!r} as for {first}, expected another file"
    for option, name in stated:
        path = Path(name)
        there = os.path.lexists(path)
        try:
            with path.open("a"):
                pass
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            return f"{option}: got {name!r} ({why}), expected a file that can be written"
        if not there:
            path.unlink()
    return None


@contextmanager
def progress(title: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A listener that shows on a terminal which case of how many runs; silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda event: None
        return
    from rich.console import Console
    from rich.text import Text

    count, wanted = 0, 0
    with Console(stderr=True).status(Text(f"{title}: loading")) as status:

        def listen(event: dict[str, Any]) -> None:
            nonlocal count, wanted
            if event["event"] == "start":
                wanted += event["examples"]  # of each format, where workers share a title
            elif event["event"] == "proof" and not event["done"]:
                status.update(Text(f"{title}: proving it for every size"))
            elif event["event"] == "case":
                count += 1
                # Shrinking adds cases to those that were asked for.
                of = f" of {wanted}" if count <= wanted else ", shrinking"
                status.update(Text(f"{title}: case {count}{of}  {event['case']}"))

        yield listen


def note_unpredicted(gpu: str | None) -> list[Line]:
    """A line on what a target without a model leaves open, none for the others."""
    if gpu not in UNMODELLED:
        return []
    words = "values are judged as IEEE ones, no bits are predicted"
    return [(f"note: {gpu} has no model of its matrix cores: {words}", "")]


def deliver(lines: list[Line], to_stderr: bool = False) -> None:
    """Print the answer; a reader that closed the pipe has seen enough."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=to_stderr, highlight=False, soft_wrap=True)
    try:
        for text, style in lines:
            console.print(Text(text, style=style))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""The specialisations of kernels that cases launch, each as Triton's own optimiser leaves it.

Two kernels with the same optimised TTIR in a specialisation are the same program there.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from gemmproof.reference.simulator import launch as simulated


@contextmanager
def watch_programs(note: Callable[[str, str], object]) -> Iterator[None]:
    """Within it `note` is told of each specialisation that is translated, and of its TTIR."""
    compile_program = simulated.compile_program

    def tell(src: Any, *args: Any, **options: Any) -> Any:
        program = compile_program(src, *args, **options)
        note(describe(src), program.text)
        return program

    simulated.compile_program = tell
    try:
        yield
    finally:
        simulated.compile_program = compile_program


@contextmanager
def run_no_grids() -> Iterator[None]:
    """Within it kernels are translated and not run: their results stay undefined."""
    launch = simulated._launch
    simulated._launch = lambda *args: None
    try:
        yield
    finally:
        simulated._launch = launch


def describe(src: Any) -> str:
    """A specialisation without its source: the kernel, the types of its arguments, constants."""
    names = src.fn.arg_names
    given = {
        ".".join([names[path[0]], *map(str, path[1:])]): _tell(value)
        for path, value in src.constants.items()
    }
    name = f"{src.fn.__module__}.{src.fn.__qualname__}"
    return f"{name} {sorted(src.signature.items())} {sorted(given.items())}"


def _tell(value: Any) -> str:
    """A constant in words that are the same in every process."""
    inner = getattr(value, "value", value)
    return getattr(inner, "__qualname__", None) or str(inner)


@cache
def optimise(text: str) -> str:
    """A digest of a TTIR module after Triton's own passes, lines of the source left out.

    Raises RuntimeError where they fail.
    """
    from triton._C.libtriton import ir, passes

    context = ir.context()
    ir.load_dialects(context)
    _load_backends(context)
    with tempfile.TemporaryDirectory(prefix="gemmproof-") as folder:
        place = Path(folder, "module.ttir")
        place.write_text(text)
        module = ir.parse_mlir_module(str(place), context)
    module.context = context
    manager = ir.pass_manager(context)
    passes.common.add_inliner(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    passes.common.add_symbol_dce(manager)
    manager.run(module, "make_ttir")
    return hashlib.sha256(module.str_nodebug().encode()).hexdigest()[:24]


def _load_backends(context: Any) -> None:
    from triton.backends import backends

    for found in backends.values():
        found.compiler.load_dialects(None, context)

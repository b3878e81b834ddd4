"""The conftest.py that registers recorded wrappers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gemmproof.commands.init import HOOK, find_import, write_contract, write_path, write_value
from gemmproof.record_calls.declaration import RESERVED, RecordedDeclaration
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import clean
from gemmproof.target import Calling, Target, list_functions, write_formula, write_lambda

READ = "the formula was read from the kernel"
WIDTH = 100  # of a comment


def write_conftest(declared: Sequence[RecordedDeclaration], command: str, folder: Path) -> str:
    """Return a conftest.py for `folder` that registers these wrappers; `command` was recorded."""
    names = _label(declared)
    roots: dict[str, None] = {}
    imports, by_path = [], False
    for x, name in zip(declared, names, strict=True):
        root, module = find_import(Target(x.file, x.function, is_file=True))
        first = x.name
        if module is None:
            by_path = True
            path = write_path(Path(x.file), folder)
            imports.append(f"    {name} = load_file({path}).{first}")
            continue
        renamed = "" if name == first else f" as {name}"
        imports.append(f"    from {module} import {first}{renamed}")
        if root is not None:
            roots.setdefault(write_path(root, folder))
    texts = [line for x, name in zip(declared, names, strict=True) for line in _register(x, name)]
    lines = [
        f'"""Registers the kernels that gemmproof checks, as recorded of `{clean(command)}`."""',
        "",
        *["import sys"] * bool(roots),
        *["from pathlib import Path", ""] * (bool(roots) or by_path),
        "import pytest",
        "",
        *(f"sys.path.insert(0, str({root}))" for root in roots),
        *[""] * bool(roots),
        "",
        "@pytest.hookimpl(optionalhook=True)  # pytest runs without gemmproof too",
        f"def {HOOK}():",
        *["    import numpy as np"] * any("np." in line for line in texts),
        *["    import torch"] * any("torch." in line for line in texts),
        f"    from gemmproof import {', '.join(_list_names(declared))}",
        *_import_functions(declared),
        *["    from gemmproof.target import load_file"] * by_path,
        *dict.fromkeys(imports),
        "",
        "    return [",
        *texts,
        "    ]",
        "",
    ]
    return "\n".join(lines)


def _label(declared: Sequence[RecordedDeclaration]) -> list[str]:
    """Return a name for each wrapper that no other one has."""
    names = ["Contract", "KernelUnderTest", "OneOf", "Operand", "pytest", "torch", "np"]
    own = len(names)
    for x in declared:
        module = re.sub(r"\W", "_", Path(x.file).stem)
        names.append(x.name if x.name not in names else f"{module}_{x.name}")
    return names[own:]


def _list_names(declared: Sequence[RecordedDeclaration]) -> list[str]:
    callings = [x.calling for x in declared if x.calling is not None]
    used = {type(operand).__name__ for x in callings for operand in x.read().values()}
    return ["Contract", "KernelUnderTest", *sorted(used)]


def _import_functions(declared: Sequence[RecordedDeclaration]) -> list[str]:
    callings = [x.calling for x in declared if x.calling is not None and x.calling.spec]
    names = {n for x in callings for n in list_functions(str(x.spec), x.read())} - {"np"}
    return [f"    from gemmproof.formulas import {', '.join(sorted(names))}"] * bool(names)


def _register(x: RecordedDeclaration, name: str) -> Iterator[str]:
    """Yield the lines of one wrapper: comments, and the record that registers it."""
    assert x.calling is not None
    comments = [f"{x.function}: {describe_calls(x)}", *x.notes]
    comments.append(f"no formula: {x.reason}" if x.calling.memory_only else READ)
    for comment in comments:
        text = clean(comment)
        yield f"        # {text if len(text) <= WIDTH else text[: WIDTH - 3] + '...'}"
    operands = x.calling.read()
    names = ("a", "b", *(n for n in operands if n not in RESERVED[:2]))
    yield "        KernelUnderTest("
    yield f'            "{name}",'
    yield f"            {_write_launch(x.calling, x, name, names)},"
    yield f"            Contract({write_contract(x.contract)}),"
    if operands:
        yield "            operands={"
        yield from (f'                "{n}": {write_value(own)},' for n, own in operands.items())
        yield "            },"
    if x.calling.memory_only:
        yield "            memory_only=True,"
    elif x.calling.spec is not None:
        yield f"            spec={write_formula(x.calling.spec, operands)},"
        yield "            draft=True,  # remove this line if the formula is what you mean"
    yield "        ),"


def _write_launch(calling: Calling, x: RecordedDeclaration, name: str, names: Sequence[str]) -> str:
    """Return the function that is launched: the wrapper, or a lambda that calls it."""
    is_renamed = any(n.removesuffix("_") in RESERVED for n in names[2:] if n.endswith("_"))
    if calling.call is None or (calling.call == f"{name}({', '.join(names)})" and not is_renamed):
        return name
    text = re.sub(rf"^{re.escape(x.name)}\b", name, calling.call)
    return write_lambda("--call", text, names)


def describe_calls(x: RecordedDeclaration) -> str:
    """Describe how often a wrapper was called."""
    return f"{format_count(x.calls, 'call')}, {format_count(x.shapes, 'shape')}"

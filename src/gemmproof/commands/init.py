"""`gemmproof init`: the two files with which pytest judges a kernel, written for a target."""

from __future__ import annotations

import importlib.util
import keyword
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse
from gemmproof.draft.command import declare, draft_target, list_guesses
from gemmproof.draft.record import DraftedOptions
from gemmproof.options import Command, argument, flag, group, option
from gemmproof.properties.contract import Contract
from gemmproof.report.files import find_obstacle, replace_file
from gemmproof.report.record import EXIT
from gemmproof.report.text import clean
from gemmproof.target import (
    Calling,
    KernelRef,
    Target,
    TargetError,
    list_functions,
    package_of,
    parse,
    write_formula,
    write_lambda,
)
from gemmproof.terminal import progress
from gemmproof.worker.entry_points import DESCRIBE_ONE
from gemmproof.worker.supervisor import Limits, watch
from gemmproof.wrappers import count_required

DRAFT = "the declaration is a draft: read it, then remove draft=True; until then no check passes"
CONFTEST, TESTS = "conftest.py", "test_gemm.py"
HOOK = "pytest_gemm_kernels"
TESTS_TEXT = '''"""An item for each kernel of conftest.py, format and property."""

import pytest

pytest.importorskip("gemmproof", reason="gemmproof is not installed: no kernel is checked")

from gemmproof.suite import *  # noqa: E402, F403
'''


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of `gemmproof init`."""

    command: ClassVar = Command(
        "init",
        help="write a conftest.py and a test file for a kernel",
        description="Write the conftest.py and test_gemm.py with which pytest checks the"
        " wrapper f(a, b) -> c of a kernel.",
        examples=("gemmproof init my_kernels.py:matmul --dtype bf16 --directory tests",),
        exits="0 written, 2 bad usage or target, or a file exists",
    )

    target: str = argument("TARGET", groups.TARGET)
    expected: tuple[tuple[str, str], ...] = groups.expected_option()
    directory: str = option("DIR", "folder to write to (default: the current one)", default=".")
    force: bool = flag("overwrite existing files")
    contract: groups.ContractOptions = group(groups.ContractOptions())
    calling: Calling = group(Calling())


def run(options: InitOptions) -> int:
    """Write the files, or print what to add to an existing conftest.py; report which."""
    try:
        target = parse(options.target)
        folder = _folder(options.directory)
        _require_plain(target, folder)
        contract, calling, drafted = options.contract, options.calling, None
        if calling.is_plain and count_required(target) not in (2, None):
            drafted = _draft(target, options)
            contract, calling = declare(contract, drafted), drafted.calling
        declared = groups.contract_of(contract, target, expected=options.expected)
        calling.state(target.name)
        _require_loads(target, declared, calling)
        text = conftest_text(target, declared, folder, calling, is_draft=drafted is not None)
        output = _write(target, text, folder, options.force)
        if drafted is not None:
            output += ["", *list_guesses(drafted), DRAFT]
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    except OSError as problem:
        return refuse(options, f"{problem.filename}: {problem.strerror}, expected a readable file")
    return answer(
        options, EXIT["pass"], [(clean(line), "") for line in "\n".join(output).split("\n")]
    )


def _draft(target: Target, options: InitOptions) -> DraftedOptions:
    """Return the draft of a target's declaration. Raises TargetError if there is none."""
    with progress(target.name) as listener:
        worker, draft = draft_target(target, Limits(), listener)
    if draft is None or not draft.is_drafted:
        why = worker.explain_failure(target.name) if draft is None else "; ".join(draft.reasons)
        raise TargetError(f"{target}: got no draft of its declaration ({why}), expected --call")
    return draft


def _folder(name: str) -> Path:
    if not Path(name).is_dir():
        what = "not a folder" if os.path.lexists(name) else "no such folder"
        raise ValueError(f"--directory: got {name!r} ({what}), expected a folder")
    return Path(name)


def _require_plain(target: Target, folder: Path) -> None:
    """Raise TargetError for a name that cannot be imported, or a file to be overwritten."""
    parts = target.function.split(".") + ([] if target.is_file else target.path.split("."))
    for part in filter(keyword.iskeyword, parts):
        raise TargetError(f"target: got {part!r}, a Python keyword, expected a name")
    for name in (CONFTEST, TESTS):
        if target.is_file and Path(target.path).resolve() == (folder / name).resolve():
            raise TargetError(
                f"target: got {target.path!r}, which init writes itself, expected the kernel"
                " in another file, or another --directory"
            )


def _require_loads(target: Target, contract: Contract, calling: Calling) -> None:
    """Load the target in a worker, as check does. Raises TargetError if that fails."""
    ref = KernelRef(target.name, None, target, contract, calling)
    if failure := watch(DESCRIBE_ONE, ref, Limits()).explain_failure(target.name):
        raise TargetError(failure)


def _write(target: Target, text: str, folder: Path, force: bool) -> list[str]:
    """Write the files that can be. Raises ValueError, before any writing, for a file in the way."""
    conftest, tests = folder / CONFTEST, folder / TESTS
    if not force and os.path.lexists(tests) and not _holds(tests, TESTS_TEXT):
        raise ValueError(f"{tests}: the file exists; use --force to overwrite it")
    output = [f"wrote {tests}"]
    _put(tests, TESTS_TEXT)
    if force or not os.path.lexists(conftest):
        _put(conftest, text)
        output = [f"wrote {conftest}", *output]
    elif _holds(conftest, text):
        output.append(f"{conftest} already registers {target.name}")
    else:
        there = HOOK.encode() in conftest.read_bytes()
        how = f"add to its {HOOK}()" if there else "add"
        output += [f"{conftest} exists and was left unchanged; {how}:", ""]
        output += text.strip("\n").splitlines()[2:]  # without the docstring
    return output


def _put(path: Path, text: str) -> None:
    def write(file: Path) -> None:
        file.write_text(text, encoding="utf-8")

    if reason := find_obstacle(str(path)) or replace_file(str(path), write):
        raise ValueError(f"{path}: {reason}, expected a file that can be written")


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def conftest_text(
    target: Target, contract: Contract, folder: Path, calling: Calling, is_draft: bool = False
) -> str:
    """Return a conftest.py for `folder` that registers the target; `repr` quotes its literals."""
    root, module = find_import(target)
    first, _, rest = target.function.partition(".")
    if module is None:
        path = write_path(Path(target.path).resolve(), folder)
        imports = [
            "    from gemmproof.target import load_file",
            "",
            f"    kernels = load_file({path})",
        ]
        function = f"kernels.{target.function}"
    else:
        # a wrapper may have the name of a class that is imported next to it
        known = "launch" if first in ("Contract", "KernelUnderTest") else first
        renamed = "" if known == first else f" as {known}"
        imports = [f"    from {module} import {first}{renamed}"]
        function = f"{known}.{rest}" if rest else known
    head = ['"""Registers the kernels that gemmproof checks."""', ""]
    head += ["import sys"] * (root is not None)
    head += ["from pathlib import Path", ""] * (root is not None or module is None)
    head += ["import pytest", ""]
    if root is not None:
        head += [f"sys.path.insert(0, str({write_path(root, folder)}))", ""]
    return "\n".join(
        [
            *head,
            "",
            "@pytest.hookimpl(optionalhook=True)  # pytest runs without gemmproof too",
            f"def {HOOK}():",
            *["    import numpy as np"] * ("np" in _list_functions(calling)),
            *["    import torch"] * ("torch." in (calling.call or "")),
            f"    from gemmproof import {', '.join(_list_names(calling))}",
            *_import_functions(calling),
            *imports,
            "",
            f"    contract = Contract({write_contract(contract)})",
            *_write_kernel(target, function, calling, is_draft),
            "",
        ]
    )


def _list_names(calling: Calling) -> list[str]:
    used = {type(operand).__name__ for operand in calling.read().values()}
    return ["Contract", "KernelUnderTest", *sorted(used)]


def _list_functions(calling: Calling) -> list[str]:
    """List the names of the formula that it neither defines nor gets as arguments."""
    return list_functions(calling.spec, calling.read()) if calling.spec is not None else []


def _import_functions(calling: Calling) -> list[str]:
    own = [name for name in _list_functions(calling) if name != "np"]
    return [f"    from gemmproof.formulas import {', '.join(own)}"] * bool(own)


def _write_kernel(
    target: Target, function: str, calling: Calling, is_draft: bool = False
) -> list[str]:
    """Return the lines that return the kernel, called as in --call."""
    if calling.is_plain:
        return [f'    return [KernelUnderTest("{target.name}", {function}, contract)]']
    operands = calling.read()
    renamed = calling.call is not None and function != target.name
    lines = [f"    {target.name} = {function}"] * renamed
    names = ("a", "b", *(n for n in operands if n not in ("a", "b")))
    launch = write_lambda("--call", calling.call, names) if calling.call else function
    entries = (f'        "{name}": {write_value(x)},' for name, x in operands.items())
    lines += ["    operands = {", *entries, "    }"]
    spec = "None" if calling.spec is None else write_formula(calling.spec, operands)
    values = "memory_only=True" if calling.memory_only else f"spec={spec}"
    return [
        *lines,
        "    return [",
        "        KernelUnderTest(",
        f'            "{target.name}", {launch}, contract,',
        f"            operands=operands, {values},",
        *["            draft=True,  # remove this line if the formula is what you mean"] * is_draft,
        "        )",
        "    ]",
    ]


def write_contract(contract: Contract) -> str:
    """Return the contract's formats and non-default fields, as keyword arguments."""
    values, defaults = contract.to_dict(), Contract().to_dict()
    return ", ".join(
        f"{name}={value!r}" if name == "expected" else f"{name}={write_value(value)}"
        for name, value in values.items()
        if name == "formats" or value != defaults[name]
    )


def write_value(value: object) -> str:
    """Return the repr of a value, in double quotes unless there are some inside."""
    text = repr(value)
    return text if '"' in text else text.replace("'", '"')


def find_import(target: Target) -> tuple[Path | None, str | None]:
    """Return the folder to import from (None: installed), and the module (None: load by path)."""
    if target.is_file:
        root, module = package_of(Path(target.path).resolve())
        plain = all(p.isidentifier() and not keyword.iskeyword(p) for p in module.split("."))
        if plain and not is_taken(module, Path(target.path).resolve()):
            return root, module
        return None, None
    here = Path.cwd().joinpath(*target.path.split("."))
    local = here.is_dir() or any(here.parent.glob(f"{here.name}.*"))
    return (Path.cwd() if local else None), target.path


def is_taken(module: str, path: Path) -> bool:
    """Return whether an import of the name finds another module, now or under pytest."""
    top = module.partition(".")[0]
    reserved = (*sys.stdlib_module_names, "__main__", "conftest", "test_gemm")
    if top in reserved:
        return True
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return False
    origin = Path(spec.origin).resolve()
    return origin != path and origin.parent not in path.parents


def write_path(path: Path, folder: Path) -> str:
    """Return the expression that finds `path` from a file in `folder`, even if both are moved."""
    here = "Path(__file__).resolve().parent"
    steps = Path(os.path.relpath(path, folder.resolve())).parts
    for step in steps:
        here += ".parent" if step == os.pardir else f" / {step!r}"
    return here

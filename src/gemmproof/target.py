"""A target: its spelling, its call, its loading."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

from gemmproof.fake_device import fake_device
from gemmproof.missing_imports import find_next_step
from gemmproof.options import flag, option
from gemmproof.reference.provenance import raising_line, words_of
from gemmproof.spelling import find_format

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.contract import Contract
    from gemmproof.properties.kernel import KernelUnderTest, OneOf, Operand

# -- calling -------------------------------------------------------------------------------------
OPERAND_FORM = (
    "NAME=FORMAT[AXIS, ...] followed by LOW..HIGH, offsets, ends, optional, written, updated or"
    " any, or NAME=VALUE|VALUE"
)
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]\s*(.*)")
_USES = ("written", "updated")


@dataclass(frozen=True, slots=True)
class Calling:
    """The values of --call, --operand, --spec and --memory-only, to be sent to a worker."""

    title: ClassVar = "how the wrapper is called, and what c should be"
    call: str | None = option(
        "CALL", 'the call, in names of the target\'s module: "linear(a, b.t(), bias)"'
    )
    operands: tuple[str, ...] = option(
        "NAME=...",
        "a further operand, passed by name, repeatable: scale=fp32[M], ids=int32[M] 0..7,"
        " offsets=int32[5] offsets,"
        " bias=bf16[N] optional, out=bf16[M, N] written, alpha=1.0|0.5", name="operand",
        repeated=True
    )  # fmt: skip
    spec: str | None = option("FORMULA", 'formula of c: "(a @ b) * scale[:, None] + bias"')
    memory_only: bool = flag(
        "judge everything except values: no formula is evaluated, and results may have any shape"
    )
    stubs: tuple[str, ...] = option(
        "MODULE", "a module that the wrapper does not use, repeatable: any import of it succeeds",
        name="stub", repeated=True
    )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """True if the wrapper is called f(a, b) and c is a b."""
        return self == Calling()

    def read(self) -> dict[str, Operand | OneOf]:
        """Return the operands by name. Raises ValueError, in one line."""
        operands: dict[str, Operand | OneOf] = {}
        for text in self.operands:
            name, operand = read_operand(text)
            if name in operands:
                raise ValueError(f"--operand: got {name} twice, expected it once")
            operands[name] = operand
        return operands

    def state(self, name: str) -> KernelUnderTest:
        """Return a kernel with these operands and this formula, which cannot be called.

        Raises ValueError, in one line, if they make no valid kernel.
        """
        from gemmproof.properties.kernel import KernelUnderTest

        operands = self.read()
        if self.call is not None:
            write_lambda("--call", self.call, ("a", "b", *operands))
        return KernelUnderTest(
            name, print, operands=operands, spec=self.make_spec(), memory_only=self.memory_only
        )

    def make_spec(self) -> Any:
        """Return the formula as a function, or None if there is none."""
        is_absent = self.spec is None or self.memory_only
        return None if is_absent else self._evaluate_spec(self.read())

    def _evaluate_spec(self, operands: Mapping[str, Operand | OneOf]) -> Any:
        from gemmproof.reference.spec import NAMES

        text = write_formula(str(self.spec), operands)
        return eval(compile(text, "--spec", "eval"), {**NAMES, "__builtins__": {}})


def read_operand(text: str) -> tuple[str, Operand | OneOf]:
    """Return the operand that an option declares. Raises ValueError, in one line, if invalid."""
    from gemmproof.properties.kernel import OneOf, Operand, is_name

    name, equals, declaration = text.partition("=")
    name, declaration = name.strip(), declaration.strip()
    if not equals or not is_name(name) or not declaration:
        raise ValueError(f"--operand: got {text!r}, expected {OPERAND_FORM}")
    match = _TENSOR.fullmatch(declaration)
    if match is None:
        return name, OneOf(*(_read_value(word, text) for word in declaration.split("|")))
    fmt, axes, options = match.groups()
    axis_names = [word.strip() for word in axes.split(",")] if axes.strip() else []
    if not all(axis_names):
        got = f"an axis without a size in {text!r}"
        raise ValueError(f"--operand: got {got}, expected {OPERAND_FORM}")
    sides = tuple(int(x) if x.isdecimal() else x for x in axis_names)
    shape = sides[0] if len(sides) == 1 else sides
    more: dict[str, Any] = {}
    for word in options.split():
        low, dots, high = word.partition("..")
        if word == "optional":
            more["optional"] = True
        elif word == "any":
            more["layouts"] = "any"
        elif word in _USES:
            more["use"] = word
        elif word in ("offsets", "ends"):
            more["values"] = word
        elif dots and all(re.fullmatch(r"-?\d{1,10}", n) for n in (low, high)):
            more["values"] = (int(low), int(high))
        else:
            raise ValueError(f"--operand: got {word!r} in {text!r}, expected {OPERAND_FORM}")
    try:
        return name, Operand(find_format(fmt), shape, **more)
    except ValueError as error:
        raise ValueError(f"--operand {name}: {error}") from None


def _read_value(word: str, text: str) -> Any:
    if match := re.fullmatch(r"torch\.(\w+)", word.strip()):
        import torch

        value = getattr(torch, match[1], None)
        if isinstance(value, torch.dtype):
            return value
    try:
        return ast.literal_eval(word.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"--operand: got {word!r} in {text!r}, expected {OPERAND_FORM}") from None


def write_lambda(option: str, text: str, names: Iterable[str]) -> str:
    """Return a lambda of these names with the text as its body. Raises ValueError, in one line."""
    try:
        ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = getattr(error, "msg", None) or str(error)
        raise ValueError(f"{option}: got {text!r} ({what}), expected an expression") from None
    return f"lambda {', '.join(dict.fromkeys(names))}: {text.strip()}"


def write_formula(text: str, operands: Mapping[str, Operand | OneOf]) -> str:
    """Return a formula as a lambda of a, b, the operands that are read, and the sizes it names.

    Raises ValueError, in one line, for what is no formula and for a name that is not known.
    """
    from gemmproof.reference.spec import NAMES
    from gemmproof.reference.spec.names import SIZES, find_names, parse_formula, require_known

    names = ["a", "b", *(n for n, x in operands.items() if getattr(x, "use", "") != "written")]
    try:
        tree = parse_formula(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = getattr(error, "msg", None) or str(error)
        raise ValueError(f"--spec: got {text!r} ({what}), expected an expression") from None
    try:
        require_known(tree, dict.fromkeys(names), NAMES)
    except ValueError as error:
        raise ValueError(f"--spec: {error}") from None
    read, bound = find_names(tree)
    names += [size for size in SIZES if size in read and size not in bound]
    body = text.strip() if _is_expression(text) else ast.unparse(tree)
    return f"lambda {', '.join(dict.fromkeys(names))}: {body}"


def _is_expression(text: str) -> bool:
    """Return whether a text is one expression, not assignments before one."""
    try:
        ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return False
    return True


def list_functions(text: str, operands: Iterable[str]) -> list[str]:
    """List the names of a formula's functions that Python does not have."""
    from gemmproof.reference.spec import NAMES
    from gemmproof.reference.spec.names import BUILTINS, find_names, parse_formula

    read, bound = find_names(parse_formula(text))
    ours = set(NAMES) - {*BUILTINS, "abs", "a", "b", *operands} - bound
    return sorted(ours & set(read))


def bind_call(text: str, names: Iterable[str], known: Mapping[str, Any]) -> Any:
    """Return a function of a, b and the operands that makes the call in a module's namespace.

    Raises ValueError, in one line, for a name that is not defined there.
    """
    import builtins

    import torch

    source = write_lambda("--call", text, ("a", "b", *names))
    known = {"torch": torch, **known}
    tree = ast.walk(ast.parse(source, mode="eval"))
    stored = {n.arg for n in ast.walk(ast.parse(source)) if isinstance(n, ast.arg)}
    for name in (node.id for node in tree if isinstance(node, ast.Name)):
        if name not in stored and name not in known and not hasattr(builtins, name):
            raise ValueError(f"--call: got {name!r} in {text!r}, expected names of the target")
    return eval(compile(source, "--call", "eval"), known)


# -- target --------------------------------------------------------------------------------------
IMPORTING = "importing it"
LOADED = "file_of_"  # before the name of a file's module, if that name is taken
TARGET_FORM = "path/to/file.py:function or package.module:function"


class TargetError(Exception):
    """The target cannot be judged; the message is one line, `where: got X, expected Y`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function: `path` is the path of a file if `is_file`, else a module's name."""

    path: str
    function: str
    is_file: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"

    @property
    def file(self) -> str:
        """The file, or the one that a module of this name has in its folder."""
        return self.path if self.is_file else f"{self.path.replace('.', os.sep)}.py"

    @property
    def name(self) -> str:
        """The kernel's name in reports."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class KernelRef:
    """A kernel to be loaded in a worker.

    It is the one that `conftest` registers as `name`, or the function that `target` names under
    `contract`, called by `calling`. `format` is the only one to judge of a registered kernel, ""
    for all of its contract. Imports search the folders of `path` first. `draft`: the calling was
    drafted, and nobody confirmed it.
    """

    name: str
    conftest: str | None = None
    target: Target | None = None
    contract: Contract | None = field(
        default=None, metadata={"late": "gemmproof.properties.contract"}
    )
    calling: Calling = field(default_factory=Calling)
    format: str = ""
    path: tuple[str, ...] = ()
    draft: bool = False


def parse(text: str) -> Target:
    """Return TARGET, parsed. Raises TargetError if it names no existing file, or no function."""
    path, colon, function = text.rpartition(":")
    if not colon or not path or not all(part.isidentifier() for part in function.split(".")):
        raise TargetError(f"target: got {text!r}, expected {TARGET_FORM}")
    if "/" not in path and not path.endswith(".py"):
        if not all(part.isidentifier() for part in path.split(".")):
            raise TargetError(f"target: got {text!r}, expected {TARGET_FORM}")
        return Target(path, function, is_file=False)
    if not path.endswith(".py"):
        raise TargetError(f"target: got {path!r}, expected a file that ends in .py")
    if not Path(path).is_file():
        what = "a folder" if Path(path).is_dir() else "no such file"
        raise TargetError(f"target: got {path!r} ({what}), expected a Python file")
    return Target(path, function, is_file=True)


def load(
    target: Target,
    call: str | None = None,
    operands: Collection[str] = (),
    needs_all: bool = True,
) -> Callable[..., Any]:
    """Return the function that `target` names, after importing its module in this process.

    With `call` it is a function of a, b and the operands that evaluates the text in the module's
    namespace. Unless it `needs_all` operands, it may have only some of them by name. Raises
    TargetError if the import fails, the name is missing, or f(a, b) with the operands by name
    cannot be called.
    """
    module = load_module(target)
    value = _find_in(module, target)
    if call is not None:
        try:
            return cast(Callable[..., Any], bind_call(call, operands, vars(module)))
        except ValueError as error:
            raise TargetError(f"{target}: {error}") from None
    _require_wrapper(target, value, operands, needs_all)
    return cast(Callable[..., Any], value)


def find_function(target: Target, module: ModuleType) -> Callable[..., Any]:
    """Return what `target` names in its module, however it is called. Raises TargetError."""
    from gemmproof.properties.kernel import is_triton

    function = _find_in(module, target)
    if is_triton(function):
        raise TargetError(f"{target}: got a Triton kernel, expected the wrapper that launches it")
    if not callable(function):
        raise TargetError(f"{target}: got {type(function).__name__}, expected a function")
    return cast(Callable[..., Any], function)


def load_module(target: Target) -> ModuleType:
    """Return the module that holds a target, imported in this process. Raises TargetError."""
    return load_file(Path(target.path)) if target.is_file else _load_module(target.path)


def _find_in(module: ModuleType, target: Target) -> Any:
    value: Any = module
    for part in target.function.split("."):
        if not hasattr(value, part):
            raise TargetError(_missing(target, value, part))
        value = getattr(value, part)
    return value


def load_file(path: Path) -> ModuleType:
    """Return the module that the file at `path` defines, imported as part of its package, if any.

    Its root folder goes first on sys.path, so that it finds its neighbours.
    """
    path = path.resolve()
    root, name = package_of(path)
    sys.path.insert(0, str(root))
    if root != path.parent:
        return call_theirs(str(path), IMPORTING, lambda: _import_packaged(root, name))
    # A single file may have any name, including that of a module of Python's or ours.
    is_taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"{LOADED}{path.stem}" if is_taken else path.stem
    return call_theirs(str(path), IMPORTING, lambda: _execute(path, name))


def package_of(path: Path) -> tuple[Path, str]:
    """Return the folder that contains the file's outermost package, and the module's full name."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        parts.insert(0, root.name)
        root = root.parent
    packaged = len(parts) > 1 and path.stem == "__init__"
    return root, ".".join(parts[:-1] if packaged else parts)


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with fake_device() if _may_query_device(path) else nullcontext():
        try:
            spec.loader.exec_module(module)
        except AssertionError as error:
            _continue_after(error, path, module)
    return module


def _continue_after(error: AssertionError, path: Path, module: ModuleType) -> None:
    """Execute the statements of a file after the assertion that failed at its import.

    Scripts compare a launch with torch: cuBLAS may round like a kernel where the CPU does not.
    """
    tree = ast.parse(path.read_bytes())
    futures = [x for x in tree.body if isinstance(x, ast.ImportFrom) and x.module == "__future__"]
    lines = [
        line for frame, line in walk_tb(error.__traceback__) if frame.f_globals is vars(module)
    ]
    rest = [x for x in tree.body if x.lineno > lines[0]]
    if not rest:
        return
    code = compile(ast.Module([*futures, *rest], []), str(path), "exec", dont_inherit=True)
    try:
        exec(code, vars(module))
    except AssertionError as another:
        _continue_after(another, path, module)


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    return call_theirs(name, IMPORTING, lambda: _import_named(name))


def _import_named(name: str) -> ModuleType:
    stem = Path(sys.path[0], *name.split("."))
    files = [f for f in (stem.with_suffix(".py"), stem / "__init__.py") if f.is_file()]
    with fake_device() if not files or _may_query_device(files[0]) else nullcontext():
        return importlib.import_module(name)


def _import_packaged(root: Path, name: str) -> ModuleType:
    """Import a module of a package, without the `__init__.py` of a package that cannot be imported.

    Such a file imports the whole project, and what the project needs beside the module at hand.
    """
    parents = [name[:i] for i, letter in enumerate(name) if letter == "."]
    while True:
        try:
            return _import_named(name)
        except Exception:
            package = next((p for p in parents if p not in sys.modules), None)
            if package is None:
                raise
            folder = root.joinpath(*package.split("."))
            spec = importlib.util.spec_from_file_location(
                package, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
            assert spec is not None
            sys.modules[package] = importlib.util.module_from_spec(spec)


def _may_query_device(path: Path) -> bool:
    """Return whether a module may query a device at import: not if it imports only the stdlib."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):  # the import itself reports the error
        return False
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    return any(name.partition(".")[0] not in sys.stdlib_module_names for name in names)


def call_theirs(path: str, doing: str, function: Callable[[], Any]) -> Any:
    """Return the result of user code. Raises TargetError, with the line, for whatever it raises."""
    try:
        return function()
    except BaseException as error:  # SystemExit and KeyboardInterrupt as well
        where = line_of(error) or display_path(path)
        text = words_of(error).removeprefix(f"{os.path.basename(where)}: ")  # the simulator's
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        step = find_next_step(error) if doing == IMPORTING else ""
        raise TargetError(f"{where}: {doing} raised {what}{step}") from None


def line_of(error: BaseException) -> str | None:
    """Return file:line of the user's line that failed: the innermost outside any library."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{display_path(error.filename)}:{error.lineno}"
    where = raising_line(error)
    return None if where is None else f"{display_path(where.file)}:{where.line}"


def display_path(filename: str) -> str:
    """Return the path relative to the current folder, or absolute if it is outside."""
    path = os.path.realpath(filename)
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def require_case(kernel: KernelUnderTest, case: Case) -> None:
    """Raise TargetError, in one line, for a case that the kernel cannot be called with."""
    try:
        kernel.require_batch(case)
    except ValueError as error:
        raise TargetError(str(error)) from None
    try:
        kernel.require(case)
    except ValueError as error:
        raise TargetError(f"{kernel.name}: {error}") from None


def _missing(target: Target, holder: object, part: str) -> str:
    names = [name for name in dir(holder) if not name.startswith("_")]
    functions = [name for name in names if inspect.isfunction(getattr(holder, name, None))]
    close = difflib.get_close_matches(part, functions or names, n=1)
    if close:
        expected = f"perhaps {close[0]!r}"
    else:
        expected = f"one of: {' '.join(functions[:8])}" if functions else "a function"
    return f"{target.path}: got {part!r}, which is not there, expected {expected}"


def _find_maker(target: Target, function: object) -> str:
    """Return what a class or a method is, and a call that makes its object, "" for neither."""
    owner = target.function.rpartition(".")[0]
    first = next(iter(getattr(getattr(function, "__code__", None), "co_varnames", ())), "")
    bases = getattr(function, "__mro__", ())
    if any(x.__module__ == "torch.autograd.function" for x in bases) or (first == "ctx" and owner):
        name = target.function if bases else owner
        return f"a function of torch.autograd, expected --call '{name}.apply(a, b)'"
    if isinstance(function, type):
        example = f"{target.function}(...)(a)"
        return f"a class, expected a call that makes its object, such as --call '{example}'"
    if first == "self" and owner and inspect.isfunction(function):
        example = f"{owner}(...).{target.name}(a)"
        return f"a method, expected a call that makes its object, such as --call '{example}'"
    return ""


def _require_wrapper(
    target: Target, function: object, operands: Collection[str], needs_all: bool
) -> None:
    from gemmproof.properties.kernel import is_triton

    form = f"f({', '.join(('a', 'b', *operands))}) -> c"
    if is_triton(function):
        raise TargetError(
            f"{target}: got a Triton kernel, expected the wrapper {form} that launches it"
        )
    if not callable(function):
        raise TargetError(f"{target}: got {type(function).__name__}, expected a function {form}")
    if step := _find_maker(target, function):
        raise TargetError(f"{target}: got {step}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a built-in without a signature: the call itself will show
        return
    names = [name for name in operands if needs_all or name in signature.parameters]
    try:
        signature.bind(None, None, **dict.fromkeys(names))
    except TypeError as error:
        draft = f"; gemmproof draft {target} drafts the options" if not operands else ""
        got = f"got {target.name}{signature} ({error})"
        raise TargetError(f"{target}: {got}, expected {form}, or --call{draft}") from None

"""Lines of a wrapper that look for its checker: in modules, frames, arguments, types or files.

A wrapper that finds out that it is checked may do what no production call does, so what was judged
says nothing of production. The scan is static: it covers the statements that the wrapper reaches in
the user's own files, with aliases and constants resolved. Text that they `exec` is scanned when it
is compiled.
"""

from __future__ import annotations

import ast
import base64
import codecs
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import gemmproof
from gemmproof.identity import IMPORTS, ModuleText, Statement, list_reached, make_module
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.provenance import format_count, owner
from gemmproof.report.record import READS, Report

# -- what is looked at ---------------------------------------------------------------------------
MODULES, FRAMES, ARGUMENTS = "sys.modules", "the frames of its callers", "sys.argv"
ENVIRONMENT, TYPE, MODES = "the environment", "the type of an operand", "the modes of torch"
OBJECTS, DEFINITION = "all objects", "the definition of a function of torch or Triton"
PARENT, FAULTS = "the parent process", "the state of faulthandler"
THREADS = "the names of threads or processes"
# by dotted name
_VALUES = {
    "sys.modules": MODULES,
    "sys.argv": ARGUMENTS,
    "sys.orig_argv": ARGUMENTS,
    "os.environ": ENVIRONMENT,
    "os.environb": ENVIRONMENT,
    "sys.path": MODULES,
    "sys.meta_path": MODULES,
}
_CALLS = {
    **dict.fromkeys(("sys._getframe", "sys._current_frames", "sys._getframemodulename"), FRAMES),
    **dict.fromkeys(("inspect.stack", "inspect.currentframe", "inspect.trace"), FRAMES),
    **dict.fromkeys(("traceback.extract_stack", "traceback.format_stack"), FRAMES),
    **dict.fromkeys(("traceback.walk_stack", "inspect.getouterframes"), FRAMES),
    **dict.fromkeys(("os.getenv", "os.getenvb"), ENVIRONMENT),
    **dict.fromkeys(("gc.get_objects", "gc.get_referrers"), OBJECTS),
    **dict.fromkeys(("os.getppid", "psutil.Process", "multiprocessing.parent_process"), PARENT),
    **dict.fromkeys(("threading.enumerate", "threading.current_thread"), THREADS),
    "multiprocessing.current_process": THREADS,
    "pkgutil.iter_modules": MODULES,
    "importlib.metadata.distributions": MODULES,
    "faulthandler.is_enabled": FAULTS,
    "type": TYPE,
}
_TRACERS = ("sys.gettrace", "threading.gettrace", "sys.getprofile", "sys.monitoring.get_tool")
_MODE = re.compile(r"_(?:get_current|len_torch|get)_(?:dispatch|function)_(?:mode|stack)")
_OF_FRAMES = ("f_back", "f_code", "f_globals", "f_locals", "tb_frame", "gi_frame")
_OF_DEFINITIONS = ("__module__", "__code__", "__globals__", "__closure__", "__wrapped__")
_SOURCE = ("inspect.getsource", "inspect.getfile", "inspect.getsourcefile", "inspect.getmodule")
_FINDERS = (
    *("importlib.util.find_spec", "importlib.find_loader", "importlib.import_module"),
    *("importlib.metadata.version", "importlib.metadata.distribution", "importlib.metadata.files"),
    *("pkgutil.find_loader", "pkgutil.get_loader", "__import__", "shutil.which"),
)
_OPENERS = ("open", "io.open", "os.open", "pathlib.Path")
# functions and methods that compare their arguments
_PREDICATES = (
    *("isdisjoint", "intersection", "issubset", "issuperset", "__contains__", "contains", "eq"),
    *("search", "match", "fullmatch", "findall", "fnmatch", "fnmatchcase", "filter"),
)
_HASH = re.compile(r"\b(?:hash|crc32|adler32|md5|sha\d+|blake2[bs])\(")
_PROCESS_FILE = re.compile(r"/proc/.*(?:cmdline|environ|maps|comm|stat|status|exe)$")

# -- what is looked for --------------------------------------------------------------------------
_CHECKER = re.compile(r"gemm_?proof|hypothesis|py\.?test", re.IGNORECASE)
# a documented setting of gemmproof's own kernels, which they have in production too
_SETTINGS = ("GEMMPROOF_GEMM_TABLE",)
# the classes that stand in while a proof traces a wrapper, and Triton's own interpreter; not
# FakeTensor itself, for which wrappers test that torch compiles: a proof answers as a call does
_STAND_INS = re.compile(r"\b(?:FakeTensorMode|FunctionalTensor|InterpretedFunction|fake_mode)$")
_FAKE = re.compile(r"fake|functional_?tensor|_subclasses", re.IGNORECASE)
COMPARES = "compares with"
SHORTEST = 3  # characters of a part of a name that is compared with


@cache
def _list_own_frames() -> frozenset[str]:
    """Return the names of gemmproof's files and folders, which are on the stack of a check only."""
    root = Path(gemmproof.__file__).parent
    folders = [p for p in root.iterdir() if p.is_dir() and p.name not in ("kernels", "__pycache__")]
    files = (file.stem for folder in folders for file in folder.rglob("*.py"))
    return frozenset({*files, *(folder.name for folder in folders), "simulator", "fake_cuda"})


def _is_named(text: str, kind: str) -> bool:
    """Return whether a text that something is compared with names the checker, or a part of it."""
    if text in _SETTINGS:
        return False
    if _CHECKER.search(text) or text == "__main__.py":
        return True
    if kind in (TYPE, DEFINITION):
        return _FAKE.search(text) is not None and text != "FakeTensor"
    if kind == FRAMES and Path(text).stem in _list_own_frames():
        return True
    if kind in (MODULES, OBJECTS) and text in gemmproof.__all__:
        return not text.islower()
    is_part = len(text) >= SHORTEST and text.lower() in "gemmproof"
    return is_part and (kind in (MODULES, ARGUMENTS, OBJECTS) or "proof" in text.lower())


# -- result --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CheckerRead:
    """A line that looks for the checker, and how: "looks for gemmproof in sys.modules"."""

    where: str
    how: str

    def __str__(self) -> str:
        """Format the read as one line."""
        return f"{self.where} {self.how}"


def find_reads(kernel: KernelUnderTest) -> tuple[CheckerRead, ...]:
    """Return the lines with which a wrapper, or what it calls, looks for its checker."""
    try:
        reached = list_reached(kernel.launch)
    except Exception:  # its objects may do anything when they are inspected
        return ()
    parts: dict[ModuleText, list[Statement]] = {}
    for part in reached:
        parts.setdefault(part.source, []).append(part)
    return tuple(
        read
        for module, own in parts.items()
        for read in _scan(module, [tree for part in own for tree in _list_host_code(part.node)])
    )


def _list_host_code(part: ast.stmt) -> list[ast.AST]:
    """Return what of a statement runs on the host: of a kernel, only its decorators."""
    if isinstance(part, ast.FunctionDef):
        decorators = [ast.unparse(x).partition("(")[0] for x in part.decorator_list]
        if any(name.rpartition(".")[2] == "jit" for name in decorators):
            return [*part.decorator_list]
    return [part]


SHOWN = 3  # lines in a report


def note_reads(report: Report, reads: Iterable[CheckerRead]) -> Report:
    """Return the report with the lines that look for the checker, also in text that was executed.

    It is incomplete: a call in production may do something else.
    """
    by_line = {read.where: str(read) for read in (*_executed, *reads)}
    for text in list(by_line.values())[:SHOWN]:
        report = report.with_note(text, "incomplete", READS)
    if len(by_line) > SHOWN:
        more = format_count(len(by_line) - SHOWN, "such line")
        report = report.with_note(f"and {more} more", gap=READS)
    return report


def _scan(module: ModuleText, trees: Sequence[ast.AST]) -> Iterator[CheckerRead]:
    """Yield the first read of each line of some parts of a module."""
    names = _read_names(module, trees)
    reads = [read for tree in trees for node in ast.walk(tree) for read in _judge(node, names)]
    nodes = {node for node, _ in reads}
    first: dict[int, str] = {}
    # where a name is looked for says more than the name
    for node, how in sorted(reads, key=lambda read: read[1].startswith(COMPARES)):
        # what depends on the answer of another line looks for nothing itself
        if names.kinds(node, direct=True) or not nodes & names.list_behind(node):
            first.setdefault(node.lineno, how)
    file = os.path.basename(module.path)
    yield from (CheckerRead(f"{file}:{line}", first[line]) for line in sorted(first))


# -- executed text -------------------------------------------------------------------------------
_executed: dict[CheckerRead, None] = {}


def listen() -> None:
    """Have the text that the user's code executes, and what it opens, judged from now on.

    Python announces both to audit hooks, which stay until the process ends: this is for workers.
    """
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("compile", "open"):
        return
    frame = sys._getframe(1)  # that of the caller: exec, compile and open are built in
    if owner(frame.f_code.co_filename) != "user":
        return
    where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    text = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else ""
    if event == "open" and _PROCESS_FILE.match(text):
        _executed[CheckerRead(where, f"reads {text}")] = None
    if event == "compile" and text:
        try:
            module = make_module(text, frame.f_code.co_filename)
        except (SyntaxError, ValueError):  # the call itself will say so
            return
        reads = _scan(module, [part.node for part in module.parts])
        _executed.update((CheckerRead(where, read.how), None) for read in reads)


# -- names ---------------------------------------------------------------------------------------
class _Unknown(Exception):
    """An expression is no constant."""


Scope = ast.AST | None
_METHODS = (
    *("join", "lower", "upper", "replace", "strip", "format", "decode", "encode", "title", "split"),
    *("capitalize", "swapcase", "casefold", "removeprefix", "removesuffix", "fromhex"),
)
_BUILTINS: dict[str, Callable[..., Any]] = {
    "chr": chr, "str": str, "bytes": bytes, "bytearray": bytes, "list": list, "tuple": tuple,
    "set": tuple, "frozenset": tuple, "sorted": sorted, "reversed": lambda x: x[::-1],
    "base64.b64decode": base64.b64decode, "codecs.decode": codecs.decode,
    "bytes.fromhex": bytes.fromhex, "bytearray.fromhex": bytes.fromhex,
}  # fmt: skip
_MOST = 10_000  # elements of a constant
_DEEPEST = 12  # names that are resolved one after another


@dataclass(slots=True)
class _Names:
    """The names of a module: modules that they are imported from, and values bound to them.

    `bound` is by function (None for the module) and name; `scopes` has the function that a node is
    in; `returns` has the results of functions by name.
    """

    imports: dict[str, str] = field(default_factory=dict)
    bound: dict[tuple[Scope, str], list[ast.expr]] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    returns: dict[str, list[ast.expr]] = field(default_factory=dict)
    _kinds: dict[ast.AST, str] = field(default_factory=dict)
    _dotted: dict[tuple[Scope, str], str] = field(default_factory=dict)

    def enter(self, node: ast.AST, scope: Scope = None) -> None:
        """Add the names of a tree in a scope."""
        self.scopes[node] = scope
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        match node:
            case ast.Assign():
                targets, value = node.targets, node.value
            case ast.AnnAssign() | ast.NamedExpr() | ast.AugAssign():
                targets, value = [node.target], node.value
            case ast.For() | ast.comprehension():
                targets, value = [node.target], node.iter
            case ast.withitem():
                targets = [node.optional_vars] if node.optional_vars else []
                value = node.context_expr
            case ast.Return() if node.value is not None and isinstance(scope, ast.FunctionDef):
                self.returns.setdefault(scope.name, []).append(node.value)
        for target in targets:
            if value is not None:
                self._bind(target, value, scope)
        if isinstance(node, ast.While | ast.For):  # a count of its turns tells what ends it
            turns = node.test if isinstance(node, ast.While) else node.iter
            for step in ast.walk(node):
                if isinstance(step, ast.AugAssign):
                    self._bind(step.target, turns, scope)
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
        for child in ast.iter_child_nodes(node):
            self.enter(child, inner)

    def _bind(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault((scope, target.id), []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            for i, each in enumerate(target.elts):
                part = parts[i] if len(parts) == len(target.elts) else value
                self._bind(each, part, scope)

    def pass_arguments(self, function: ast.FunctionDef, call: ast.Call) -> None:
        """Bind the parameters of a function of the module to the arguments of a call."""
        parameters = [x.arg for x in (*function.args.posonlyargs, *function.args.args)]
        if parameters[:1] in (["self"], ["cls"]):
            parameters = parameters[1:]
        given = dict(zip(parameters, call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        for name, value in given.items():
            self.bound.setdefault((function, name), []).append(value)

    def values_of(self, name: ast.Name) -> tuple[tuple[Scope, str], list[ast.expr]]:
        """Return the expressions that a name is bound to where it is read, and their key."""
        key = (self.scopes.get(name), name.id)
        if key not in self.bound:
            key = (None, name.id)
        return key, self.bound.get(key, [])

    def dotted(self, node: ast.AST, depth: int = 0) -> str:
        """Return the dotted name of an expression, such as "sys.modules"; "" if it has none."""
        if depth > _DEEPEST:
            return ""
        match node:
            case ast.Name():
                key, values = self.values_of(node)
                if not values:
                    return self.imports.get(node.id, node.id)
                if key not in self._dotted:
                    self._dotted[key] = ""  # a name that is bound to itself
                    known = {self.dotted(value, depth + 1) for value in values}
                    self._dotted[key] = known.pop() if len(known) == 1 else ""
                return self._dotted[key]
            case ast.Attribute():
                base = self.dotted(node.value, depth + 1)
                return f"{base}.{node.attr}" if base else ""
            case ast.Subscript(value=ast.Attribute(attr="__dict__", value=base)):
                return self._attribute(base, node.slice, depth)
            case ast.Subscript(value=ast.Call(func=ast.Name(id="vars"), args=[base])):
                return self._attribute(base, node.slice, depth)
            case ast.Call(func=ast.Name(id="getattr"), args=[base, name, *_]):
                return self._attribute(base, name, depth)
            case ast.Call(args=[name, *_]):
                function = self.dotted(node.func, depth + 1)
                if function in ("__import__", "importlib.import_module"):
                    return next(iter(self.texts(name)), "")
        return ""

    def _attribute(self, base: ast.expr, name: ast.expr, depth: int) -> str:
        owned = self.dotted(base, depth + 1)
        try:
            return f"{owned}.{self.fold(name, {})}" if owned else ""
        except _Unknown:
            return ""

    def list_behind(self, tree: ast.AST) -> set[ast.AST]:
        """Return the nodes of all expressions that the names of a tree are bound to."""
        behind: set[ast.AST] = set()
        rest = [tree]
        while rest:
            for node in ast.walk(rest.pop()):
                values: list[ast.expr] = []
                if isinstance(node, ast.Name):
                    _, values = self.values_of(node)
                elif isinstance(node, ast.Call):
                    values = self.returns.get(self.dotted(node.func).rpartition(".")[2], [])
                rest += (value for value in values if value not in behind)
                behind.update(inner for value in values for inner in ast.walk(value))
        return behind

    def kinds(self, tree: ast.AST, direct: bool = False) -> set[str]:
        """Return what the values of an expression were read from; only in it, if `direct`."""
        nodes = {*ast.walk(tree), *(() if direct else self.list_behind(tree))}
        for node in nodes - self._kinds.keys():
            self._kinds[node] = self._kind_of(node)
        return {kind for node in nodes if (kind := self._kinds[node])}

    def _kind_of(self, node: ast.AST) -> str:
        """Return what a node reads itself, "" for nothing that may show the checker."""
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            return ""
        name = self.dotted(node)
        if name in _VALUES:
            return _VALUES[name]
        if isinstance(node, ast.Attribute):
            if node.attr in _OF_DEFINITIONS and self._is_library(node.value):
                return DEFINITION
            return FRAMES if node.attr in _OF_FRAMES else TYPE * (node.attr == "__class__")
        if not isinstance(node, ast.Call):
            return ""
        function = self.dotted(node.func)
        if function in _CALLS and (function != "type" or len(node.args) == 1):
            return _CALLS[function]
        if function in _SOURCE and node.args and self._is_library(node.args[0]):
            return DEFINITION
        return MODES if _MODE.search(function) else ""

    def _is_library(self, node: ast.expr) -> bool:
        """Return whether an expression is a function of torch or Triton, or a kernel's `run`."""
        name = self.dotted(node)
        return name.startswith(("torch.", "triton.")) or name.endswith(".run")

    def texts(self, tree: ast.AST) -> list[str]:
        """Return every constant text in an expression, with names resolved."""
        texts: dict[str, None] = {}
        seen: set[tuple[Scope, str]] = set()

        def add(node: ast.AST) -> None:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    key, values = self.values_of(inner)
                    if key not in seen:
                        seen.add(key)
                        for value in values:
                            add(value)
                if isinstance(inner, ast.expr):
                    try:
                        texts.update(dict.fromkeys(_list_texts(self.fold(inner, {}))))
                    except _Unknown:
                        continue

        add(tree)
        return list(texts)

    def fold(self, node: ast.AST, local: dict[str, Any], depth: int = 0) -> Any:
        """Return the value of a constant expression. Raises _Unknown for any other."""
        if depth > _DEEPEST:
            raise _Unknown

        def fold(inner: ast.AST) -> Any:
            return self.fold(inner, local, depth + 1)

        try:
            match node:
                case ast.Constant():
                    return node.value
                case ast.Name(id=name) if name in local:
                    return local[name]
                case ast.Name():
                    _, values = self.values_of(node)
                    if len(values) == 1:
                        return fold(values[0])
                case ast.BinOp(op=ast.Add()):
                    return _limit(fold(node.left) + fold(node.right))
                case ast.BinOp(op=ast.Sub()):
                    return fold(node.left) - fold(node.right)
                case ast.BinOp(op=ast.BitXor()):
                    return fold(node.left) ^ fold(node.right)
                case ast.BinOp(op=ast.Mod()):
                    return fold(node.left) % fold(node.right)
                case ast.UnaryOp(op=ast.USub()):
                    return -fold(node.operand)
                case ast.JoinedStr():
                    return "".join(map(str, map(fold, node.values)))
                case ast.FormattedValue():
                    return fold(node.value)
                case ast.Tuple() | ast.List() | ast.Set():
                    return [fold(x) for x in node.elts]
                case ast.Dict():
                    return [fold(x) for x in node.keys if x is not None]
                case ast.Subscript():
                    return fold(node.value)[fold(node.slice)]
                case ast.Slice():
                    return slice(*(x and fold(x) for x in (node.lower, node.upper, node.step)))
                case ast.GeneratorExp() | ast.ListComp() | ast.SetComp():
                    (loop,) = node.generators
                    if isinstance(loop.target, ast.Name) and not loop.ifs:
                        name = loop.target.id
                        return [
                            self.fold(node.elt, {**local, name: x}, depth + 1)
                            for x in _limit(fold(loop.iter))
                        ]
                case ast.Call() if not node.keywords:
                    if (function := _BUILTINS.get(self.dotted(node.func))) is not None:
                        return _limit(function(*map(fold, node.args)))
                    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
                        method = getattr(fold(node.func.value), node.func.attr)
                        return _limit(method(*map(fold, node.args)))
        except _Unknown:
            raise
        except Exception as error:  # of an expression that raises
            raise _Unknown from error
        raise _Unknown


def _limit(value: Any) -> Any:
    if isinstance(value, str | bytes | list | tuple) and len(value) > _MOST:
        raise _Unknown
    return value


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _list_texts(each)


def _read_names(module: ModuleText, trees: Iterable[ast.AST]) -> _Names:
    """Return the names of some parts of a module."""
    names = _Names()
    for part in module.parts:
        for name, imported in part.imports.items():
            names.imports[name] = ".".join(filter(None, [imported.module, imported.name]))
    for tree in trees:
        names.enter(tree)
    functions = {x.name: x for x in names.scopes if isinstance(x, ast.FunctionDef)}
    for node in names.scopes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in functions:
                names.pass_arguments(functions[called], node)
    return names


# -- judgment ------------------------------------------------------------------------------------
Reads = Iterator[tuple[ast.expr | ast.stmt, str]]


def _judge(node: ast.AST, names: _Names) -> Reads:
    """Yield the parts of a node that look for the checker, and how."""
    if isinstance(node, ast.Try):
        yield from _judge_imports(node)
    for decision in _list_decisions(node):
        for kind in sorted(names.kinds(decision)):
            if how := _judge_decision(decision, kind, names):
                yield decision, how
        if how := _judge_text(decision, names):
            yield decision, how
    if isinstance(node, ast.Attribute) and node.attr == "f_trace":
        yield node, "reads the trace function of a frame"
    if not isinstance(node, ast.Call | ast.Subscript | ast.BinOp):
        return
    if how := _judge_lookup(node, names):
        yield node, how


def _judge_imports(node: ast.Try) -> Reads:
    """Yield the imports of the checker that may fail: whether they do tells that it is there."""
    for child in node.body if node.handlers else ():
        if isinstance(child, IMPORTS):
            modules = [child.module or ""] if isinstance(child, ast.ImportFrom) else []
            modules += [alias.name for alias in child.names]
            if name := next(filter(_CHECKER.search, modules), None):
                yield child, f"tries to import {name}"


def _list_decisions(node: ast.AST) -> list[ast.expr]:
    """Return the expressions of a node that decide what runs, or that compare values."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            return [node.test]
        case ast.comprehension():
            return node.ifs
        case ast.Match():
            return [node.subject]
        case ast.Compare():
            return [node]
        case ast.BoolOp():
            return node.values
        case ast.UnaryOp(op=ast.Not()):
            return [node.operand]
        case ast.BinOp() | ast.Call(func=ast.Name(id="isinstance" | "bool" | "hasattr")):
            return [node]
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith")):
            return [node]
    return []


def _judge_decision(decision: ast.expr, kind: str, names: _Names) -> str:
    """Return how a decision on values of this kind looks for the checker, "" if it does not."""
    texts = names.texts(decision)
    if name := next((x for x in texts if _is_named(x, kind)), None):
        return f"looks for {_shorten(name)} in {kind}"
    if kind == TYPE:
        return ""
    if kind in (MODES, FAULTS, DEFINITION):
        return f"depends on {kind}"
    if _HASH.search(ast.unparse(decision)):
        return f"looks for the hash of a text in {kind}"
    if texts or _is_none_test(decision) or _is_of_own_file(decision):
        return ""
    if kind in (FRAMES, PARENT, OBJECTS):
        return f"depends on {kind}"
    counts = any(isinstance(x, ast.Constant) and type(x.value) is int for x in ast.walk(decision))
    is_count = (
        isinstance(decision, ast.Compare)
        and counts
        and not isinstance(decision.ops[0], ast.In | ast.NotIn)
    )
    return f"depends on {kind}" if kind == MODULES and is_count else ""


def _judge_text(decision: ast.expr, names: _Names) -> str:
    """Return how a decision names the checker, or a class that stands in for another."""
    if isinstance(decision, ast.BinOp):
        return ""
    for node in ast.walk(decision):
        dotted = names.dotted(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if stand_in := _STAND_INS.search(dotted):
            return f"looks for the class {stand_in[0]}"
    if not isinstance(decision, ast.Compare | ast.Call):
        return ""
    name = next((x for x in names.texts(decision) if "gemmproof" in x.lower()), "")
    return f"{COMPARES} {_shorten(name)}" if name and name not in _SETTINGS else ""


def _judge_lookup(node: ast.Call | ast.Subscript | ast.BinOp, names: _Names) -> str:
    """Return how a call, an index or a set operation looks the checker up."""
    if isinstance(node, ast.Subscript):
        looked_at, asked = names.kinds(node.value), names.texts(node.slice)
    elif isinstance(node, ast.BinOp):
        if not isinstance(node.op, ast.BitAnd | ast.Sub | ast.BitOr):
            return ""
        looked_at, asked = names.kinds(node), names.texts(node)
    else:
        name = names.dotted(node.func)
        if name in _TRACERS:
            return f"calls {name}"
        method = node.func.attr if isinstance(node.func, ast.Attribute) else name
        asked = [text for argument in node.args for text in names.texts(argument)]
        opened = filter(_PROCESS_FILE.match, asked if name in _OPENERS else ())
        if file := next(opened, None):
            return f"reads {file}"
        if name in _FINDERS and (text := next(filter(_CHECKER.search, asked), None)):
            return f"looks for {_shorten(text)} with {name}"
        looked_at = (
            names.kinds(node.func) | {_CALLS[name]} if name in _CALLS else names.kinds(node.func)
        )
        if method.rpartition(".")[2] in _PREDICATES:
            looked_at = names.kinds(node)
            asked = names.texts(node)
    for kind in sorted(looked_at):
        if text := next((x for x in asked if _is_named(x, kind)), None):
            return f"looks for {_shorten(text)} in {kind}"
    return ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _is_none_test(decision: ast.expr) -> bool:
    """Return whether a decision asks only if a value is there."""
    if isinstance(decision, ast.Compare):
        return all(isinstance(x, ast.Constant) and x.value is None for x in decision.comparators)
    if isinstance(decision, ast.UnaryOp):
        return _is_none_test(decision.operand)
    if isinstance(decision, ast.BoolOp):
        return all(map(_is_none_test, decision.values))
    return isinstance(decision, ast.Name | ast.Attribute | ast.NamedExpr)


def _is_of_own_file(decision: ast.expr) -> bool:
    """Return whether a decision compares with the file or the name of its own module."""
    names = (x.id for x in ast.walk(decision) if isinstance(x, ast.Name))
    return any(name in ("__file__", "__name__", "__package__") for name in names)

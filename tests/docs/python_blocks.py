"""Blocks of Python: they are executed, or inspected where they need a GPU, page by page."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
import shutil
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.docs.pages import ROOT, Block
from tests.support.pytest_project import SUITE

FILE = re.compile(r"# (\w+\.py)\n")
SIGNATURE = re.compile(r"(\w+)(\(.*\)) -> [\w.]+")
REGISTERS = "pytest_gemm_kernels"
UNKNOWN = object()  # what a block that is not executed would assign
RunPytest = Callable[..., tuple[int, str]]


@dataclass(slots=True)
class Session:
    """A page's names, and the files of the project that its blocks have written."""

    project: Path
    run_pytest: RunPytest
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    files: dict[str, Block] = field(default_factory=dict)


def check_page(blocks: Sequence[Block], project: Path, run_pytest: RunPytest) -> Iterator[str]:
    """Yield what is wrong with the blocks of one page, which share a namespace."""
    session = Session(project, run_pytest)
    for block in blocks:
        file = block.comments.get("file") or find_name(block.text)
        try:
            ast.parse(block.text) if not is_special(block.text) else None
        except SyntaxError as error:
            yield block.report(f"SyntaxError: {error.msg}", error.lineno or 0)
            continue
        setup = block.comments.get("setup", "")
        if needs_gpu(setup):
            yield from inspect_code(block, setup, 0, session)
        else:
            yield from execute(block, setup, 0, session)
        if source := block.comments.get("lines of"):
            yield from compare_lines(block, source)
        elif file.startswith(".."):
            continue  # a file of this repository, compared with the block elsewhere
        elif file:
            if file in session.files:
                yield from collect(session)
            session.files[file] = block
            path = project / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif ">>> " in block.text:
            yield from run_examples(block, session)
        elif is_signatures(block.text):
            yield from compare_signatures(block, session)
        elif needs_gpu(block.text + setup):
            yield from inspect_code(block, block.text, block.line, session)
        else:
            yield from execute(block, block.text, block.line, session)
    yield from collect(session)


def find_name(text: str) -> str:
    """Return the name in a first line such as `# conftest.py`."""
    first = FILE.match(text)
    return first[1] if first else ""


def is_signatures(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip()]
    return bool(lines) and all(SIGNATURE.fullmatch(line) for line in lines)


def is_special(text: str) -> bool:
    """Return whether a block is Python's prompt or signatures, which are no statements."""
    return ">>> " in text or is_signatures(text)


def needs_gpu(text: str) -> bool:
    return re.search(r"""["']cuda\b|\bgemm_benchmark\b""", text) is not None


def execute(block: Block, code: str, offset: int, session: Session) -> Iterator[str]:
    """Execute code of a block; `offset` lines of the page precede it."""
    try:
        exec(compile("\n" * offset + code, block.page, "exec"), session.names)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [x.lineno or 0 for x in frames if x.filename == block.page]
        line = lines[-1] - block.line if lines and offset else 0
        yield block.report(f"{type(error).__name__}: {error}", line)


def compare_lines(block: Block, source: str) -> Iterator[str]:
    """Check that a file of the repository, by its path from the page, has the block's lines."""
    path = (ROOT / block.page).parent / source
    if not path.is_file():
        yield block.report(f"got lines of {source}, which does not exist")
        return
    lines = [line.strip() for line in path.read_text().split("\n")]
    shown = [line.strip() for line in block.text.strip().split("\n")]
    if not any(lines[n : n + len(shown)] == shown for n in range(len(lines))):
        yield block.report(f"got lines that are not in {source} in this order")


def collect(session: Session) -> Iterator[str]:
    """Collect the files that blocks have written with pytest, then forget them.

    A conftest.py that registers kernels is imported by any collection, and asked for its kernels
    by a file that imports the suite.
    """
    blocks = dict(session.files)
    session.files.clear()
    if not blocks:
        return
    added = session.project / "test_suite_of_page.py"
    if any(REGISTERS in block.text for block in blocks.values()):
        added.write_text(SUITE)
    tests = [session.project / name for name in blocks if Path(name).name.startswith("test_")]
    if added.exists():
        tests.append(added)
    block = next(iter(blocks.values()))
    if not tests:
        for name, file in blocks.items():
            session.names["__file__"] = str(session.project / name)
            yield from execute(file, file.text, file.line, session)
    else:
        argv = map(str, tests)
        status, out = session.run_pytest(session.project, "--collect-only", "-q", *argv)
        if status != 0:
            errors = re.findall(
                r"^(?:E +|\w+\.py:\d+: )(.*)", out, re.MULTILINE
            ) or out.strip().split("\n")
            yield block.report(f"pytest --collect-only {' '.join(blocks)}: {errors[-1]}")
    for name in (*blocks, added.name):
        (session.project / name).unlink(missing_ok=True)
    shutil.rmtree(session.project / "__pycache__", ignore_errors=True)


def run_examples(block: Block, session: Session) -> Iterator[str]:
    """Run the block's examples at Python's prompt."""
    parser, printed = doctest.DocTestParser(), list[str]()
    try:
        shown = parser.get_doctest(block.text, session.names, block.page, block.page, block.line)
    except ValueError as error:
        yield block.report(str(error))
        return
    if (
        not doctest.DocTestRunner(verbose=False)
        .run(shown, out=printed.append, clear_globs=False)
        .failed
    ):
        session.names.update(shown.globs)
        return
    for message in printed:
        for failed in re.finditer(r'^File ".*", line (\d+)', message, re.MULTILINE):
            text = " ".join(message.partition("Expected")[2].split())
            yield f"{block.page}:{failed[1]}: expected{text}"


def compare_signatures(block: Block, session: Session) -> Iterator[str]:
    """Check that functions have the signatures; later blocks may call them by their names."""
    for line, text in enumerate(block.text.split("\n"), 1):
        match = SIGNATURE.fullmatch(text)
        if match is None:
            continue
        name, parameters = match.groups()
        function = find_function(name)
        if function is None:
            yield block.report(f"got {name}, which is no function of gemmproof", line)
            continue
        scope = dict(session.names)
        try:
            exec(f"def shown{parameters}: ...", scope)
        except Exception as error:
            yield block.report(f"{type(error).__name__}: {error}", line)
            continue
        if list_parameters(scope["shown"]) != list_parameters(function):
            yield block.report(f"got {text}, expected {name}{inspect.signature(function)}", line)
        session.names[name] = function


def find_function(name: str) -> Callable[..., Any] | None:
    """Return the public function of that name."""
    import gemmproof
    from gemmproof import kernels
    from gemmproof.kernels import fused, quantized

    modules = (gemmproof, kernels, fused, quantized)
    listed = (getattr(module, name, None) for module in modules)
    return next((x for x in (*listed, kernels.KERNELS.get(name)) if inspect.isfunction(x)), None)


def list_parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


def inspect_code(block: Block, code: str, offset: int, session: Session) -> Iterator[str]:
    """Execute the imports of code that needs a GPU, resolve its names and bind its calls."""
    tree, names = ast.parse(code), session.names
    nodes = list(ast.walk(tree))

    def report(message: str, line: int) -> str:
        return block.report(message, line if offset else 0)

    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for message in execute(block, ast.unparse(node), 0, session):
                yield report(message.split(": ", 1)[1], node.lineno)
    local = dict.fromkeys(
        [
            *(x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)),
            *(x.name for x in nodes if isinstance(x, ast.FunctionDef | ast.ClassDef)),
            *(x.arg for x in nodes if isinstance(x, ast.arg)),
        ],
        UNKNOWN,
    )
    known = {**vars(builtins), **names, **local, **find_fixtures(local)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in known:
            yield report(f"NameError: name {node.id!r} is not defined", node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = known.get(node.value.id)
            if isinstance(owner, ModuleType) and not hasattr(owner, node.attr):
                yield report(f"AttributeError: {ast.unparse(node)}", node.lineno)
        elif isinstance(node, ast.Call) and (message := bind(node, known)):
            yield report(f"{ast.unparse(node.func)}: {message}", node.lineno)
    names.update(local)


def find_fixtures(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the plugin's fixtures of these names give to a test."""
    if "gemm_benchmark" not in names:
        return {}
    from gemmproof.bench import fixture

    definition = fixture.gemm_benchmark
    function = getattr(definition, "_get_wrapped_function", lambda: definition.__wrapped__)()
    source = textwrap.dedent(inspect.getsource(function))
    measure = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "measure"
    )
    scope: dict[str, Any] = {}
    shape = f"def measure({ast.unparse(measure.args)}): ..."
    exec(compile(f"from __future__ import annotations\n{shape}", "fixture", "exec"),
         {**vars(fixture)}, scope)  # fmt: skip
    return {"gemm_benchmark": scope["measure"]}


def bind(call: ast.Call, known: Mapping[str, Any]) -> str:
    """Return why a function of the namespace does not take the call's arguments, or ""."""
    function = resolve(call.func, known)
    starred = any(isinstance(x, ast.Starred) for x in call.args)
    if function is UNKNOWN or starred or any(x.arg is None for x in call.keywords):
        return ""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return ""  # a function of torch that is written in C++
    try:
        signature.bind(*call.args, **{str(x.arg): x.value for x in call.keywords})
    except TypeError as error:
        return str(error)
    return ""


def resolve(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of a name, or of an attribute of a module, or UNKNOWN."""
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = known.get(node.value.id)
        return getattr(owner, node.attr, UNKNOWN) if isinstance(owner, ModuleType) else UNKNOWN
    return UNKNOWN

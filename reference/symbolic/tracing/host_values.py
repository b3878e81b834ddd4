"""Symbolic sizes as a wrapper's Python sees them: integers with every operation of an int.

Torch's symbols lack some of these operations, and answer others with text or a hash that is not the
size's. Each of them gives an exact result here, or it ends the path as not decided.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import linecache
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from functools import lru_cache, partial, reduce
from types import FrameType, UnionType
from typing import Any, get_args

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from gemmproof.reference.fake_cuda.tensors import CPU, CUDA, is_host, real_device
from gemmproof.reference.provenance import is_ours, owner
from gemmproof.reference.symbolic.terms import eq
from gemmproof.reference.symbolic.tracing.symbolic_shapes import Decisions
from gemmproof.reference.symbolic.tracing.trace import NotKnown
from gemmproof.reference.triton_hooks import Change

_isinstance, _max, _min, _type = isinstance, max, min, type

# the types that a wrapper takes the stand-ins for, with a value of each
_PLAIN: dict[type, Any] = {torch.SymInt: 2, torch.SymBool: True, torch.SymFloat: 0.5}
_SEEN_AS: dict[type, type] = {
    **{symbolic: _type(x) for symbolic, x in _PLAIN.items()},
    FakeTensor: torch.Tensor,
}
_TABLE_KEY = "a size is the key of a table"


def as_concrete() -> tuple[Change, ...]:
    """Return the patches for tracing a wrapper; code of torch and Triton sees no difference.

    Python's own max and min would compare, and each order of the sizes would be a path.
    """
    actual, is_fake = vars(FakeTensor)["device"], fake_tensor.is_fake

    def device(self: Any) -> Any:
        if not _asked_by_user(sys._getframe(1)):
            return actual.__get__(self)
        return CPU if is_host(self) else CUDA

    return (
        (FakeTensor, "device", property(device, actual.fset)),
        (fake_tensor, "is_fake", lambda x: not _asked_by_user(sys._getframe(1)) and is_fake(x)),
        (builtins, "isinstance", _is_instance),
        (builtins, "max", _symbolic(_max, torch.sym_max)),
        (builtins, "min", _symbolic(_min, torch.sym_min)),
        (json.JSONEncoder, "default", _as_user_only(json.JSONEncoder.default, "JSON", _PLAIN)),
        (torch.UntypedStorage, "data_ptr", _refuse_address),
        *_INTEGERS,
        *((module, "type", _Type) for module in _list_modules()),
    )


def as_before() -> tuple[Change, ...]:
    """Return the patches that restore Python's own functions, which are faster."""
    return tuple((builtins, own.__name__, own) for own in (_isinstance, _max, _min))


def _asked_by_user(frame: FrameType | None) -> bool:
    """Return whether a frame is not library code."""
    return frame is not None and owner(frame.f_code.co_filename) != "library"


def _is_instance(x: Any, kind: Any) -> bool:
    if _type(x) in _SEEN_AS and _asked_by_user(sys._getframe(1)):
        if _type(x) is FakeTensor:
            return _isinstance(x, _without_fake(kind))
        return _isinstance(_PLAIN[_type(x)], kind)
    return _isinstance(x, kind)


def _without_fake(kind: Any) -> Any:
    """Return the classes of an isinstance, of which no operand of a real call is FakeTensor."""
    if _isinstance(kind, UnionType):
        kind = get_args(kind)
    if _isinstance(kind, tuple):
        return tuple(map(_without_fake, kind))
    return () if kind is FakeTensor else kind


def _symbolic(original: Any, fold: Any) -> Any:
    def extreme(*args: Any, **kwargs: Any) -> Any:
        items = list(args[0]) if len(args) == 1 and _type(args[0]) in (tuple, list) else args
        if not kwargs and len(items) > 1 and any(_type(x) is torch.SymInt for x in items):
            plain = all(_type(x) in (int, torch.SymInt) for x in items)
            if plain and _asked_by_user(sys._getframe(1)):
                return reduce(fold, items)
        return original(*args, **kwargs)

    return extreme


# -- types ---------------------------------------------------------------------------------------
class _Kind(type):
    """The type of `type` in the user's modules: type(M) is int."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1 or kwargs:
            return _type(*args, **kwargs)
        kind = _type(args[0])
        return _Type if kind is _type else _SEEN_AS.get(kind, kind)

    def __instancecheck__(cls, x: Any) -> bool:
        return _isinstance(x, _type)

    def __subclasscheck__(cls, x: Any) -> bool:
        return issubclass(x, _type)


class _Type(type, metaclass=_Kind):
    """Python's `type`, in the user's modules."""


_Type.__name__ = _Type.__qualname__ = "type"


_listed: tuple[tuple[int, ...], list[Any]] = ((), [])


def _list_modules() -> list[Any]:
    """List the modules that may hold a wrapper: the user's, and packages' that use torch."""
    global _listed
    loaded = {id(x): x for x in list(sys.modules.values())}
    if tuple(loaded) != _listed[0]:
        _listed = tuple(loaded), [x for x in loaded.values() if _may_be_wrappers(x)]
    return _listed[1]


def _may_be_wrappers(module: Any) -> bool:
    file, known = getattr(module, "__file__", None), getattr(module, "__dict__", None)
    if not isinstance(file, str) or not isinstance(known, dict) or "type" in known:
        return False
    whose = owner(file)
    return whose == "user" or (whose == "installed" and ("torch" in known or "triton" in known))


# -- text ----------------------------------------------------------------------------------------
# names of functions whose text nobody reads but people
_SHOWN = {
    "print", "warn", "warn_once", "warning", "warning_once", "debug", "info", "info_once", "error",
    "exception", "critical", "log", "record_function", "range_push", "range_start", "range",
    "annotate", "mark", "_check", "_check_value", "_check_type", "_check_index", "_assert",
}  # fmt: skip
_REFUSING = {"index", "remove"}  # the text is that of the error that a list raises
_Shows = Callable[[ast.Call], bool]
_SHOWING = ("logging", "warnings", "traceback")  # modules of Python that format messages
_MOST_FRAMES = 8  # between a text and the statement that shows it


def _find_asker(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the user that an operation is for, or None if torch does it for itself.

    Python's own modules act for their callers, those that show messages excepted.
    """
    while frame is not None:
        name = frame.f_code.co_filename
        if owner(name) != "library":
            return frame
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root in ("torch", "triton", "numpy", "gemmproof", "sympy", *_SHOWING):
            return None
        frame = frame.f_back
    return None


def is_users(frame: FrameType | None) -> bool:
    """Return whether the innermost frame that is not gemmproof's is the user's."""
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return _find_asker(frame) is not None


@lru_cache(maxsize=64)
def _parse(text: str) -> dict[ast.AST, ast.AST] | None:
    """Return the parent of each node of a source text, or None if it is unknown."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return parents or None


def _find_node(frame: FrameType, parents: Mapping[ast.AST, ast.AST]) -> ast.AST | None:
    """Return the expression that a frame is evaluating."""
    places = list(frame.f_code.co_positions())
    line, end, first, last = places[frame.f_lasti // 2]
    if line is None or end is None or first is None or last is None:
        return None
    inside = [
        node
        for node in parents
        if isinstance(node, ast.expr)
        and (node.lineno, node.col_offset) <= (line, first)
        and (end, last) <= (node.end_lineno or 0, node.end_col_offset or 0)
    ]
    return max(inside, key=lambda x: (x.lineno, x.col_offset, -_end(x)), default=None)


def _end(node: ast.expr) -> int:
    return (node.end_lineno or 0) * 10**4 + (node.end_col_offset or 0)


def is_shown(frame: FrameType | None, shown: Set[str] | None = None) -> bool:
    """Return whether the value that a user's frame is computing ends in a message, and only there.

    That is: in a raise or an assert statement, in a call of a function whose name is `shown`, or in
    a variable that is used in such places alone. Without `shown` the value is a number, which only
    formatting by "%" makes part of a message of other functions.
    """
    for _ in range(_MOST_FRAMES):
        if frame is None or owner(frame.f_code.co_filename) == "library":
            return False
        parents = _parse("".join(linecache.getlines(frame.f_code.co_filename)))
        node = None if parents is None else _find_node(frame, parents)
        if parents is None or node is None or isinstance(node, ast.Subscript):
            return False  # an index may be out of range
        if shown is None:
            left = node.left if isinstance(node, ast.BinOp) else None
            is_text = isinstance(left, ast.Constant) and isinstance(left.value, str)
            shown = _SHOWN if is_text else set()
        shows = partial(_shows_people, frame, parents, shown)
        if isinstance(node, ast.Call) and shows(node):
            return True
        end = _follow(node, parents, shows, set())
        if not isinstance(end, ast.Return):
            return end is True
        frame = frame.f_back  # the caller shows it, or not
    return False


def _shows_people(
    frame: FrameType, parents: Mapping[ast.AST, ast.AST], shown: Set[str], call: ast.Call
) -> bool:
    """Return whether a call only shows its arguments: the user's own functions may look them up."""
    name = _name(call.func)
    if name not in shown or name in _REFUSING:
        return name in shown
    is_alone = isinstance(parents.get(call), ast.Expr | ast.withitem)
    function = _find_value(frame, call.func)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    file = getattr(sys.modules.get(_type(function).__module__), "__file__", None)
    files = [x for x in (getattr(code, "co_filename", None), file) if isinstance(x, str)]
    owners = set(map(owner, files))
    return function is not None and "user" not in owners and (is_alone or "installed" not in owners)


def _find_value(frame: FrameType, name: ast.expr) -> Any:
    """Return the value of a name or of an attribute of one, None if it is not known."""
    if isinstance(name, ast.Name):
        scopes = (frame.f_locals, frame.f_globals, vars(builtins))
        return next((scope[name.id] for scope in scopes if name.id in scope), None)
    if isinstance(name, ast.Attribute):
        whole = _find_value(frame, name.value)
        return None if whole is None else inspect.getattr_static(whole, name.attr, None)
    return None


def _follow(
    node: ast.AST, parents: Mapping[ast.AST, ast.AST], shows: _Shows, names: set[str]
) -> Any:
    """Return True if a value is only shown, a Return statement if it is returned, else False."""
    line = list(_climb(node, parents))
    if any(_is_message(parent, child, shows) for child, parent in line):
        return True
    for child, parent in line:
        match parent:
            case ast.Return():
                return parent
            case ast.Call(func=func) if func is not child:
                if _name(func) not in ("str", "repr", "format", "join", "tuple", "list"):
                    return False
            case ast.Assign(targets=[ast.Name(id=name)]):
                if name in names:
                    return False
                return _follow_variable(name, parent, parents, shows, names | {name})
            case ast.stmt() | ast.Compare() | ast.Subscript() | ast.Dict() | ast.Set():
                return False
            case ast.BoolOp() | ast.NamedExpr() | ast.Await() | ast.Yield() | ast.YieldFrom():
                return False
            case ast.IfExp(test=test) if test is child:
                return False
    return False


def _climb(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield each node and its parent, up to the statement."""
    while not isinstance(node, ast.stmt) and node in parents:
        yield node, parents[node]
        node = parents[node]


def _is_message(parent: ast.AST, child: ast.AST, shows: _Shows) -> bool:
    match parent:
        case ast.Raise():
            return True
        case ast.Assert(msg=message):
            return message is child
        case ast.Call(func=func):
            return func is not child and shows(parent)
    return False


def _name(func: ast.expr) -> str:
    """Return the last part of a function's name."""
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _follow_variable(
    name: str, node: ast.AST, parents: Mapping[ast.AST, ast.AST], shows: _Shows, names: set[str]
) -> Any:
    """Return whether all uses of a variable are shown; a Return statement if some return it."""
    function: ast.AST | None = node
    while not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        function = parents.get(function) if function is not None else None
        if function is None:
            return False
    used = [x for x in ast.walk(function) if isinstance(x, ast.Name) and x.id == name]
    outer = (x for x in ast.walk(function) if isinstance(x, ast.Global | ast.Nonlocal))
    if any(name in x.names for x in outer):
        return False
    ends = [_follow(x, parents, shows, names) for x in used if isinstance(x.ctx, ast.Load)]
    returned = [end for end in ends if isinstance(end, ast.Return)]
    # an unused value may be computed for the error that its computation raises
    is_shown = bool(ends) and all(end is True or isinstance(end, ast.Return) for end in ends)
    return returned[0] if is_shown and returned else is_shown


def _is_caught(frame: FrameType | None) -> bool:
    """Return whether a handler in the wrapper may look the text of an exception up."""
    while frame is not None and not is_ours(frame.f_code.co_filename):
        if owner(frame.f_code.co_filename) != "library":
            parents = _parse("".join(linecache.getlines(frame.f_code.co_filename)))
            node = None if parents is None else _find_node(frame, parents)
            if parents is not None and node is not None and _is_looked_up(frame, node, parents):
                return True
        frame = frame.f_back
    return False


def _is_looked_up(frame: FrameType, node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    shows = partial(_shows_people, frame, parents, _SHOWN)
    while (outer := parents.get(node)) is not None:
        if isinstance(outer, ast.Try | ast.TryStar) and node in outer.body:
            for handler in outer.handlers:
                uses = (x for part in handler.body for x in ast.walk(part))
                named = (x for x in uses if isinstance(x, ast.Name) and x.id == handler.name)
                if not all(_follow(x, parents, shows, set()) is True for x in named):
                    return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return False
        node = outer
    return False


# torch's own functions between a conversion and the question that it becomes
_CONVERTING = ("torch/__init__.py", "sym_node.py", "symbolic_shapes.py", "recording.py")


def converts_to_show() -> bool:
    """Return whether the size that torch asks for is converted for a message, as by "%d"."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_CONVERTING):
        frame = frame.f_back
    if frame is None:
        return False
    root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return root in _SHOWING or is_shown(frame)


def _show(x: Any) -> str:
    """Return a size's text for a message."""
    running = Decisions.running
    if running is None or _type(x) is not torch.SymInt:
        return "a number"
    before = running.failure
    try:
        return str(running.term(x))
    except NotKnown:  # what it is of does not matter
        running.failure = before
        return "a size"


def _make_text(original: Callable[..., str], what: str) -> Callable[..., str]:
    def text(self: Any, *spec: str) -> str:
        asker = _find_asker(sys._getframe(1))
        if asker is None:
            return original(self, *("" for _ in spec))
        running = Decisions.running
        if running is None:
            return original(self, *("" for _ in spec))
        if _type(self) is torch.SymInt and (value := _value(running, self)) is not None:
            return format(value, *spec) if spec else str(value)
        if is_shown(asker, _SHOWN | _REFUSING) and not _is_caught(asker):
            return _show(self)
        raise running.fail(what.format(_show(self)))

    return text


def _value(running: Decisions, x: Any) -> int | None:
    """Return the only value that a size can have on the path, or None."""
    before = running.failure
    try:
        return running.number(running.term(x))
    except NotKnown:
        running.failure = before
        return None


# -- operations ----------------------------------------------------------------------------------
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def _check_divisor(original: Any, is_reversed: bool) -> Any:
    """Return a division that decides first whether the divisor is 0: torch raises by its hint."""

    def divide(x: Any, y: Any) -> Any:
        divisor: Any = x if is_reversed else y
        running: Any = Decisions.running
        is_size = running is not None and _type(divisor) is torch.SymInt
        if is_size and running.decide(eq(running.term(divisor), 0)):
            raise ZeroDivisionError("division by zero")
        return original(x, y)

    return divide


def _shift(original: Any, operate: Any, is_reversed: bool) -> Any:
    """Return a shift, by a size only if that has one value: some versions of torch raise there."""

    def shift(x: Any, y: Any) -> Any:
        (shifted, amount), running = ((y, x) if is_reversed else (x, y)), Decisions.running
        if running is None or _type(amount) is not torch.SymInt:
            return original(x, y)
        value = _value(running, amount)
        if value is None:
            raise running.fail(f"{_show(amount)} is a size, and bits are shifted by it here")
        return operate(shifted, value)

    return shift


def _divide(x: Any, y: Any) -> Any:
    return (x // y, x % y) if isinstance(y, _NUMBERS) else NotImplemented


def _divide_reversed(x: Any, y: Any) -> Any:
    return (y // x, y % x) if isinstance(y, _NUMBERS) else NotImplemented


def _power(original: Any) -> Any:
    def power(x: Any, y: Any, modulus: Any = None) -> Any:
        raised = original(x, y)
        return raised if modulus is None or raised is NotImplemented else raised % modulus

    return power


def _round(original: Any) -> Any:
    def rounded(x: Any, digits: Any = None) -> Any:
        if digits is None or _type(x) is torch.SymFloat:
            return original(x, digits)
        if digits < 0:
            raise _fail(f"{_show(x)} is a size, rounded to tens here")
        return original(x)

    return rounded


def _fail(message: str) -> Exception:
    running = Decisions.running
    return RuntimeError(message) if running is None else running.fail(message)


def _compare(original: Any) -> Any:
    """Return a comparison whose result is a bool where the user's code may ask if it `is True`."""

    def compare(x: Any, y: Any) -> Any:
        answer = original(x, y)
        if answer is NotImplemented and _type(y) not in _NUMBERS and hasattr(y, "__index__"):
            answer = original(x, operator.index(y))  # torch knows no IntEnum
        is_open = _type(answer) is torch.SymBool and Decisions.running is not None
        return bool(answer) if is_open and _compares_identity(sys._getframe(1)) else answer

    return compare


def _compares_identity(frame: FrameType) -> bool:
    """Return whether the file of a user's frame compares anything with True or False by `is`.

    Elsewhere a comparison stays a symbol: of several that are joined one decision is enough.
    """
    file = frame.f_code.co_filename
    return owner(file) != "library" and _has_identity("".join(linecache.getlines(file)))


@lru_cache(maxsize=64)
def _has_identity(text: str) -> bool:
    for node in _parse(text) or ():
        if isinstance(node, ast.Compare) and any(
            isinstance(x, ast.Is | ast.IsNot) for x in node.ops
        ):
            sides = (node.left, *node.comparators)
            if any(isinstance(x, ast.Constant) and _type(x.value) is bool for x in sides):
                return True
    return False


def _hash(original: Any) -> Any:
    def hashed(self: Any) -> int:
        running = Decisions.running
        if running is None or _find_asker(sys._getframe(1)) is None:
            return int(original(self))
        if _type(self) is torch.SymBool:
            return hash(bool(self))
        if _type(self) is torch.SymInt and (value := _value(running, self)) is not None:
            return hash(value)
        raise running.fail(_TABLE_KEY)

    return hashed


def _as_user_only(original: Any, what: str, kinds: Any) -> Any:
    """Return a function that refuses symbols for the user's code."""

    def function(self: Any, *args: Any) -> Any:
        x = args[0] if args and what == "JSON" else self
        if _type(x) in kinds and _find_asker(sys._getframe(1)) is not None:
            raise _fail(f"{_show(x)} is a size, made {what} here")
        return original(self, *args)

    return function


def _refuse_address(self: Any) -> Any:
    """Replace UntypedStorage.data_ptr: the address of a whole allocation is no symbol."""
    asker = _find_asker(sys._getframe(1))
    if asker is not None and real_device(self).type == "meta":
        raise _fail("the address of an allocation is read here")
    return _storage_address(self)


_storage_address = torch.UntypedStorage.data_ptr


def _lacking(name: str) -> Any:
    def lack(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _fail(f"{_show(self)} is a size, and {name} of it is used here")

    return lack


def _by_value(name: str) -> Any:
    """Return an operation of bool, which decides what the symbol is."""

    def operate(self: Any, *args: Any) -> Any:
        return getattr(bool(self), name)(*args)

    return operate


def _list_operations() -> Iterator[Change]:
    texts = ("__str__", "__repr__", "__format__")
    for kind, what in (
        (torch.SymInt, "{} is a size, made text here"),
        (torch.SymFloat, "{} that depends on sizes is made text here"),
        (FakeTensor, "elements of a tensor are read on the host"),
    ):
        for name in texts:
            yield kind, name, _make_text(getattr(kind, name), what)
    for name in texts:
        actual = getattr(torch.SymBool, name)
        yield torch.SymBool, name, _text_of_bool(actual, name)
    for number in (torch.SymInt, torch.SymFloat):
        yield number, "__divmod__", _divide
        yield number, "__rdivmod__", _divide_reversed
        yield number, "__round__", _round(vars(number)["__round__"])
        for word in ("lt", "le", "gt", "ge", "eq", "ne"):
            yield number, f"__{word}__", _compare(getattr(number, f"__{word}__"))
    for name in ("floordiv", "mod", "truediv"):
        for is_reversed in (False, True):
            word = f"__{'r' * is_reversed}{name}__"
            yield torch.SymInt, word, _check_divisor(getattr(torch.SymInt, word), is_reversed)
    for operate in (operator.lshift, operator.rshift):
        for is_reversed in (False, True):
            word = f"__{'r' * is_reversed}{operate.__name__}__"
            yield torch.SymInt, word, _shift(getattr(torch.SymInt, word), operate, is_reversed)
    yield torch.SymInt, "__invert__", lambda x: -x - 1
    yield torch.SymInt, "__pow__", _power(torch.SymInt.__pow__)
    for symbol, plain in _PLAIN.items():
        yield symbol, "__hash__", _hash(vars(symbol)["__hash__"])
        yield symbol, "__reduce_ex__", _as_user_only(symbol.__reduce_ex__, "bytes", _PLAIN)
        yield symbol, "__copy__", lambda x: x
        yield symbol, "__deepcopy__", lambda x, memo: x
        for name in dir(_type(plain)):
            if name in vars(symbol) or name.startswith("_"):
                continue
            if name in ("real", "numerator", "imag", "denominator"):
                own = name in ("real", "numerator")
                yield symbol, name, property(_itself if own else _constant(getattr(plain, name)))
            else:
                yield symbol, name, _lacking(name)
    kept = {"__new__", "__init_subclass__", "__subclasshook__", "__setattr__", "__delattr__"}
    kept |= {"__getattribute__", "__dir__", "__sizeof__", "__class__", "__doc__", "__reduce__"}
    kept |= {"__reduce_ex__", "__getstate__", "__getnewargs__", "__init__", *texts, "__hash__"}
    for name in {*dir(bool)} - kept - {*vars(torch.SymBool)}:
        if name.startswith("__"):
            yield torch.SymBool, name, _by_value(name)


def _text_of_bool(original: Any, name: str) -> Any:
    def text(self: Any, *spec: str) -> str:
        if Decisions.running is None or _find_asker(sys._getframe(1)) is None:
            return str(original(self, *spec))
        return str(getattr(bool(self), name)(*spec))

    return text


def _itself(x: Any) -> Any:
    return +x if _type(x) is torch.SymInt else x


def _constant(value: Any) -> Any:
    return lambda x: value


_INTEGERS = tuple(_list_operations())

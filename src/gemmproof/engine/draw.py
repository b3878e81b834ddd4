"""Drawn cases, and the constants of a wrapper that they aim at."""

from __future__ import annotations

import ast
import functools
import random
import re
import types
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, islice, product
from pathlib import Path
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.engine.proofs import ProofAttempt
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import corners, exercises, layouts, list_row_cases
from gemmproof.properties.cases.generate import (
    MAX_VOLUME,
    MOST_TILES,
    WHOLE,
    Survey,
    draw_case,
    fits_budget,
    measure_volume,
    probe,
    smallest,
    widest_tile,
)
from gemmproof.properties.contract import MAX_SIDE
from gemmproof.properties.kernel import READ, KernelUnderTest, Operand, require_kernel, short
from gemmproof.reference.provenance import owner
from gemmproof.reference.triton_hooks import count_combinations

# -- constants -----------------------------------------------------------------------------------
MOST_FUNCTIONS = 200  # of a package, the nearest to the wrapper
MOST_VALUES = 16  # of one expression: configurations multiply
MOST_KEYS = 64  # of one table
_NUMBER = re.compile(r"\d+")
MOST_COMBINED = 16  # configurations of several tuners that a survey runs
LEAST, LARGEST = 5, 2**26  # smaller values are drawn anyway; no case has more elements

Names = Mapping[str, frozenset[int]]

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: x // y if y else 0,
    ast.LShift: lambda x, y: x << y if 0 <= y < 64 else 0,
    ast.Pow: lambda x, y: x**y if 0 <= y < 64 and abs(x) <= LARGEST else 0,
}
# functions whose arguments are compared, divide, or are the side of a tile
_COMPARING = ("min", "max", "minimum", "maximum", "clamp", "cdiv", "range", "arange")


def find_constants(wrapper: object, constexprs: Iterable[tuple[str, Any]] = ()) -> tuple[int, ...]:
    """Return the constants, nearest to the wrapper first; `constexprs` are of its launches."""
    keywords: list[tuple[str, Any]] = list(constexprs)
    functions = list(_walk(wrapper, keywords))
    constants: dict[int, None] = {}
    for function in functions:
        for node in _definitions(function.__code__.co_filename).get(_first_line(function), ()):
            constants |= dict.fromkeys(_compared(node, _names(function, node, keywords)))
    return tuple(n for n in constants if LEAST <= n <= LARGEST)


def find_shapes(wrapper: object) -> tuple[tuple[int, ...], ...]:
    """Return the two or three sizes of each key of a table that a wrapper reaches by name.

    A key is a tuple of integers, or text with as many of them.
    """
    shapes: dict[tuple[int, ...], None] = {}
    for function in _walk(wrapper, []):
        names = {name for code in _list_codes(function) for name in code.co_names}
        values = [function.__globals__.get(name) for name in sorted(names)]
        tables = [list(x) for x in (*values, *_cells(function).values()) if isinstance(x, dict)]
        for node in _definitions(function.__code__.co_filename).get(_first_line(function), ()):
            literals = (inner for inner in ast.walk(node) if isinstance(inner, ast.Dict))
            tables += [[_read_key(key) for key in table.keys] for table in literals]
        for key in (key for table in tables for key in table[:MOST_KEYS]):
            sizes = tuple(map(int, _NUMBER.findall(key))) if isinstance(key, str) else key
            is_shape = isinstance(sizes, tuple) and len(sizes) in (2, 3)
            if is_shape and all(type(n) is int and 0 < n <= LARGEST for n in sizes):
                shapes[sizes] = None
    return tuple(shapes)


def _read_key(key: ast.expr | None) -> Any:
    try:
        return None if key is None else ast.literal_eval(key)
    except ValueError:
        return None


def _walk(wrapper: object, keywords: list[tuple[str, Any]]) -> Iterator[types.FunctionType]:
    """Yield the functions a wrapper reaches by name, breadth first; collect partials' keywords."""
    waiting, seen, count = [wrapper], set(), 0
    while waiting and count < MOST_FUNCTIONS:
        value: Any = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
            keywords += value.keywords.items()
        elif isinstance(value, types.MethodType):
            waiting += [value.__func__, type(value.__self__)]
        elif isinstance(value, types.FunctionType):
            if owner(value.__code__.co_filename) != "library":
                count += 1
                yield value
                waiting += _named(value)
            else:  # a library's decorator
                waiting += [getattr(value, "__wrapped__", None)]
        elif isinstance(value, staticmethod | classmethod):
            waiting += [value.__func__]
        elif isinstance(value, type):
            waiting += [part for part in vars(value).values() if _is_code(part)]
        elif not isinstance(value, types.ModuleType):
            # an object, or the wrapper that triton.jit, autotune or functools.cache returns
            parts = vars(value) if hasattr(value, "__dict__") else {}
            waiting += [*(parts.get(name) for name in ("fn", "__wrapped__")), type(value)]


def _is_code(part: object) -> bool:
    return isinstance(part, types.FunctionType | staticmethod | classmethod)


def _named(function: types.FunctionType) -> list[Any]:
    """Return the values a function's code names: globals, members of modules, closure variables."""
    names = [name for code in _list_codes(function) for name in code.co_names]
    values = [function.__globals__[n] for n in dict.fromkeys(names) if n in function.__globals__]
    modules = [vars(value) for value in values if isinstance(value, types.ModuleType)]
    values += [module[n] for module in modules for n in dict.fromkeys(names) if n in module]
    candidates = (*values, *_cells(function).values())
    return [x for x in candidates if callable(x) or hasattr(x, "fn")]  # a tuner cannot be called


def _list_codes(function: types.FunctionType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of those that it defines."""
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        yield code
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]


def _cells(function: types.FunctionType) -> dict[str, Any]:
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return cells


def _first_line(function: types.FunctionType) -> int:
    return function.__code__.co_firstlineno


@functools.lru_cache(maxsize=64)
def _definitions(filename: str) -> Mapping[int, list[ast.AST]]:
    """Return the functions of a file by their first line, that of a decorator included."""
    definitions: dict[int, list[ast.AST]] = defaultdict(list)
    try:
        tree = ast.parse(Path(filename).read_bytes())
    except (OSError, SyntaxError, ValueError):  # code that was generated without a file
        return definitions
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            definitions[first].append(node)
        elif isinstance(node, ast.Lambda):
            definitions[node.lineno].append(node)
    return definitions


def _names(
    function: types.FunctionType, node: ast.AST, keywords: Iterable[tuple[str, Any]]
) -> Names:
    """Return the integers that names stand for in a function: globals, defaults, locals."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    values = [
        *((n, x) for n, x in function.__globals__.items()),
        *_cells(function).items(),
        *zip(positional[len(positional) - len(defaults) :], defaults, strict=True),
        *(function.__kwdefaults__ or {}).items(),
        *keywords,
    ]
    names: dict[str, frozenset[int]] = defaultdict(frozenset)
    for name, value in values:
        number = getattr(value, "value", value)  # a tl.constexpr holds one
        if type(number) is int:
            names[name] |= {number}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
            names[inner.targets[0].id] |= _evaluate(inner.value, names)
    return names


def _evaluate(node: ast.AST, names: Names) -> frozenset[int]:
    """Return the integers that an expression of constants may be; none for anything else."""
    if isinstance(node, ast.Constant):
        return frozenset({node.value}) if type(node.value) is int else frozenset()
    if isinstance(node, ast.Name):
        return names.get(node.id, frozenset())
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return names.get(str(node.slice.value), frozenset())  # meta["BLOCK_M"]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return frozenset().union(*(_evaluate(item, names) for item in node.elts))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        apply = _OPERATORS[type(node.op)]
        pairs = product(_evaluate(node.left, names), _evaluate(node.right, names))
        return frozenset(sorted({apply(x, y) for x, y in pairs})[:MOST_VALUES])
    return frozenset()


def _compared(node: ast.AST, names: Names) -> Iterator[int]:
    """Yield the values that a function's source compares with or divides by."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Compare):
            for side in (inner.left, *inner.comparators):
                yield from sorted(_evaluate(side, names))
        elif isinstance(inner, ast.BinOp):
            divisors = sorted(_evaluate(inner.right, names))
            if isinstance(inner.op, ast.FloorDiv | ast.Mod | ast.Div):
                yield from divisors
            elif isinstance(inner.op, ast.BitAnd):  # x & 15 is x % 16
                yield from (n + 1 for n in divisors if n & (n + 1) == 0)
            elif isinstance(inner.op, ast.RShift):
                yield from (1 << n for n in divisors if 0 <= n < 64)
        elif isinstance(inner, ast.Call):
            called = getattr(inner.func, "attr", getattr(inner.func, "id", ""))
            for argument in inner.args if called in _COMPARING else ():
                yield from sorted(_evaluate(argument, names))


# -- draw ----------------------------------------------------------------------------------------
LARGE = 2**29  # multiply-adds of all tiles of a case that only a path needs
MOST_LARGE = 4  # such cases of one format


def list_cases(
    kernel: KernelUnderTest,
    judged: Mapping[Case, CaseResult],
    attempt: ProofAttempt,
    dtype: str,
    rng: random.Random,
    max_examples: int,
) -> Iterator[Case]:
    """Yield cases of one format, without end; each is judged before the next one is drawn.

    Of the first ones two in three exercise the properties, and one in four has data that rounds.
    At most half of `max_examples` are cases that a proof asks for, not counting refutations.
    """
    contract = kernel.contract
    yield smallest(contract, dtype)
    yield from attempt.list_refuting(kernel, dtype)
    survey = yield from _list_survey(kernel, judged, dtype)
    asked = (c for c in attempt.cases if c.dtype == dtype and fits_budget(c, contract, survey))
    of_paths = islice(asked, max_examples // 2)
    paths = (case for _, case in attempt.paths if case.dtype == dtype)
    rows = list_row_cases(contract, survey, dtype, paths)
    yield from _list_large(judged, attempt, dtype, survey)
    yield from _list_counted(kernel, dtype, survey)
    kinds = (maker(contract, survey, dtype) for maker in (corners, layouts))
    turns = (of_paths, of_paths, *kinds, rows)
    first = _interleave(turns, exercises(contract, survey, dtype))
    drawn = (draw_case(rng.choice, contract, survey, dtype) for _ in count())
    kept = frozenset(attempt.cases)
    yield from _round_ways(_round_some(chain(first, drawn), judged, dtype, kept), judged, dtype)


EXERCISING = 2  # cases that exercise properties for each other one


def _interleave(turns: Iterable[Iterator[Case]], between: Iterator[Case]) -> Iterator[Case]:
    """Yield a new case of each iterator in turn until all end, each followed by some between."""
    seen: set[Case] = set()

    def draw(cases: Iterator[Case], most: int) -> Iterator[Case]:
        for case in islice((case for case in cases if case not in seen), most):
            seen.add(case)
            yield case

    waiting = list(turns)
    while waiting:
        for cases in tuple(waiting):
            drawn = tuple(draw(cases, 1))
            if not drawn:
                waiting.remove(cases)
            else:
                yield from (*drawn, *draw(between, EXERCISING))
    yield from between


ROUNDING = 4  # one case in this many has data that rounds
# data of which results and sums need rounding
ROUNDED_FILLS = ("normal", "positive", "cancelling", "wide", "subnormal")


def _round_some(
    cases: Iterable[Case], judged: Mapping[Case, CaseResult], dtype: str, kept: Collection[Case]
) -> Iterator[Case]:
    """Yield cases of one format, of new ones every fourth or so with data that rounds.

    One of those to be `kept`, one that is compared with another call, and one without a product
    keep their data, and the next one rounds.
    """
    seen, exact = set(judged), 0  # `exact` counts the cases since the last one that rounds
    for case in judged:
        exact = 0 if case.fill in ROUNDED_FILLS or case.dtype != dtype else exact + 1
    for case in cases:
        if case not in seen and case not in kept and exact >= ROUNDING - 1:
            case = _round(case)
        if case not in seen:
            seen.add(case)
            exact = 0 if case.fill in ROUNDED_FILLS else exact + 1
        yield case


MOST_WAYS = 8  # ways of a kernel that get cases of their own, of one format


def _round_ways(
    cases: Iterable[Case], judged: Mapping[Case, CaseResult], dtype: str
) -> Iterator[Case]:
    """Yield cases of one format, and more with data that rounds for each way of launching kernels.

    A way is the kernels that a call launches with their constants. One that sums in a narrow
    format, for a long K say, shows it in sums that need rounding, of one sign and of both.
    """
    ways, seen, count = set[Any](), set(judged), 0
    for case, result in judged.items():
        if case.dtype == dtype and case.fill in ROUNDED_FILLS:
            ways.add(_find_way(result))
    for case in cases:
        yield case
        is_new, way = case not in seen, _find_way(judged[case])
        seen.add(case)
        if case.fill in ROUNDED_FILLS:
            ways.add(way)
        rounding = _round(case)
        if is_new and way not in ways and rounding != case and count < MOST_WAYS:
            ways.add(way)
            count += 1
            yield rounding
            yield replace(rounding, fill="positive")


def _find_way(result: CaseResult) -> Any:
    return frozenset((x.kernel, x.choice) for x in result.launches), frozenset(result.constants)


def _round_in_turn(case: Case, position: int) -> Case:
    return _round(case) if position % ROUNDING == ROUNDING - 1 else case


def _round(case: Case) -> Case:
    """Return the case with data of which its results need rounding, if that leaves its purpose."""
    has_product = min(case.M, case.N, case.K) > 0 and not case.is_sampled
    is_plain = case.fill == "index" and case.compare is None and has_product
    return replace(case, fill="normal") if is_plain else case


def _list_large(
    judged: Mapping[Case, CaseResult], attempt: ProofAttempt, dtype: str, survey: Survey
) -> Iterator[Case]:
    """Yield the case of least work for each path that no case took, because each takes much work.

    Another format may have tried the path before.
    """
    paths: dict[str, list[Case]] = defaultdict(list)
    for label, case in attempt.paths:
        paths[label].append(case)
    count = 0
    for cases in paths.values():
        own = [case for case in cases if case.dtype == dtype and case.config < survey.configs]
        volumes = {case: _measure(case, survey) for case in own if not case.is_sampled}
        least = min(volumes, key=volumes.__getitem__, default=None)
        is_tried = any(x in judged for x in cases)
        if least is None or is_tried or not MAX_VOLUME < volumes[least] <= LARGE:
            continue
        yield least
        count += 1
        if count == MOST_LARGE:
            return


MOST_INDICES = 8  # different ones that are assumed of an operand whose values a function gives


def _list_counted(kernel: KernelUnderTest, dtype: str, survey: Survey) -> Iterator[Case]:
    """Yield cases of more rows than 8 and 16 bits count, for a kernel that is given row indices.

    A wrapper that sorts tokens by their expert counts those of each expert.
    """
    given = [x for x in kernel.tensors.values() if _is_index_of_rows(x)]
    values = max((_count_values(x) for x in given), default=0)
    for bits in (8, 16) if given else ():
        case = smallest(kernel.contract, dtype)
        rows = min((values << (bits - 1)) + 1, MAX_SIDE)
        fitted = kernel.contract.fit(case.sides | {"M": rows, "N": 1, "K": 1})
        if fitted and _measure(case.with_sides(fitted), survey) <= LARGE:
            yield case.with_sides(fitted)


def _is_index_of_rows(x: Operand) -> bool:
    is_index = x.use == READ and x.format in ("int32", "int64") and x.values is not None
    return is_index and "M" in map(str, x.axes)


def _count_values(x: Operand) -> int:
    if x.values is None or callable(x.values):
        return MOST_INDICES
    low, high = x.values
    return high - low + 1


def _measure(case: Case, survey: Survey) -> int:
    tile = widest_tile(survey, case.config)
    return measure_volume((case.M, case.N, case.K), tile) * max(1, case.batch or 1)


def survey_kernel(
    kernel: KernelUnderTest, dtype: str, judge: Callable[[Case], CaseResult]
) -> Survey:
    """Return the survey of a kernel in one format, from a few cases that `judge` judges."""
    first = smallest(kernel.contract, dtype)
    judged = {first: judge(first)}
    listed = _list_survey(kernel, judged, dtype)
    while True:
        try:
            case = next(listed)
        except StopIteration as end:
            survey: Survey = end.value
            return survey
        if case not in judged:
            judged[case] = judge(case)


def _list_survey(
    kernel: KernelUnderTest, judged: Mapping[Case, CaseResult], dtype: str
) -> Generator[Case, None, Survey]:
    """Yield the cases that show tiles and constants; the simplest one is judged before."""
    contract = kernel.contract
    first = smallest(contract, dtype)
    seen = judged[first]
    usual = Survey().tiles[0]
    tiles = [seen.tiles or usual]
    counts = {launch.choice: launch.configs for launch in seen.launches if launch.configs > 1}
    in_step = max(counts.values(), default=1)
    # of tuners that choose independently not every combination
    for config in range(1, min(count_combinations(counts), max(in_step, MOST_COMBINED))):
        case = _round_in_turn(replace(first, config=config), config)
        yield case
        tiles.append(judged[case].tiles or usual)
    # a wrapper may choose its tiles by the sizes, and its kernel by the alignment
    whole = probe(contract, dtype, WHOLE)
    probes = [probe(contract, dtype), whole]
    for position, plain in enumerate(probes, start=len(tiles)):
        case = _round_in_turn(plain, position)
        yield case
        tiles[case.config] = tuple(dict.fromkeys((*tiles[case.config], *judged[case].tiles)))
        if plain is whole and _label_kernels(judged[case]) - _label_kernels(seen):
            probes += [replace(whole, config=config) for config in range(1, len(tiles))]
        if plain is whole and judged[case].asked_sms:
            probes.append(replace(whole, sms=1))
    constexprs = [pair for result in judged.values() for pair in result.constants]
    return Survey(
        tuple(tiles),
        _list_named("SPLIT", constexprs),
        any(result.asked_sms for result in judged.values()),
        find_constants(kernel.launch, dict.fromkeys(constexprs)),
        _list_named("GROUP", constexprs),
        tuple(kernel.list_options().items()),
        find_shapes(kernel.launch),
    )


def _label_kernels(judged: CaseResult) -> set[str]:
    return {launch.kernel for launch in judged.launches}


def _list_named(word: str, constexprs: Iterable[tuple[str, Any]]) -> tuple[int, ...]:
    """Return the values of constexprs whose name has a word, and that may count tiles."""
    values = {value for name, value in constexprs if word in name.upper() and type(value) is int}
    return tuple(sorted(value for value in values if 2 <= value <= MOST_TILES))


def require_arguments(
    kernel: KernelUnderTest, max_examples: int, seed: int, case: Case | None
) -> None:
    """Raise ValueError for arguments that are out of range, TypeError for no kernel or case."""
    require_kernel("check", kernel)
    if not isinstance(max_examples, int) or isinstance(max_examples, bool) or max_examples < 1:
        raise ValueError(f"check: got {max_examples=}, expected a positive integer")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"check: got {seed=}, expected an integer")
    if case is not None:
        if not isinstance(case, Case):
            raise TypeError(f"check: got {short(case)}, expected a Case")
        try:
            kernel.require_batch(case)
        except ValueError as error:
            raise ValueError(f"check {error}") from None
        kernel.require(case)

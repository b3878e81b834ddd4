"""Find a call that a wrapper takes, and read the formula of its result from it."""

from __future__ import annotations

import ast
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gemmproof.draft.formula import FormulaFunction, Reader, Sum, list_elements, list_products
from gemmproof.draft.polynomials import Unreadable
from gemmproof.draft.read_wrapper import Parameter, WrapperSource
from gemmproof.properties.contract import evaluate_relation
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.provenance import words_of
from gemmproof.reference.simulator.call import run
from gemmproof.reference.simulator.element_terms import ElementTerms

SECONDS = 30.0  # for a search
AXES = {1: ("M",), 2: ("M", "N"), 3: ("batch", "M", "N")}
MOST_ROWS, MOST_COLUMNS = 8, 144  # of a result that are read
ROOM = 288  # of a dimension of unknown size: more than any other dimension has
SIZES = (
    {"M": 6, "N": 20, "K": 36, "batch": 2},
    {"M": 16, "N": 48, "K": 64, "batch": 2},
    {"M": 16, "N": 144, "K": 256, "batch": 2},
    {"M": 128, "N": 256, "K": 256, "batch": 2},
)
EXPERTS = 4
SCALARS = (0.8125, 0.6875, 1.1875, 1.3125)  # of factors: none is a product of others
MOST_CHANGED = 12  # calls that differ in tensors besides the factors
_LETTERS = (
    ("M", r"m|rows?|num_tokens|n_tokens|tokens|t|seq\w*|s|bs|batch_size"),
    ("N", r"n|cols?|columns?|out_\w+|n_out|d_out|intermediate\w*"),
    ("K", r"k|in_\w+|n_in|d_in|hidden\w*|d_model|dim|d"),
    ("batch", r"b|batch|z|heads?|h"),
    ("experts", r"e|num_experts|n_experts|experts?|g|groups?|num_groups"),
)
_OUTPUT = re.compile(r"^(out|output|c|y|o|dst|result|ret|res)(_ptr|_buf)?$|^out_|_out$", re.I)
_BESIDES = re.compile(
    r"scale|bias|zero|zp|resid|ids|idx|index|indices|offs|ptrs?$|lens?$|sizes?$|topk|expert_|mask"
    r"|cu_|^azp|absmax|router", re.I,
)  # fmt: skip
_INTEGERS = re.compile(
    r"ids|idx|index|indices|offs|ptr$|lens?$|sizes?$|indptr|cu_|counts?|map$", re.I
)


@dataclass(frozen=True, slots=True)
class TensorDraft:
    """A tensor as it is passed: its format, and a letter or a size for each dimension."""

    format: str
    sides: tuple[str | int, ...]
    written: bool = False

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(x if isinstance(x, int) else evaluate_size(x, sizes) for x in self.sides)


@dataclass(slots=True)
class CandidateCall:
    """A call that was tried: its tensors and values by parameter, and the sizes of letters."""

    tensors: dict[str, TensorDraft]
    values: dict[str, Any]
    sizes: Mapping[str, int]
    factors: tuple[str, ...]


@dataclass(slots=True)
class DraftedCall:
    """A call that the wrapper took, its formula, and what it was read from."""

    call: CandidateCall
    formula: Sum
    axes: tuple[str, ...]
    reader: Reader
    shapes: dict[str, tuple[int, ...]]


@dataclass(slots=True)
class CallSearch:
    """The search for a call of one wrapper; `refused` are the reasons of those that failed."""

    source: WrapperSource
    seconds: float = SECONDS
    refused: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, int] = field(default_factory=dict)
    tried: int = 0

    def find(self) -> DraftedCall | None:
        """Return the first call whose result has a formula, None if none is found in time."""
        until = time.perf_counter() + self.seconds
        for first in self._list_calls():
            waiting, seen = [first], set[str]()
            while waiting and len(seen) < MOST_CHANGED:
                if time.perf_counter() > until:
                    return None
                call = waiting.pop(0)
                if repr(call.tensors) in seen:
                    continue
                seen.add(repr(call.tensors))
                self.tried += 1
                before = sum(self.refused.values())
                try:
                    drafted = self.try_call(call)
                except Unreadable as error:
                    self.unreadable[str(error)] = self.unreadable.get(str(error), 0) + 1
                    waiting = self._reshape(call, error.tensor) + waiting
                    continue
                if drafted is not None:
                    return self._enlarge(drafted)
                if sum(self.refused.values()) > before and len(seen) == 1:
                    waiting += self._reformat(call)
        return None

    def _enlarge(self, drafted: DraftedCall) -> DraftedCall:
        """Return the same at larger sizes if an index is constant that groups of K may change."""
        larger = SIZES[2] | {"experts": EXPERTS}
        if drafted.call.sizes["K"] >= larger["K"] or not _has_constant(drafted):
            return drafted
        with suppress(Unreadable):
            again = self.try_call(replace(drafted.call, sizes=larger))
            return again or drafted
        return drafted

    def _reshape(self, call: CandidateCall, tensor: str) -> list[CandidateCall]:
        """Return calls with other shapes of a tensor besides the factors: those of the others."""
        if tensor not in call.tensors or tensor in call.factors:
            return []
        sides = [call.tensors[n].sides for n in reversed(call.factors)] + [("M", "N")]
        own = call.tensors[tensor]
        return [
            replace(call, tensors={**call.tensors, tensor: replace(own, sides=x)})
            for x in dict.fromkeys(sides)
            if x != own.sides
        ]

    def _reformat(self, call: CandidateCall) -> list[CandidateCall]:
        """Return calls with another rank or format of one tensor besides the factors."""
        changed = []
        for n in call.tensors:
            if self.source.parameters[n].rank is None and not call.tensors[n].written:
                changed += self._reshape(call, n)
        for n, own in call.tensors.items():
            if n in call.factors or own.written:
                continue
            half = call.tensors[call.factors[0]].format if call.factors else "fp16"
            for other in ("fp32", half if half in ("fp16", "bf16") else "bf16", "int32", "uint8"):
                if other != own.format:
                    tensors = {**call.tensors, n: replace(own, format=other)}
                    changed.append(replace(call, tensors=tensors))
        return changed

    # -- candidates ------------------------------------------------------------------------------
    def _list_calls(self) -> Iterator[CandidateCall]:
        """Yield calls, the likeliest first."""
        factors, others = self._split()
        letters = [self._letters_of(p) for p in factors]
        formats = self._formats(factors)
        ways = itertools.product(range(len(SIZES)), (False, True), range(len(formats)))
        for size, turned, at in sorted(ways, key=lambda way: way[0] + 1.5 * way[1] + way[2]):
            sides = self._assign_sides(letters, turned)
            if sides is None:
                continue
            tensors = {
                p.name: TensorDraft(f, s)
                for p, f, s in zip(factors, formats[at], sides, strict=True)
            }
            for p in others:
                tensors[p.name] = self._beside(p, formats[at][0])
            names = tuple(p.name for p in factors)
            sizes = SIZES[size] | {"experts": EXPERTS}
            yield CandidateCall(tensors, self._values(formats[at][0]), sizes, names)

    def _split(self) -> tuple[list[Parameter], list[Parameter]]:
        """Return the factors, at most two, and the other required tensors."""
        required = [p for p in self.source.tensors if p.required]
        plain = [p for p in required if not _BESIDES.search(p.name) and not _OUTPUT.search(p.name)]
        plain = plain or required
        if len(plain) < 2:
            more = [p for p in required if p not in plain and not _OUTPUT.search(p.name)]
            more += [p for p in required if p not in plain and p not in more]
            plain = (plain + more)[:2]
        factors = sorted(plain[:2], key=required.index)
        return factors, [p for p in required if p not in factors]

    def _letters_of(self, parameter: Parameter) -> list[str | int | None]:
        """Return the sides of a tensor as far as the source names them."""
        rank = parameter.rank or 2
        named: list[str | int | None] = [None] * rank
        for (name, at), side in self.source.sides.items():
            if name == parameter.name and -rank <= at < rank:
                named[at] = self._side(side)
        return named

    def _assign_sides(
        self, letters: list[list[str | int | None]], turned: bool
    ) -> list[tuple[str | int, ...]] | None:
        """Return the sides of the factors: as named, and as a and b, or b turned, elsewhere."""
        usual: list[list[str]] = []
        for i, own in enumerate(letters):
            pair = ["M", "K"] if i == 0 else ["N", "K"] if turned else ["K", "N"]
            lead = ["experts" if i and len(letters[0]) == 2 else "batch"] * (len(own) - 2)
            usual.append([*lead, *pair][-len(own) :] if len(own) > 1 else ["K"])
        named = [
            [x or y for x, y in zip(*both, strict=True)]
            for both in zip(letters, usual, strict=True)
        ]
        for i, (own, each) in enumerate(zip(letters, named, strict=True)):
            if len(set(each)) < len(each):  # a name says one dimension only: the other is another
                free = [x for x in ("KNM" if i else "MKN") if x not in each]
                for at, known in enumerate(own):
                    if known is None and each.count(each[at]) > 1 and free:
                        each[at] = free.pop(0)
        if len(named) == 2 and turned and all(x is not None for x in letters[1]):
            return None  # nothing is left to turn
        return [tuple(each) for each in named]

    def _formats(self, factors: list[Parameter]) -> list[tuple[str, ...]]:
        """Return the formats of the factors, the likeliest first."""
        text = self._text().lower()
        named = {
            "fp16": ("float16", "half"), "bf16": ("bfloat16",), "fp32": ("float32",),
            "fp8e4m3": ("float8_e4m3", "fp8", "float8e4"), "int8": ("int8", "w8a8"),
        }  # fmt: skip
        order = {"fp16": 0.0, "bf16": 1.0, "fp32": 2.0, "fp8e4m3": 3.0, "int8": 4.0}
        own = self.source.text.lower()
        for name in ("fp8e4m3", "int8"):
            if any(word in own for word in named[name]):
                order[name] -= 3.5
        alike = sorted(order, key=lambda x: order[x])
        pairs = [tuple(f for _ in factors) for f in alike]
        if len(factors) < 2:
            return pairs
        packed = re.search(r">>|&\s*0xf|&\s*15\b", text) is not None
        mixed = [("fp16", f) for f in ("int32", "int8", "uint8")]
        weights = "int8" in text or packed
        if packed:
            return [*mixed, *(("bf16", f) for _, f in mixed), *pairs]
        return [*pairs[:2], *mixed[1:], *pairs[2:]] if weights else [*pairs, *mixed]

    def _text(self) -> str:
        """Return the text of the wrapper's file, or its own."""
        try:
            with open(self.source.function.__code__.co_filename, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            return self.source.text

    def _beside(self, parameter: Parameter, factor: str) -> TensorDraft:
        """Return a tensor besides the factors: of unknown size where the source says none."""
        name = parameter.name
        is_output = _OUTPUT.search(name) is not None and not _BESIDES.search(name)
        if is_output and parameter.rank in (None, 2, 3):
            sides: tuple[str | int, ...] = AXES[parameter.rank or 2]
            half = factor if factor in ("fp16", "bf16", "fp32") else "fp16"
            return TensorDraft(half, sides, written=True)
        known: list[str | int] = []
        for at in range(parameter.rank or 1):
            side = self.source.sides.get((name, at))
            side = side or self.source.sides.get((name, at - (parameter.rank or 1)))
            own = self._side(side) if side else None
            known.append(own if own and own != "experts" else ROOM)
        is_packed = ">>" in self._text() and re.search("zero|zp", name) is not None
        if is_packed or (_INTEGERS.search(name) and not name.endswith("scale")):
            return TensorDraft("int32", tuple(known))
        is_half = factor in ("fp16", "bf16") and not re.search("scale|absmax|zero", name)
        return TensorDraft(factor if is_half else "fp32", tuple(known))

    def _side(self, text: str) -> str | int | None:
        """Return a side in letters: that of a name, or of an expression of such names."""
        known = self.source.function.__globals__

        def write(node: ast.expr) -> str:
            if isinstance(node, ast.Name):
                letter = _letter(node.id)
                value = known.get(node.id)
                if type(value) is int:
                    return str(value)
                if letter is None:
                    raise ValueError(node.id)
                return letter
            if isinstance(node, ast.Constant) and type(node.value) is int:
                return str(node.value)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
                return f"{write(node.left)} // {write(node.right)}"
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                return f"{write(node.left)} * {write(node.right)}"
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cdiv"):
                return f"-(-{write(node.args[0])} // {write(node.args[1])})"
            raise ValueError(ast.unparse(node))

        try:
            written = write(ast.parse(text, mode="eval").body)
        except (ValueError, SyntaxError):
            return None
        return int(written) if written.isdecimal() else written

    def _values(self, factor: str) -> dict[str, Any]:
        """Return the values of required parameters that are no tensors."""
        values: dict[str, Any] = {}
        for p in self.source.parameters.values():
            if p.kind == "tensor" or not p.required:
                continue
            if p.kind == "dtype":
                half = factor if factor in ("fp16", "bf16", "fp32") else "bf16"
                values[p.name] = getattr(torch, FORMATS[half].dtype)
            elif p.kind == "bool":
                values[p.name] = False
            elif p.kind == "float":
                values[p.name] = SCALARS[len(values) % len(SCALARS)]
            elif p.kind in ("int", "unknown"):
                values[p.name] = _letter(p.name) or 2
            elif p.kind == "str":
                values[p.name] = ""
        return values

    # -- one call --------------------------------------------------------------------------------
    def try_call(self, call: CandidateCall) -> DraftedCall | None:
        """Return a call's result with its formula, None if the call is refused."""
        generator = np.random.default_rng(0)
        tensors = {n: _draw(generator, n, t, call.sizes) for n, t in call.tensors.items()}
        values = {
            n: call.sizes[x] if isinstance(x, str) and x in call.sizes else x
            for n, x in call.values.items()
        }
        terms = ElementTerms()

        def launch(*given: torch.Tensor) -> Any:
            named = {**values, **dict(zip(tensors, given, strict=True))}
            by_position, by_name = self.source.arrange(named)
            return self.source.function(*by_position, **by_name)

        try:
            observed = run(launch, *tensors.values(), operands=tensors, terms=terms, seconds=10.0)
        except Exception as error:
            reason = f"{type(error).__name__}: {words_of(error)}"
            self.refused[reason] = self.refused.get(reason, 0) + 1
            return None
        result = observed.result
        result = result[0] if isinstance(result, tuple | list) and result else result
        written = [n for n, t in call.tensors.items() if t.written and terms.has_stored(tensors[n])]
        if result is None and written:
            result = tensors[written[0]]
        is_operand = isinstance(result, torch.Tensor) and any(result is tensors[n] for n in written)
        tensors_drafted = {
            n: replace(t, written=t.written and is_operand and result is tensors[n])
            for n, t in call.tensors.items()
        }
        call = replace(call, tensors=tensors_drafted)
        if not isinstance(result, torch.Tensor) or not 1 <= result.dim() <= 3:
            raise Unreadable("a result that is no tensor of one to three dimensions")
        if not terms.has_stored(result):
            raise Unreadable("a result that no kernel stored")
        numbers = terms.of_tensor(terms.storage_of(result), result)
        integers = {
            n: t.numpy() for n, t in tensors.items() if t.dtype in (torch.int32, torch.int64)
        }
        reader = Reader(terms, integers)
        axes = AXES[numbers.ndim]
        part = numbers[..., :MOST_ROWS, :MOST_COLUMNS] if numbers.ndim > 1 else numbers
        formula = reader.read(part, axes)
        if not any(p.over for p in list_products(formula)):
            raise Unreadable("a result without a product of matrices")
        reader.sizes |= dict(zip(axes, numbers.shape, strict=True))
        if any(
            call.tensors[n].format == "int32" and not is_unpacked(formula, n) for n in call.factors
        ):
            raise Unreadable("weights of int32 that are not unpacked")
        shapes = {n: tuple(t.shape) for n, t in tensors.items()}
        return DraftedCall(call, formula, axes, reader, shapes)


def _has_constant(drafted: DraftedCall) -> bool:
    """Return whether a dimension of unknown size is indexed by a constant only."""
    return any(
        function.is_constant and drafted.shapes[element.tensor][dim] == ROOM
        for element in list_elements(drafted.formula)
        for dim, function in enumerate(element.index)
    )


def is_unpacked(part: Any, name: str) -> bool:
    """Return whether a formula takes bits of a tensor's elements."""
    if isinstance(part, FormulaFunction):
        own = part.name in ("arith.shrsi", "arith.shrui", "arith.andi")
        return (own and name in repr(part)) or any(is_unpacked(x, name) for x in part.args)
    if isinstance(part, Sum):
        return any(is_unpacked(f, name) for p in part.products for f in p.factors)
    return False


def evaluate_size(text: str, sizes: Mapping[str, int]) -> int:
    """Return the value of a side in letters."""
    return int(evaluate_relation(text, sizes)) if " " in text or "-" in text else sizes[text]


def _letter(side: str) -> str | None:
    """Return the letter that a dimension's name stands for, None if it is not known."""
    word = re.sub(r"\d+$|_+$", "", side.strip().lower())
    word = word.rpartition(".")[2]
    return next((x for x, pattern in _LETTERS if re.fullmatch(pattern, word)), None)


def _draw(
    generator: np.random.Generator, name: str, draft: TensorDraft, sizes: Mapping[str, int]
) -> torch.Tensor:
    """Return a tensor of small numbers, which no format rounds; indices are in range."""
    shape = draft.shape(sizes)
    dtype = getattr(torch, FORMATS[draft.format].dtype)
    if draft.format in ("int32", "int64") and _INTEGERS.search(name):
        if re.search("offs|cu_|ptr|indptr", name):
            cuts = np.sort(generator.integers(0, sizes["M"] + 1, max(shape[0] - 1, 0)))
            return torch.tensor([0, *cuts.tolist()], dtype=dtype)
        return torch.tensor(generator.integers(0, EXPERTS, shape), dtype=dtype)
    if draft.format in ("int32", "uint8", "int8"):
        bits = {"int32": (-(2**31), 2**31), "uint8": (0, 256), "int8": (-128, 128)}[draft.format]
        return torch.tensor(generator.integers(*bits, shape), dtype=dtype)
    numbers = generator.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], shape)
    return torch.tensor(np.asarray(numbers), dtype=torch.float32).to(dtype)

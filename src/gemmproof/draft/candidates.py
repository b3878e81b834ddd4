"""Calls to try of a wrapper, the likeliest first, from what its source says."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gemmproof.draft.read_wrapper import Parameter, WrapperSource
from gemmproof.properties.contract import evaluate_relation
from gemmproof.reference.formats import FORMATS

AXES = {1: ("M",), 2: ("M", "N"), 3: ("batch", "M", "N")}
ROOM = 288  # of a dimension of unknown size: more than any other dimension has
SIZES = (
    {"M": 6, "N": 20, "K": 36, "batch": 2},
    {"M": 16, "N": 48, "K": 64, "batch": 2},
    {"M": 16, "N": 192, "K": 256, "batch": 2},
    {"M": 128, "N": 256, "K": 256, "batch": 2},
)
EXPERTS = 4
SCALARS = (0.8125, 0.6875, 1.1875, 1.3125)  # of factors: none is a product of others
_LETTERS = (
    ("M", r"m|rows?|num_tokens|n_tokens|tokens|t|seq\w*|s|bs|batch_size"),
    ("N", r"n|cols?|columns?|out_\w+|n_out|d_out|intermediate\w*"),
    ("K", r"k|in_\w+|n_in|d_in|hidden\w*|d_model|dim|d"),
    ("batch", r"b|batch|z|heads?|h"),
    ("experts", r"e|num_experts|n_experts|experts?|g|groups?|num_groups"),
)
_OUTPUT = re.compile(r"^(out|output|c|y|o|dst|result|ret|res)(_ptr|_buf)?$|^out_|_out$", re.I)
_BESIDES = re.compile(
    r"scale|_s$|_sf$|^s[ab]$|scl|bias|zero|zp|resid|ids|idx|index|indices|offs|ptrs?$|lens?$"
    r"|sizes?$|topk|expert_|mask|cu_|^azp|absmax|router", re.I,
)  # fmt: skip
_INTEGERS = re.compile(
    r"ids|idx|index|indices|offs|ptr$|lens?$|sizes?$|indptr|cu_|counts?|map$", re.I
)
OFFSETS = re.compile(r"offs|cu_|ptr|lens?$|indptr|splits$")
_USUAL = (
    (r"warps", 4), (r"stages", 2), (r"chunk", 64), (r"maxq", 15), (r"split", 1),
    (r"group_size_m|group_m\b|gm$", 8), (r"^(top)?_?k$", 1),
    (r"bl(oc)?k|^b[mnk]$|tile", 32), (r"group_?size|groupsize", 64), (r"bits", 4), (r"ctas", 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorDraft:
    """A tensor as it is passed: its format, and a letter or a size for each dimension."""

    format: str
    sides: tuple[str | int, ...]
    written: bool = False
    turned: bool = False  # its memory is that of its transpose

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(x if isinstance(x, int) else evaluate_size(x, sizes) for x in self.sides)


@dataclass(slots=True)
class CandidateCall:
    """A call that was tried: its tensors and values by parameter, and the sizes of letters."""

    tensors: dict[str, TensorDraft]
    values: dict[str, Any]
    sizes: Mapping[str, int]
    factors: tuple[str, ...]

    @property
    def is_turned(self) -> bool:
        """True if a tensor is in columns."""
        return any(tensor.turned for tensor in self.tensors.values())


@dataclass(frozen=True)
class Candidates:
    """The calls of one wrapper that may be accepted."""

    source: WrapperSource

    def reshape(self, call: CandidateCall, tensor: str) -> list[CandidateCall]:
        """Return calls with other shapes of a tensor besides the factors: those of the others."""
        if tensor not in call.tensors or tensor in call.factors:
            return []
        sides = [call.tensors[n].sides for n in reversed(call.factors)] + [("M", "N")]
        for step, axis in itertools.product((128, 64, 32), ("M", "N")):
            group, columns = f"-(-K // {step})", f"-(-N // {step})"
            sides.append((axis if axis == "M" else columns, group))
        own = call.tensors[tensor]
        return [
            replace(call, tensors={**call.tensors, tensor: replace(own, sides=x)})
            for x in dict.fromkeys(sides)
            if x != own.sides
        ]

    def reformat(self, call: CandidateCall, reason: str) -> list[CandidateCall]:
        """Return calls with another layout, rank or format of one tensor, after a refusal."""
        changed = self._turn(call, reason)
        changed += [self._group(call)] if self._group(call) != call else []
        for n in call.tensors:
            if self.source.parameters[n].rank is None and not call.tensors[n].written:
                changed += self.reshape(call, n)
        for n, own in call.tensors.items():
            if n in call.factors or own.written:
                continue
            half = call.tensors[call.factors[0]].format if call.factors else "fp16"
            for other in ("fp32", half if half in ("fp16", "bf16") else "bf16", "int32", "uint8"):
                if other != own.format:
                    tensors = {**call.tensors, n: replace(own, format=other)}
                    changed.append(replace(call, tensors=tensors))
        return changed

    def _turn(self, call: CandidateCall, reason: str) -> list[CandidateCall]:
        """Return the call with a tensor in columns, if it was refused because it is in rows."""
        for n, own in call.tensors.items():
            is_named = re.search(rf"\b{re.escape(n)}\b[^.]*col(umn)?[-_ ]?major", reason, re.I)
            if is_named and not own.turned and len(own.sides) > 1:
                return [replace(call, tensors={**call.tensors, n: replace(own, turned=True)})]
        return []

    def repack(
        self, call: CandidateCall, extents: Mapping[str, tuple[int, ...]]
    ) -> list[CandidateCall]:
        """Return calls with a factor of packed elements, of which only a part was read."""
        for n in call.factors:
            own, shape = call.tensors[n], call.tensors[n].shape(call.sizes)
            for dim, (size, extent) in enumerate(zip(shape, extents.get(n, ()), strict=False)):
                for count in (2, 4, 8, 16):
                    if extent * count != size or not isinstance(own.sides[dim], str):
                        continue
                    packed = [
                        *own.sides[:dim],
                        f"{own.sides[dim]} // {count}",
                        *own.sides[dim + 1 :],
                    ]
                    formats = ("int32", "int8", "uint8") if count > 2 else ("uint8", "int8")
                    return [
                        replace(call, tensors={**call.tensors, n: TensorDraft(f, tuple(packed))})
                        for f in formats
                    ]
        return []

    def _group(self, call: CandidateCall) -> CandidateCall:
        """Return the call with tensors of unknown size for groups of K: scales, packed zeros."""
        tensors = dict(call.tensors)
        for n, own in call.tensors.items():
            if n not in call.factors and len(own.sides) == 2 and ROOM in own.sides:
                packed = "N // 8" if own.format == "int32" else "N"
                usual = ("K // 32", packed)
                sides = tuple(u if s == ROOM else s for s, u in zip(own.sides, usual, strict=True))
                tensors[n] = replace(own, sides=sides)
        return replace(call, tensors=tensors)

    def list_calls(self) -> Iterator[CandidateCall]:
        """Yield calls, the likeliest first."""
        factors, others = self._split()
        if not factors:
            return
        letters = [self._letters_of(p) for p in factors]
        formats = self._admit(factors, self._formats(factors))
        ways = itertools.product(range(len(SIZES)), (False, True), range(len(formats)))
        order = (2, 1, 3, 0) if self._is_packed else (0, 1, 2, 3)  # groups of K divide 256
        cost = {size: at for at, size in enumerate(order)}
        for size, turned, at in sorted(ways, key=lambda way: cost[way[0]] + 1.5 * way[1] + way[2]):
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
                is_batch = rank > 2 and at == 0 and re.match(r"bs$|batch", side)
                named[at] = "batch" if is_batch else self._side(side)
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
        text = self._text.lower()
        named = {
            "fp16": ("float16", "half"), "bf16": ("bfloat16",), "fp32": ("float32",),
            "fp8e4m3": ("float8_e4m3", "fp8", "float8e4"), "int8": ("int8", "w8a8"),
        }  # fmt: skip
        order = {"fp16": 0.0, "bf16": 1.0, "fp32": 2.0, "fp8e4m3": 3.0, "int8": 4.0}
        own = self.source.text.lower() + self.source.function.__code__.co_filename.lower()
        for name in ("fp8e4m3", "int8"):
            if any(word in own for word in named[name]):
                order[name] -= 3.5
        if re.search(r"tl\.(zeros|full)\([^\n]*int32|ACC_TYPE\W+tl\.int32", text):
            order["int8"] -= 3.5
        alike = sorted(order, key=lambda x: order[x])
        pairs = [tuple(f for _ in factors) for f in alike]
        if len(factors) < 2:
            return pairs
        packed = self._is_packed
        mixed = [("fp16", f) for f in ("int32", "int8", "uint8")]
        weights = "int8" in text or packed
        if packed:
            return [*mixed, *(("bf16", f) for _, f in mixed), *pairs]
        return [*pairs[:2], *mixed[1:], *pairs[2:]] if weights else [*pairs, *mixed]

    @cached_property
    def _is_packed(self) -> bool:
        """Return whether the wrapper's file takes bits of packed words."""
        return re.search(r">>|&\s*0xf|&\s*15\b", self._text.lower()) is not None

    def _admit(
        self, factors: list[Parameter], formats: list[tuple[str, ...]]
    ) -> list[tuple[str, ...]]:
        """Return the formats of the factors that assertions of the wrapper admit."""
        for at, factor in enumerate(factors):
            declared = (
                self._formats_of(factor.name, "") if factor.name in self.source.dtypes else ()
            )
            if declared:
                admitted = [x for x in formats if x[at] in declared]
                formats = admitted or [(*x[:at], declared[0], *x[at + 1 :]) for x in formats]
        return formats

    @cached_property
    def _text(self) -> str:
        """Return the text of the wrapper, and of the functions and kernels that it names."""
        known, texts = self.source.function.__globals__, {self.source.function.__name__: ""}
        waiting = [self.source.text]
        while waiting:
            text = waiting.pop()
            texts[text] = text
            for name in set(re.findall(r"\b[A-Za-z_]\w*\b", text)) & known.keys() - texts.keys():
                texts[name] = ""
                value = getattr(known[name], "fn", known[name])  # of an autotuner, and of a kernel
                value = getattr(value, "fn", value)
                if inspect.isfunction(value):
                    with suppress(OSError, TypeError):
                        waiting.append(inspect.getsource(value))
        return "\n".join(texts.values())

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
        declared, packed = self._formats_of(name, factor), self._is_packed
        is_packed = packed and not declared and re.search("zero|zp", name) is not None
        if packed and not self._has_sides(name) and re.search("scale|zero", name):
            known = ["K // 32", "N // 8" if is_packed else "N"]
        if declared:
            return TensorDraft(declared[0], tuple(known))
        if is_packed or (_INTEGERS.search(name) and not name.endswith("scale")):
            return TensorDraft("int32", tuple(known))
        is_wide = re.search("absmax" if packed else "scale|absmax|zero|_s$", name) is not None
        is_half = factor in ("fp16", "bf16") and not is_wide
        return TensorDraft(factor if is_half else "fp32", tuple(known))

    def _has_sides(self, name: str) -> bool:
        """Return whether the source says the size of a dimension of a tensor."""
        return any(n == name for n, _ in self.source.sides)

    def _formats_of(self, name: str, factor: str) -> list[str]:
        """Return the formats that assertions admit for a tensor; none if nothing is asserted."""
        first = next((p.name for p in self.source.tensors if p.required), "")
        if self.source.alike.get(name) == first:
            return [factor]
        return [f.name for f in FORMATS.values() if f.dtype in self.source.dtypes.get(name, ())]

    def _side(self, text: str) -> str | int | None:
        """Return a side in letters: that of a name, or of an expression of such names."""
        known = self.source.function.__globals__

        def write(node: ast.expr) -> str:
            if isinstance(node, ast.Name):
                letter = _letter(node.id) or self._letter_of_factor(node.id)
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

    def _letter_of_factor(self, name: str) -> str | None:
        """Return the letter of a dimension of a that has no name but a_0 or a_1."""
        first = next((p for p in self.source.tensors if p.required), None)
        for dim, letter in enumerate("MK"):
            if first is not None and name == f"{first.name}_{dim}":
                return letter
        return None

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
                own = _usual(p.name)
                is_config = "config" in p.name.lower()
                letter = _letter(p.name) if p.name != "k" else None
                values[p.name] = letter or (self._config() if is_config else own)
            elif p.kind == "str":
                values[p.name] = ""
        return values

    def _config(self) -> Any:
        """Return a configuration with usual tiles of the module's kernels."""
        import triton

        kernels = [x for x in self.source.function.__globals__.values() if hasattr(x, "params")]
        names = [p.name for kernel in kernels for p in kernel.params if p.is_constexpr]
        tiles = {n: _usual(n) for n in names if re.search("BLOCK|GROUP", n)}
        return triton.Config(tiles, num_warps=4, num_stages=2)


def evaluate_size(text: str, sizes: Mapping[str, int]) -> int:
    """Return the value of a side in letters."""
    return int(evaluate_relation(text, sizes)) if " " in text or "-" in text else sizes[text]


def _letter(side: str) -> str | None:
    """Return the letter that a dimension's name stands for, None if it is not known."""
    word = re.sub(r"\d+$|_+$", "", side.strip().lower())
    word = word.rpartition(".")[2]
    return next((x for x, pattern in _LETTERS if re.fullmatch(pattern, word)), None)


def _usual(name: str) -> Any:
    """Return a usual value of an integer or another parameter that is known by its name."""
    word = name.lower()
    for pattern, value in _USUAL:
        if re.search(pattern, word):
            return value
    return 2


def draw_tensor(
    generator: np.random.Generator, name: str, draft: TensorDraft, sizes: Mapping[str, int]
) -> torch.Tensor:
    """Return a tensor of small numbers, which no format rounds; indices are in range."""
    if draft.turned:
        plain = replace(draft, sides=(*draft.sides[:-2], *draft.sides[:-3:-1]), turned=False)
        return draw_tensor(generator, name, plain, sizes).mT
    shape = draft.shape(sizes)
    dtype = getattr(torch, FORMATS[draft.format].dtype)
    if draft.format in ("int32", "int64") and _INTEGERS.search(name):
        if OFFSETS.search(name):
            cuts = np.sort(generator.integers(0, sizes["M"] + 1, max(shape[0] - 1, 0)))
            return torch.tensor([0, *cuts.tolist()], dtype=dtype)
        return torch.tensor(generator.integers(0, EXPERTS, shape), dtype=dtype)
    if draft.format in ("int32", "uint8", "int8"):
        bits = {"int32": (-(2**31), 2**31), "uint8": (0, 256), "int8": (-128, 128)}[draft.format]
        return torch.tensor(generator.integers(*bits, shape), dtype=dtype)
    numbers = generator.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], shape)
    return torch.tensor(np.asarray(numbers), dtype=torch.float32).to(dtype)

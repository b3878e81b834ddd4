"""Write a formula as people do, for --spec."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmproof.draft.formula import (
    FormulaFunction,
    IndexedTensor,
    Sum,
    SummedProduct,
    list_elements,
)
from gemmproof.draft.index_functions import IndexFunction
from gemmproof.draft.polynomials import Unreadable
from gemmproof.reference.formats import FORMATS

_BINARY = {
    "arith.shrsi": ">>", "arith.shrui": ">>", "arith.shli": "<<", "arith.andi": "&",
    "arith.ori": "|", "arith.xori": "^", "arith.remsi": "%", "arith.remui": "%",
    "arith.divsi": "//", "arith.divui": "//",
}  # fmt: skip
_CALLS = {
    "arith.maximumf": "np.maximum({}, {})", "arith.maxnumf": "np.fmax({}, {})",
    "arith.minimumf": "np.minimum({}, {})", "arith.minnumf": "np.fmin({}, {})",
    "math.exp": "np.exp({})", "math.tanh": "np.tanh({})", "math.sqrt": "np.sqrt({})",
    "math.absf": "abs({})", "math.erf": "erf({})", "math.floor": "np.floor({})",
    "tt.clampf": "np.clip({}, {}, {})", "sigmoid": "sigmoid({})", "relu": "np.maximum({}, 0)",
    "tt.precise_sqrt": "np.sqrt({})",
}  # fmt: skip
_LIBRARY = {
    "erff": "erf({})", "erf": "erf({})", "tanhf": "np.tanh({})", "tanh": "np.tanh({})",
    "expf": "np.exp({})", "fast_expf": "np.exp({})", "rintf": "np.rint({})",
    "fast_tanhf": "np.tanh({})",
}  # fmt: skip
_COMPARED = {
    "ogt": ">", "oge": ">=", "olt": "<", "ole": "<=", "oeq": "==", "une": "!=", "ugt": ">",
    "sgt": ">", "sge": ">=", "slt": "<", "sle": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
_FORMATS = {f.ttir: f.name for f in reversed(list(FORMATS.values())) if f.ttir}
ONE = IndexFunction(start=1)
ONE_ROW = "one row"  # an axis that nothing depends on


@dataclass(frozen=True, slots=True)
class Text:
    """An expression, the axes of its value in order, and if it is a sum or an operation on bits."""

    text: str
    axes: tuple[str, ...]
    is_sum: bool = False

    def inside(self) -> str:
        """Return the expression in parentheses, unless it is a single name or call."""
        return self.text if _is_whole(self.text) else f"({self.text})"


def _is_whole(text: str) -> bool:
    """Return whether a text is one name, call, subscript or parenthesis."""
    depth = 0
    for i, letter in enumerate(text):
        depth += letter in "([{"
        depth -= letter in ")]}"
        if depth == 0 and letter in " +-*/@%&|<>=" and i:
            return False
    return not text.startswith("-")


class FormulaWriter:
    """Writes the formulas of one call; `sizes` are those of the axes, `shapes` of the tensors.

    `names` are those that tensors have in the formula, where they are others; `scalars` names
    numbers.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        names: Mapping[str, str] | None = None,
        scalars: Mapping[float, str] | None = None,
    ) -> None:
        self.sizes = sizes
        self.shapes = shapes
        self.names = names or {}
        self.scalars = scalars or {}
        self.size_texts: dict[str, str] = {}
        self.bound: set[str] = set()  # parts that a formula may name

    def write(self, formula: Sum, axes: Sequence[str]) -> str:
        """Return the text of a result's formula; the rounding of the result itself is left out."""
        formula = _unrounded(formula)
        self._note_sizes(formula)
        text = self._sum(formula, tuple(axes)).text
        for part in sorted(self.bound, key=len, reverse=True):
            if text.count(part) > 1:
                whole = re.compile(rf"(?<![\w.])\({re.escape(part)}\)|{re.escape(part)}")
                return f"(lambda y: {whole.sub('y', text)})({part})"
        return text

    # -- sums ------------------------------------------------------------------------------------
    def _sum(self, formula: Sum, axes: tuple[str, ...]) -> Text:
        products = _join_products(formula.products)
        common = _find_common(products)
        if common is not None:
            inner = self._sum(Sum(tuple(_scale(p, 1 / common) for p in products)), axes)
            text = f"({inner.text}) * {self._number(abs(common))}"
            return Text(f"-{text}" if common < 0 else text, inner.axes)
        text, parts = "", [self._product(p, axes) for p in sorted(products, key=_rank)]
        for part in parts:
            minus = part.text.startswith("-")
            own = part.text[1:] if minus else part.text
            if " @ " in own and len(parts) > 1 and not _is_whole(own) and " * " not in own:
                own = f"({own})"
            text += (" - " if minus else " + ") * bool(text) + "-" * (minus and not text) + own
        if not parts:
            return Text("0", ())
        if len(parts) > 1 and " @ " in text:
            self.bound.add(text)
        present = tuple(x for x in axes if any(x in p.axes for p in parts))
        return Text(text, present, is_sum=len(parts) > 1)

    def _product(self, product: SummedProduct, axes: tuple[str, ...]) -> Text:
        over, coefficient = product.over, product.coefficient
        inner = [f for f in product.factors if _axes_of(f) & set(over)]
        outer = [f for f in product.factors if f not in inner]
        if set(coefficient.depends) & set(over):
            inner.append(Sum((SummedProduct(coefficient, ()),)))
            coefficient = ONE
        parts = [self._factor(f, axes) for f in _sorted(outer)]
        if over:
            parts.insert(0, self._contract(_sorted(inner), over, axes))
        return self._times(parts, coefficient, axes)

    def _times(self, parts: list[Text], coefficient: IndexFunction, axes: tuple[str, ...]) -> Text:
        """Return the product of texts that are aligned on `axes`, the coefficient last."""
        text = ""
        inverses = [p for p in parts if p.text.startswith("1 / ")]
        for part in (p for p in parts if not p.text.startswith("1 / ")):
            own = part.text
            if part.is_sum or (" @ " in own and (len(parts) > 1 or coefficient != ONE)):
                own = part.inside()
            text += " * " * bool(text) + own
        if coefficient.is_constant:
            c = coefficient.start
            if abs(c) != 1 or not text:
                text = f"{text} * {self._number(abs(c))}" if text else self._number(abs(c))
            text = "-" * (c < 0) + text
        else:
            (axis,) = coefficient.depends
            own = self._aligned(self._index_text(coefficient, axis), (axis,), axes)
            text = f"{text} * {own}" if text else own
        for inverse in inverses:
            text += inverse.text.removeprefix("1")
        used = {x for p in parts for x in p.axes} | set(coefficient.depends)
        present = tuple(x for x in axes if x in used)
        return Text(text, present)

    def _contract(
        self,
        factors: Sequence[IndexedTensor | FormulaFunction | Sum],
        over: tuple[str, ...],
        axes: tuple[str, ...],
    ) -> Text:
        """Return the product of the factors summed over axes, as `left @ right` if it is one."""
        if len(over) == 2:
            return self._contract_twice(factors, over, axes)
        used = frozenset().union(*(_axes_of(f) for f in factors))
        own = tuple(x for x in axes if x in used)
        text = self._matrix_product(factors, over[0], own)
        if text is None:
            every = self._all(factors, (*own, over[0]))
            text = f"np.sum({every.text}, axis=-1)"
        self.bound.add(text)
        if own != axes and own:
            text = self._aligned(text if _is_whole(text) else f"({text})", own, axes)
        return Text(text, own)

    def _contract_twice(
        self,
        factors: Sequence[IndexedTensor | FormulaFunction | Sum],
        over: tuple[str, ...],
        axes: tuple[str, ...],
    ) -> Text:
        """Return a sum over two axes: that of contractions over the one that fewer factors have."""
        counts = {x: sum(x in _axes_of(f) for f in factors) for x in over}
        inner, outer = sorted(over, key=lambda x: counts[x])
        within = [f for f in factors if inner in _axes_of(f)]
        beside = [f for f in factors if f not in within]
        wide = (*axes[:-1], outer, axes[-1])
        parts = [self._contract(within, (inner,), wide)]
        parts += [self._factor(f, wide) for f in beside]
        each = self._times(parts, ONE, wide)
        return Text(f"np.sum({each.text}, axis={len(axes) - 1})", axes)

    def _matrix_product(
        self,
        factors: Sequence[IndexedTensor | FormulaFunction | Sum],
        over: str,
        axes: tuple[str, ...],
    ) -> str | None:
        """Return the factors as `left @ right`, None if they are no product of matrices."""
        if len(axes) < 2:
            return None
        *batch, row, column = axes
        left = [f for f in factors if column not in _axes_of(f)]
        right = [f for f in factors if column in _axes_of(f)]
        only_summed = [f for f in left if _axes_of(f) <= {over}]
        if len(only_summed) < len(left):
            left, right = [f for f in left if f not in only_summed], [*right, *only_summed]
        if not left or not right:
            return None
        if any(set(axes[:-1]) & _axes_of(f) - set(batch) for f in right):
            return self._rowwise_product(left, right, over, axes)
        x, y = self._all(left, (*batch, row, over)), self._all(right, (*batch, over, column))
        if over not in x.axes or over not in y.axes or row not in x.axes:
            return None
        return f"{x.inside()} @ {y.inside()}"

    def _rowwise_product(
        self,
        left: Sequence[IndexedTensor | FormulaFunction | Sum],
        right: Sequence[IndexedTensor | FormulaFunction | Sum],
        over: str,
        axes: tuple[str, ...],
    ) -> str | None:
        """Return the product of each row with a matrix of its own."""
        *rows, column = axes
        x, y = self._all(left, (*rows, ONE_ROW, over)), self._all(right, (*rows, over, column))
        if over not in x.axes or over not in y.axes:
            return None
        return f"({x.inside()} @ {y.inside()})[{', '.join(':' for _ in rows)}, 0, :]"

    def _all(
        self, factors: Sequence[IndexedTensor | FormulaFunction | Sum], axes: tuple[str, ...]
    ) -> Text:
        return self._times([self._factor(f, axes) for f in _sorted(factors)], ONE, axes)

    # -- factors ---------------------------------------------------------------------------------
    def _factor(self, factor: IndexedTensor | FormulaFunction | Sum, axes: tuple[str, ...]) -> Text:
        if isinstance(factor, IndexedTensor):
            return self._element(factor, axes)
        if isinstance(factor, Sum):
            return self._sum(factor, axes)
        name, detail = factor.name, factor.detail
        if name == "inverse":
            return self._inverse(factor, axes)
        parts = [self._sum(arg, axes) for arg in factor.args]
        present = tuple(x for x in axes if any(x in p.axes for p in parts))
        if name in ("arith.truncf", "tt.fp_to_fp"):
            if detail is None:
                raise Unreadable("a conversion to an unknown format")
            to = detail if isinstance(detail, str) else detail[0]
            text = f'{parts[0].inside()}.to("{_FORMATS.get(to, to)}")'
        elif name in _BINARY:
            text = f"{parts[0].inside()} {_BINARY[name]} {parts[1].inside()}"
            return Text(text, present, is_sum=True)
        elif name in ("arith.cmpf", "arith.cmpi") and detail in _COMPARED:
            text = f"{parts[0].inside()} {_COMPARED[detail]} {parts[1].inside()}"
            return Text(text, present, is_sum=True)
        elif name == "arith.select":
            text = f"np.where({', '.join(p.text for p in parts)})"
        elif name in _CALLS:
            text = _CALLS[name].format(*(p.text for p in parts))
        elif name == "math.exp2":
            text = f"np.exp({parts[0].inside()} * 0.6931471805599453)"
        elif name == "tt.extern_elementwise":
            short = detail.removeprefix("__nv_").removeprefix("__ocml_").removesuffix("_f32")
            if short not in _LIBRARY:
                raise Unreadable(f"{detail}, which has no formula")
            text = _LIBRARY[short].format(*(p.text for p in parts))
        else:
            raise Unreadable(f"{name}, which has no formula")
        return Text(text, present)

    def _inverse(self, factor: FormulaFunction, axes: tuple[str, ...]) -> Text:
        (below,) = factor.args
        logistic = _find_logistic(below)
        if logistic is not None:
            inner = self._sum(logistic, axes)
            return Text(f"sigmoid({inner.text})", inner.axes)
        inner = self._sum(below, axes)
        return Text(f"1 / {inner.inside()}", inner.axes)

    def _element(self, element: IndexedTensor, axes: tuple[str, ...]) -> Text:
        """Return a tensor indexed and turned so that its axes stand as in `axes`."""
        text = self.names.get(element.tensor, element.tensor)
        dims: list[str] = []
        for dim, function in enumerate(element.index):
            before = ":, " * len(dims)
            if function.is_constant:
                text = f"{text}[{before}{int(function.start)}]"
                continue
            if set(function.depends) & set(dims):
                raise Unreadable(f"a diagonal of {element.tensor}")
            steps = replace(function, step=1)
            if function.step > 1 and steps.is_identity:
                size = self.shapes[element.tensor][dim] * function.step
                text = f"np.repeat({text}, {function.step}, axis={len(dims)})"
                if size != self.sizes[function.axis or ""]:
                    text += f"[{before}:{self._size(function.axis or '')}]"
            elif not function.is_identity:
                text = f"{text}[{before}{self._index_text(function, function.axis or '')}]"
            dims += function.depends
        return Text(self._aligned(text, tuple(dims), axes), tuple(x for x in axes if x in dims))

    def _number(self, value: float) -> str:
        """Return a number as it is written: a scalar's name, or the fewest digits of fp32."""
        name = self.scalars.get(value)
        if name is not None:
            return name
        single = np.float32(value)
        return repr(value) if isinstance(value, int) or single != value else f"{single!s}"

    def _size(self, axis: str) -> str:
        return self.size_texts.get(axis, str(self.sizes[axis]))

    def _index_text(self, function: IndexFunction, axis: str) -> str:
        gather = self.names.get(function.gather, function.gather)
        if gather and not function.counts:
            text = gather
            return f"{text} // {function.step}" if function.step > 1 else text
        text = f"np.arange({self._size(axis)})"
        if function.counts:
            ends = f"{gather}[{int(function.start)}:, None]"
            return f"np.where({ends} <= {text}, 1, 0).sum(axis=0)"
        if function.table:
            return f"np.array([{', '.join(map(repr, function.table))}])[{text} % {function.period}]"
        if function.step > 1:
            text = f"{text} // {function.step}"
        if function.period:
            text = f"{text} % {function.period}"
        if function.scale != 1:
            text = f"{text} * {function.scale!r}"
        if function.start:
            text = f"{text} + {function.start!r}"
        return text

    def _aligned(self, text: str, dims: tuple[str, ...], axes: tuple[str, ...]) -> str:
        """Return an array of `dims` turned and spread so that its axes stand as in `axes`."""
        kept = [x for x in axes if x in dims]
        if any(d not in axes for d in dims):
            raise Unreadable(f"{text} depends on an axis that the result lacks")
        if list(dims) != kept:
            if not _is_whole(text):
                text = f"({text})"
            if len(dims) == 2:
                text = f"{text}.T"
            elif kept[:-2] == list(dims)[:-2]:
                text = f"{text}.mT"
            else:
                text = f"{text}.transpose({', '.join(str(dims.index(x)) for x in kept)})"
        if not kept:
            return text
        first = axes.index(kept[0])
        keys = [":" if x in kept else "None" for x in axes[first:]]
        if "None" not in keys:
            return text
        if not _is_whole(text):
            text = f"({text})"
        return f"{text}[{', '.join(keys)}]"

    def _note_sizes(self, formula: Sum) -> None:
        """Find a tensor whose shape gives the size of each axis."""
        for element in list_elements(formula):
            for dim, function in enumerate(element.index):
                axis, size = function.axis or "", self.shapes[element.tensor][dim]
                if not function.is_identity or axis in self.size_texts:
                    continue
                if size == self.sizes[axis]:
                    name = self.names.get(element.tensor, element.tensor)
                    self.size_texts[axis] = f"{name}.shape[{dim}]"


def _find_common(products: Sequence[SummedProduct]) -> float | None:
    """Return the coefficient that all of several products have, if it is not 1."""
    if len(products) < 2 or not all(p.coefficient.is_constant for p in products):
        return None
    first = products[0].coefficient.start
    same = {abs(p.coefficient.start) for p in products} == {abs(first)}
    return first if same and abs(first) != 1 else None


def _scale(product: SummedProduct, by: float) -> SummedProduct:
    start = product.coefficient.start * by
    start = int(start) if float(start).is_integer() else start
    return replace(product, coefficient=replace(product.coefficient, start=start))


# -- parts of formulas ---------------------------------------------------------------------------
def _rank(product: SummedProduct) -> tuple[bool, bool]:
    """Order contractions first, and what is subtracted last."""
    coefficient = product.coefficient
    return not product.over, coefficient.is_constant and coefficient.start < 0


def _axes_of(part: IndexedTensor | FormulaFunction | Sum | SummedProduct) -> frozenset[str]:
    """Return the axes that a part of a formula depends on."""
    if isinstance(part, IndexedTensor):
        return frozenset(axis for f in part.index for axis in f.depends)
    if isinstance(part, FormulaFunction):
        return frozenset().union(*(_axes_of(arg) for arg in part.args))
    if isinstance(part, Sum):
        return frozenset().union(*(_axes_of(p) for p in part.products))
    own = frozenset(part.coefficient.depends)
    return own.union(*(_axes_of(f) for f in part.factors)) - set(part.over)


def _sorted(
    factors: Sequence[IndexedTensor | FormulaFunction | Sum],
) -> list[IndexedTensor | FormulaFunction | Sum]:
    """Return factors with tensors of more dimensions first."""

    def rank(factor: IndexedTensor | FormulaFunction | Sum) -> tuple[int, int]:
        kinds = (FormulaFunction, Sum, IndexedTensor)
        return -len(_axes_of(factor)), kinds.index(type(factor))

    return sorted(factors, key=rank)


def _unrounded(formula: Sum) -> Sum:
    """Return the formula without the rounding of the whole result."""
    while len(formula.products) == 1:
        (product,) = formula.products
        if product.over or product.coefficient != ONE:
            break
        function = product.factors[0] if len(product.factors) == 1 else None
        if not isinstance(function, FormulaFunction):
            break
        if function.name not in ("arith.truncf", "tt.fp_to_fp"):
            break
        (formula,) = function.args
    return formula


def _find_logistic(below: Sum) -> Sum | None:
    """Return x of 1 + exp(-x), whose inverse is the logistic function."""
    if len(below.products) != 2:
        return None
    constant = [p for p in below.products if not p.factors and p.coefficient == ONE]
    rest = [p for p in below.products if p.factors]
    if len(constant) != 1 or len(rest) != 1 or len(rest[0].factors) != 1:
        return None
    power = rest[0].factors[0]
    scales = {"math.exp": 1.0, "math.exp2": 1.4426950408889634}
    if (
        not isinstance(power, FormulaFunction)
        or power.name not in scales
        or rest[0].coefficient != ONE
    ):
        return None
    scale = scales[power.name]
    products = []
    for product in power.args[0].products:
        c = product.coefficient
        if not c.is_constant:
            return None
        start = -c.start / scale
        start = round(start) if abs(start - round(start)) < 2**-20 else start
        products.append(replace(product, coefficient=replace(c, start=start)))
    return Sum(tuple(products))


def _join_products(products: Sequence[SummedProduct]) -> list[SummedProduct]:
    """Return the products with x * q + x * z joined to x * (q + z), where both are summed alike."""
    joined: list[SummedProduct] = []
    for product in products:
        for i, other in enumerate(joined):
            both = _join(other, product)
            if both is not None:
                joined[i] = both
                break
        else:
            joined.append(product)
    return joined


def _join(x: SummedProduct, y: SummedProduct) -> SummedProduct | None:
    if not x.over or not y.over:
        return None
    if len(x.over) != 1 or len(y.over) != 1:
        return None
    renamed = tuple(_rename(f, y.over[0], x.over[0]) for f in y.factors)
    common = [f for f in x.factors if f in renamed]
    own, others = ([f for f in fs if f not in common] for fs in (x.factors, renamed))
    if len(own) != 1 or len(others) > 1 or not common:
        return None
    if not x.coefficient.is_constant or x.coefficient.start != 1:
        return None
    first = own[0].products if isinstance(own[0], Sum) else (SummedProduct(ONE, tuple(own)),)
    second = SummedProduct(y.coefficient, tuple(others))
    return SummedProduct(ONE, (*common, Sum((*first, second))), x.over)


def _rename(
    part: IndexedTensor | FormulaFunction | Sum, old: str, new: str
) -> IndexedTensor | FormulaFunction | Sum:
    """Return a part of a formula with another name for an axis."""

    def rename(function: IndexFunction) -> IndexFunction:
        axes = tuple(new if x == old else x for x in function.axes)
        return replace(function, axis=new if function.axis == old else function.axis, axes=axes)

    if isinstance(part, IndexedTensor):
        return IndexedTensor(part.tensor, tuple(map(rename, part.index)))
    if isinstance(part, FormulaFunction):
        args = tuple(_rename(arg, old, new) for arg in part.args)
        return FormulaFunction(part.name, part.detail, args)  # type: ignore[arg-type]
    return Sum(
        tuple(
            SummedProduct(
                rename(p.coefficient), tuple(_rename(f, old, new) for f in p.factors), p.over
            )
            for p in part.products
        )
    )

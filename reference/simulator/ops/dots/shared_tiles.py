"""Programs that share tiles: their dots are one product of larger matrices (dot/stacked.py).

The dots of a loop over K are deferred until their sum is used.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gemmproof.reference.dot import DotModel
from gemmproof.reference.dot.stacked import Shared, Stacking, multiply
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.value import Lazy, Value
from gemmproof.reference.ttir.dtypes import Dtype

# Bytes of blocks deferred in one sum; beyond it they are multiplied.
MOST_WAITING = 1 << 24


class Tiles(Lazy):
    """Loaded blocks, of which programs share some."""

    __slots__ = ()

    def __init__(self, shared: Shared, dtype: Dtype) -> None:
        super().__init__(dtype, loaded=8 * dtype.itemsize)
        lanes = shared.blocks[:1].nbytes * len(shared.of)
        context.check_width(lanes)
        self.shared = shared

    def make(self) -> np.ndarray:
        return self.shared.blocks[self.shared.of]

    def select(self, rows: np.ndarray) -> Value:
        return Tiles(Shared(self.shared.blocks, self.shared.of[rows]), self.dtype)


class Product(Lazy):
    """A sum of dots of shared blocks onto `start`, multiplied when its data are first used."""

    __slots__ = ("layout", "model", "pairs", "start", "waiting")

    def __init__(
        self, dtype: Dtype, model: DotModel, layout: Stacking, start: np.ndarray | None
    ) -> None:
        super().__init__(dtype)
        self.model, self.layout, self.start = model, layout, start
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self.waiting = 0

    def extend(self, a: Shared, b: Shared) -> Product:
        """The sum with one more dot behind it."""
        made = Product(self.dtype, self.model, self.layout, self.start)
        made.pairs = [*self.pairs, (a.blocks, b.blocks)]
        made.waiting = self.waiting + a.blocks.nbytes + b.blocks.nbytes
        return made

    def make(self) -> np.ndarray:
        made = multiply(self.model, self.layout, self.pairs, self.start)
        return made.astype(self.dtype.numpy, copy=False)


def product(
    model: DotModel, a: Shared, b: Shared, acc: Value | None, dtype: Dtype
) -> Product | None:
    """The deferred dot of shared blocks onto acc; None where stacking does not pay.

    Every pair of a block of a and a block of b must belong to exactly one program.
    """
    if (
        isinstance(acc, Product)
        and not acc.is_made
        and acc.model == model
        and acc.waiting < MOST_WAITING
        and acc.layout.fits(a, b)
    ):
        return acc.extend(a, b)
    layout = Stacking.find(a, b) if a.blocks.ndim == 3 else None  # of a batch nothing is stacked
    if layout is None:
        return None
    numel = len(a.of) * a.blocks.shape[1] * b.blocks.shape[2]
    context.check_width(numel * dtype.itemsize)
    start = None if acc is None else acc.data
    return Product(dtype, model, layout, start).extend(a, b)


def find_shared(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Representative programs, and the one of each program; None if too few coincide.

    Programs are alike where all the parts (programs or 1, *lanes) of their access are.
    """
    several = [p for p in parts if len(p) > 1]
    programs = len(several[0]) if several else 1
    if programs < 4 or parts[0].ndim == 1:
        return None
    known = current().shared  # in a loop the parts that programs differ in are mostly the same
    key = tuple(map(id, several))
    if key not in known:
        if len(known) > 64:
            known.clear()
        known[key] = several, _find_shared(several)
    return known[key][1]


def _find_shared(several: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    programs = len(several[0])
    # the first lanes usually tell programs apart; the others are compared afterwards
    keys = np.zeros(programs, np.int64)
    for part in several:
        keys = keys * 1000003 + part.reshape(programs, -1)[:, 0]
    some, like = _group(keys.tobytes())
    if 2 * len(some) > programs or not all(_repeats(p, some, like) for p in several):
        return None
    return some, like


@lru_cache(maxsize=256)
def _group(keys: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each key, and for every key the number of its first place."""
    found = np.unique(np.frombuffer(keys, np.int64), return_index=True, return_inverse=True)
    return found[1], found[2]


def _repeats(part: np.ndarray, some: np.ndarray, like: np.ndarray) -> bool:
    """Whether every program's block is that of its representative; without a copy in a grid."""
    n, u = len(part), len(some)
    if n % u == 0 and np.array_equal(like, np.arange(n) % u):
        grid = part.reshape(n // u, u, *part.shape[1:])
        return bool((grid == grid[:1]).all())
    if n % u == 0 and np.array_equal(like, np.arange(n) // (n // u)):
        grid = part.reshape(u, n // u, *part.shape[1:])
        return bool((grid == grid[:, :1]).all())
    return np.array_equal(part[some][like], part)

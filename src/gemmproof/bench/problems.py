"""The shapes that are timed: named suites, and MxNxK as typed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

MOST_SIDE = 2**20
LARGEST_SIMULATED = 128  # of the sides of a small version


@dataclass(frozen=True, slots=True)
class Problem:
    """c = a @ b for a (M, K) and b (K, N), or a `batch` of them; `name` is `suite/part` or ""."""

    M: int
    N: int
    K: int
    batch: int | None = None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.sides}".strip()

    @property
    def sides(self) -> str:
        """MxNxK, or batch x MxNxK, as it can be typed."""
        known = (self.M, self.N, self.K) if self.batch is None else self._batched()
        return "x".join(map(str, known))

    def _batched(self) -> tuple[int, ...]:
        return (self.batch or 0, self.M, self.N, self.K)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of a, b and c."""
        lead = () if self.batch is None else (self.batch,)
        return (*lead, self.M, self.K), (*lead, self.K, self.N), (*lead, self.M, self.N)

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product: 2 M N K of each of the batch."""
        return 2 * self.M * self.N * self.K * (1 if self.batch is None else self.batch)

    def count_results(self) -> int:
        """Return the number of elements of c."""
        return math.prod(self.shapes[2])

    def shrink(self) -> Problem:
        """Return a version that is simulated in seconds, of the same proportions; 1 stays 1."""
        factor = 1
        while max(self.M, self.N, self.K) > LARGEST_SIMULATED * factor:
            factor *= 2
        M, N, K = (-(-side // factor) for side in (self.M, self.N, self.K))
        return Problem(M, N, K, None if self.batch is None else min(self.batch, 2), self.name)


def _suite(name: str, **parts: tuple[int, ...]) -> tuple[Problem, ...]:
    problems = []
    for part, sides in parts.items():
        batch, (M, N, K) = (sides[0] if len(sides) == 4 else None), sides[-3:]
        problems.append(Problem(M, N, K, batch, f"{name}/{part.strip('_')}"))
    return tuple(problems)


# Layers of public models, from their configurations: Llama 3.1 8B on 4096 tokens, Mixtral
# 8x7B on 4096 tokens, of which an expert gets 1024, and GPT-3 175B on 2048.
SUITES: Mapping[str, tuple[Problem, ...]] = MappingProxyType(
    {
        "square": _suite(
            "square", _1024=(1024,) * 3, _2048=(2048,) * 3, _4096=(4096,) * 3, _8192=(8192,) * 3
        ),
        "tall": _suite(
            "tall", _16k=(16384, 1024, 1024), _32k=(32768, 512, 2048), _128k=(131072, 128, 1024)
        ),
        "wide": _suite(
            "wide", _16k=(1024, 16384, 1024), _32k=(512, 32768, 2048), _128k=(128, 131072, 1024)
        ),
        "small_k": _suite(
            "small_k", _64=(8192, 8192, 64), _128=(8192, 8192, 128), _512=(8192, 8192, 512),
            _1024=(8192, 8192, 1024),
        ),
        "llama": _suite(
            "llama", qkv=(4096, 6144, 4096), o=(4096, 4096, 4096), gate_up=(4096, 28672, 4096),
            down=(4096, 4096, 14336),
        ),
        "mixtral": _suite(
            "mixtral", qkv=(4096, 6144, 4096), up=(1024, 14336, 4096), down=(1024, 4096, 14336)
        ),
        "gpt": _suite(
            "gpt", qkv=(2048, 36864, 12288), o=(2048, 12288, 12288), up=(2048, 49152, 12288),
            down=(2048, 12288, 49152),
        ),
        "decode": _suite(
            "decode", _1=(1, 8192, 8192), _8=(8, 8192, 8192), _16=(16, 8192, 8192),
            _64=(64, 8192, 8192),
        ),
        # sides that no tile divides; odd ones leave rows without the alignment of a vector
        "ragged": _suite(
            "ragged", _1000=(1000,) * 3, _2049=(2049, 2047, 2051), _4100=(4100,) * 3
        ),
        "batched": _suite(
            "batched", _1024=(16, 1024, 1024, 1024), scores=(128, 1024, 1024, 128),
            values=(128, 1024, 128, 1024), experts=(8, 1024, 14336, 4096),
        ),
    }
)  # fmt: skip


def read_problems(shapes: str | Iterable[str | Sequence[int] | Problem]) -> tuple[Problem, ...]:
    """Parse the problems of a text such as "llama,4096x4096x4096", or of a list of such words.

    A word is the name of a suite, one of its parts (llama/qkv), MxNxK, or batchxMxNxK; in a list
    also a tuple of these numbers. Raises ValueError, in one line, for anything else.
    """
    items = shapes.split(",") if isinstance(shapes, str) else list(shapes)
    problems = [problem for item in items for problem in _read_word(item)]
    if not problems:
        raise ValueError(f"shapes: got none, expected {_expected()}")
    return tuple(dict.fromkeys(problems))


def _read_word(item: str | Sequence[int] | Problem) -> tuple[Problem, ...]:
    if isinstance(item, Problem):
        return (item,)
    text = item.strip() if isinstance(item, str) else "x".join(map(str, item))
    if text in SUITES:
        return SUITES[text]
    named = {problem.name: problem for suite in SUITES.values() for problem in suite}
    if text in named:
        return (named[text],)
    if not re.fullmatch(r"[0-9]{1,7}(x[0-9]{1,7}){2,3}", text):
        raise ValueError(f"shapes: got {text!r}, expected {_expected()}")
    sides = [int(side) for side in text.split("x")]
    if not all(1 <= side <= MOST_SIDE for side in sides):
        raise ValueError(f"shapes: got {text!r}, expected sides of 1..{MOST_SIDE}")
    batch = sides.pop(0) if len(sides) == 4 else None
    M, N, K = sides
    return (Problem(M, N, K, batch),)


def _expected() -> str:
    return f"MxNxK, batchxMxNxK or a suite: {' '.join(SUITES)}"

"""What the sizes of an axis must be multiples of: with that all is proved, with less it is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove
from gemmproof.properties.proof.verdict import PROVED, REFUTED, Proofs
from gemmproof.reference.work import counted_seconds


@dataclass(frozen=True, slots=True)
class Divisor:
    """What all sizes of an axis must be multiples of: with it everything is proved.

    `below`: for each multiple that is not enough, a case at which it is refuted; `is_least` where
    that is so of each smaller one that divides it.
    """

    axis: str
    step: int
    below: tuple[Case, ...]
    is_least: bool

    @property
    def sizes(self) -> str:
        """The sizes of the axis as a contract states them."""
        return f"{self.step}..:{self.step}"


def find_divisor(
    kernel: KernelUnderTest, target: str | None, axis: str, step: int, seconds: float
) -> Divisor | None:
    """The least divisor of `step` whose multiples along an axis are proved; None without one."""
    until = counted_seconds() + seconds
    proofs = _prove_multiples(kernel, target, axis, step, until)
    if proofs is None or not _is_proved(proofs):
        return None
    is_least, below = True, list[Case]()
    for prime in _list_primes(step):
        while step % prime == 0 and step > 1:
            proofs = _prove_multiples(kernel, target, axis, step // prime, until)
            if proofs is None or not _is_proved(proofs):
                cases = [x.case for x in proofs.verdicts if x.status == REFUTED] if proofs else []
                is_least &= bool(cases)
                below += [Case.from_json(case) for case in cases[:1] if case is not None]
                break
            step //= prime
    return Divisor(axis, step, tuple(below), is_least)


def _prove_multiples(
    kernel: KernelUnderTest, target: str | None, axis: str, step: int, until: float
) -> Proofs | None:
    left = until - counted_seconds()
    if left <= 0:
        return None
    return prove(narrow(kernel, axis, step), target, left)


def narrow(kernel: KernelUnderTest, axis: str, step: int) -> KernelUnderTest:
    """The kernel under a contract of multiples along an axis."""
    stated = kernel.contract.sizes(axis)
    sizes: dict[str, Any] = {axis: replace(stated, low=-(-stated.low // step) * step, step=step)}
    return replace(kernel, contract=replace(kernel.contract, **sizes))


def _is_proved(proofs: Proofs) -> bool:
    return bool(proofs.verdicts) and all(x.status == PROVED for x in proofs.verdicts)


def _list_primes(n: int) -> list[int]:
    return [p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))]

"""In a worker: what is judged of a kernel and what it promises, in words that can be compared."""

from __future__ import annotations

import math

from gemmproof.properties.kernel import KernelUnderTest, Operand
from gemmproof.reference.provenance import tell_error
from gemmproof.report.facts import Identity, hash_texts
from gemmproof.signoff.source import Rewritten, trace


def describe(kernel: KernelUnderTest, imported: float = math.inf) -> Identity:
    """The facts of a kernel; never raises: what they lack they say.

    `imported`: a moment before its files were, in seconds since the epoch.
    """
    try:
        return _describe(kernel, imported)
    except Rewritten as why:
        return Identity(lack=str(why))
    except Exception as error:  # its objects may do anything when they are looked at
        return Identity(lack=f"its source was not read: {tell_error(error)}")


def _describe(kernel: KernelUnderTest, imported: float) -> Identity:
    stated = kernel.contract.to_dict()
    contract = {name: _name(value) if callable(value) else value for name, value in stated.items()}
    operands = {name: _say(one) for name, one in kernel.operands.items()}
    source = trace(kernel.launch, imported=imported)
    formula = trace(kernel.spec) if kernel.spec is not None else {}
    # one that is stated in the same function as the wrapper changes with it
    lack = "" if source else "its source was not found"
    own = {label: text for label, text in formula.items() if label not in source}
    return Identity(source, own, contract, operands, lack)


def _say(stated: object) -> str:
    """An operand in words; a function of its values by a hash of its text."""
    if not isinstance(stated, Operand):
        return repr(stated)
    words = [stated.format, str(list(stated.axes)).replace("'", "")]
    words += [stated.use] * stated.is_result + ["optional"] * stated.optional
    layouts = stated.layouts if isinstance(stated.layouts, str) else " ".join(stated.layouts)
    words += [f"layouts {layouts}"] if layouts != "contiguous" else []
    if stated.values is not None:
        named = _name(stated.values) if callable(stated.values) else str(stated.values)
        words.append(f"values {named}")
    return " ".join(words)


def _name(function: object) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name} {hash_texts(trace(function).values())[:8]}"

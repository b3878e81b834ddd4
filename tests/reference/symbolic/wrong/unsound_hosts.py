"""Wrappers that lose the last k, if host code treats a size as it treats an integer."""

import json
import pickle

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import compute, launch, plain


@triton.jit
def short_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, less, BLOCK: tl.constexpr):
    """The last `less` products are not summed."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K - less, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def short(a, b, less):
    return launch(short_kernel, a, b, less)


def losing_if(is_integer):
    """Return a wrapper that is wrong where a function of its first size holds, or raises."""

    def wrapper(a, b):
        try:
            holds = is_integer(a.shape[0])
        except (TypeError, AttributeError, RuntimeError):
            holds = False
        return short(a, b, 1) if holds else plain(a, b)

    return wrapper


if_instance = losing_if(lambda n: isinstance(n, int))
if_type = losing_if(lambda n: type(n) is int)
if_text = losing_if(lambda n: str(n).isdigit())
if_representation = losing_if(lambda n: repr(n).isdigit())
if_formatted = losing_if(lambda n: f"{n:>9d}".strip().isdigit())
if_number_is_large = losing_if(lambda n: int(n) > 4000)
if_key = losing_if(lambda n: {77: False}.get(n, True))
if_rounded_to_billions = losing_if(lambda n: round(n, -9) == 0)
if_pickled = losing_if(lambda n: type(pickle.loads(pickle.dumps(n))).__name__ == "int")
if_json = losing_if(lambda n: json.dumps(n).isdigit())
if_inverted = losing_if(lambda n: ~n == -n - 1)
if_dividing = losing_if(lambda n: divmod(1000, n + 1) == (1000 // (n + 1), 1000 % (n + 1)))
if_raised_modulo_7 = losing_if(lambda n: pow(n, 2, 7) == n * n % 7)
if_numerator = losing_if(lambda n: n.numerator == n)
if_bool_is_shifted = losing_if(lambda n: (n >= 0) << 1 == 2)
if_divided = losing_if(lambda n: divmod(n, 16) == (n // 16, n % 16))
if_bits = losing_if(lambda n: n.bit_count() < 64)
if_class = losing_if(lambda n: n.__class__ is int)


def if_divisor_is_zero(a, b):
    try:
        less = 0 * (1 // (a.shape[0] - 77))
    except ZeroDivisionError:
        less = 1
    return short(a, b, less)


def if_message_is_short(a, b):
    try:
        raise ValueError(f"{a.shape[0]}")
    except ValueError as error:
        return short(a, b, int(len(str(error)) > 3))


def if_message_of_a_check_is_short(a, b):
    """The message is made in a function, and looked up behind its handler."""
    message = ""
    try:
        _refuse(a.shape[0])
    except ValueError as error:
        message = error.args[0]
    return short(a, b, int(len(message) > 12))


def _refuse(rows):
    message = f"{rows} rows"
    if rows > 0:
        raise ValueError(message)


def if_far_from_77(a, b):
    """The distance of M from 77 is as much as the difference, or twice as much more."""
    n = a.shape[0] - 77
    return short(a, b, (abs(n) - n) // 2)


def if_element_is_zero(a, b):
    """A wrapper may catch what reading an element raises."""
    try:
        less = int(bool(a[0, 0] == 0))
    except Exception:
        less = 0
    return short(a, b, less)


def if_allocation_is_aligned(a, b):
    return short(a, b, int(a.untyped_storage().data_ptr() > 0))


def refuses_many_rows_as_a_stand_in(a, b):
    """A call with an integer raises nothing."""
    if a.shape[0] > 6000:
        return short(a, b, min(int.bit_length(a.shape[0]), 1))
    return plain(a, b)


def nothing_for_many_rows(a, b):
    """Nothing can be said of a path that launches nothing."""
    return a.new_empty((a.shape[0], b.shape[1])) if a.shape[0] > 100 else plain(a, b)


@triton.jit
def idle_kernel(x):
    pass


def idle_for_many_rows(a, b):
    """Nothing can be said of a path whose kernel accesses no memory."""
    if a.shape[0] <= 100:
        return plain(a, b)
    idle_kernel[(1,)](a)
    return a.new_empty((a.shape[0], b.shape[1]))


# -- what only a call with plain integers shows ----------------------------------------------------
def is_stand_in(n):
    return hasattr(n, "node")


def launch_rows(a, b, rows):
    return launch(short_kernel, a, b, 0, grid=(rows, triton.cdiv(b.shape[1], 16)))


def takes_another_grid(a, b):
    rows = triton.cdiv(a.shape[0], 16)
    return launch_rows(a, b, rows if is_stand_in(a.shape[0]) else rows // 2)


def takes_another_grid_for_many_rows(a, b):
    rows = triton.cdiv(a.shape[0], 16)
    return launch_rows(a, b, rows if is_stand_in(a.shape[0]) else min(rows, 4))


def takes_another_grid_on_a_far_path(a, b):
    """Its other path has no case that is small enough to compare."""
    if a.shape[0] < 60_000:
        return plain(a, b)
    return takes_another_grid(a, b)


def another_result(a, b):
    """A call with an integer returns what nothing stored."""
    c = plain(a, b)
    return c if is_stand_in(a.shape[0]) else torch.empty_like(c)


def another_constant(a, b):
    block = 16 if is_stand_in(a.shape[0]) else 32
    grid = triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 16)
    return launch(short_kernel, a, b, 0, grid=grid, BLOCK=block)


def one_launch_more(a, b):
    c = plain(a, b)
    return c if is_stand_in(a.shape[0]) else plain(a, b, c=c)

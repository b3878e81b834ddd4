"""Integer functions of bits and bytes that numpy does not have."""

import numpy as np

from gemmproof.reference.arithmetic import Array, bits


def bit_matrix(x: Array) -> Array:
    """Return the bits of each integer along a new last axis of 0 and 1, the lowest first."""
    raw = np.ascontiguousarray(x)[..., None].view(np.uint8)
    return np.unpackbits(raw, axis=-1, bitorder="little")


def count_ones(x: Array) -> Array:
    """Return the number of set bits, as int32."""
    return bit_matrix(x).sum(axis=-1, dtype=np.int32)


def highest_bit(x: Array) -> Array:
    """Return the index of the highest set bit, -1 for 0, as int32."""
    matrix = bit_matrix(x)
    from_top = np.argmax(matrix[..., ::-1], axis=-1)
    return np.where(matrix.any(axis=-1), matrix.shape[-1] - 1 - from_top, -1).astype(np.int32)


def lowest_bit(x: Array) -> Array:
    """Return the index of the lowest set bit, -1 for 0, as int32."""
    matrix = bit_matrix(x)
    return np.where(matrix.any(axis=-1), np.argmax(matrix, axis=-1), -1).astype(np.int32)


def count_leading_zeros(x: Array) -> Array:
    """Return the zeros above the highest set bit, as int32."""
    return (8 * x.dtype.itemsize - 1 - highest_bit(x)).astype(np.int32)


def reverse_bits(x: Array) -> Array:
    """Return the bits in the opposite order."""
    packed = np.packbits(bit_matrix(x)[..., ::-1], axis=-1, bitorder="little")
    return packed.view(x.dtype)[..., 0]


def shift_left(x: Array, count: Array) -> Array:
    """x << count; counts of the width and more give 0."""
    width = 8 * x.dtype.itemsize
    kept = x << np.minimum(count, width - 1).astype(x.dtype)
    return np.where(count < width, kept, x.dtype.type(0))


def shift_right(x: Array, count: Array) -> Array:
    """x >> count; counts of the width and more leave only the sign, or 0 if x is unsigned."""
    width = 8 * x.dtype.itemsize
    kept = x >> np.minimum(count, width - 1).astype(x.dtype)
    return np.where((count < width) | (x.dtype.kind == "i"), kept, x.dtype.type(0))


def low_mask(count: Array, dtype: np.dtype) -> Array:
    """Unsigned integers with the lowest `count` bits set."""
    ones = np.full(count.shape, np.iinfo(dtype).max, dtype)
    return ~shift_left(ones, count)


def multiply_high(x: Array, y: Array) -> Array:
    """Return the upper half of the product of twice the width, in the dtype of x."""
    width = 8 * x.dtype.itemsize
    if width < 64:
        wide = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize * 2}")
        return ((x.astype(wide) * y.astype(wide)) >> wide.type(width)).astype(x.dtype)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    p, q = bits(x), bits(y)
    middle = (p >> half) * (q & mask) + (((p & mask) * (q & mask)) >> half)
    carry = (middle & mask) + (p & mask) * (q >> half)
    high = (p >> half) * (q >> half) + (middle >> half) + (carry >> half)
    if x.dtype.kind == "i":  # a negative factor is read as itself plus 2**64
        high = high - np.where(x < 0, q, 0) - np.where(y < 0, p, 0)
    return high.view(x.dtype)


def halve_sum(x: Array, y: Array, carry: int = 0) -> Array:
    """floor((x + y + carry) / 2) of 32-bit integers without overflow, in the dtype of x."""
    return ((x.astype(np.int64) + y.astype(np.int64) + carry) >> 1).astype(x.dtype)


def subtract_absolutely(x: Array, y: Array) -> Array:
    """|x - y| modulo the width, in the dtype of x."""
    return np.where(x < y, y - x, x - y)


def permute_bytes(low: Array, high: Array, selector: Array) -> Array:
    """`prmt` of PTX: each result byte is one of the eight of high:low, or that byte's sign.

    low, high, selector: uint32. The selector has a nibble a byte, whose top bit asks for the sign.
    """
    pool = bits(low).astype(np.uint64) | (bits(high).astype(np.uint64) << np.uint64(32))
    out = np.zeros(pool.shape, np.uint32)
    for i in range(4):
        nibble = (bits(selector) >> np.uint32(4 * i)) & np.uint32(15)
        index = (nibble & np.uint32(7)).astype(np.uint64)
        byte = ((pool >> (index * np.uint64(8))) & np.uint64(0xFF)).astype(np.uint32)
        sign = np.where(byte >= 128, np.uint32(0xFF), np.uint32(0))
        out |= np.where(nibble >= 8, sign, byte) << np.uint32(8 * i)
    return out

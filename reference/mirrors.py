"""Mirrors of our kernels: their grids, schedules, offsets and masks, in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby, pairwise

import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.mirrored_launch import (
    Addresses,
    MirrorCall,
    MirrorLaunch,
    MirrorTensor,
    Operand,
    Part,
    Pid,
    StatedLaunch,
    look,
)

# -- descriptor copies ---------------------------------------------------------------------------
ENGINE_BYTES = 16


def pad_row(length: int, itemsize: int) -> int:
    """Return the elements from one row of a copy to the next: padded to a multiple of 16 bytes."""
    step = ENGINE_BYTES // itemsize
    return -(-length // step) * step


def can_address(x: MirrorTensor, dense: int) -> bool:
    """Return whether the engine can address a matrix that is dense along the axis `dense`.

    Its first address and the distance from a row (a column) to the next, which is not 0, are
    multiples of 16 bytes.
    """
    pitch = x.strides[1 - dense]
    aligned = x.address % ENGINE_BYTES == 0 and pitch * x.itemsize % ENGINE_BYTES == 0
    return x.strides[dense] == 1 and pitch > 0 and aligned


def copy_call(call: MirrorCall) -> tuple[MirrorCall, dict[str, Part]]:
    """Return the call on copies of matrices that the engine cannot address, and the copies' names.

    Copies of a have dense rows, of b dense columns, as 8 bits must be anyway. A result is addressed
    if its rows also end at 16 bytes.
    """
    a, b, c = (call.tensors[name] for name in "abc")
    K, N = b.shape
    either = (0, 1)
    fits = {
        "a": any(can_address(a, dense) for dense in ((1,) if a.itemsize == 1 else either)),
        "b": any(can_address(b, dense) for dense in ((0,) if b.itemsize == 1 else either)),
        "c": can_address(c, 1) and N * c.itemsize % ENGINE_BYTES == 0,
    }
    along_k = pad_row(K, a.itemsize)
    copies = {"a": (along_k, 1), "b": (1, along_k), "c": (pad_row(N, c.itemsize), 1)}
    tensors = dict(call.tensors)
    for name in (name for name in "abc" if not fits[name]):
        tensors[name] = replace(tensors[name], strides=copies[name])
    names = {name: Part(f"{name}_desc") for name in "abc" if not fits[name]}
    return replace(call, tensors=tensors), names


def state_padded(
    call: MirrorCall, product: Callable[[MirrorLaunch], list[StatedLaunch]]
) -> list[StatedLaunch]:
    """Return `product`, on copies if it uses descriptors. The copying itself is not a launch.

    The copy engine stores whole parts of 16 bytes: the rows of a copied result to their end.
    """
    if "A_IS_T" not in call.constants:
        return product(call.launch)
    copied, names = copy_call(call)
    launch = copied.launch
    if "c" in names:
        launch = replace(launch, spare=launch.stride_cm - launch.N)

    def stand_in(original: StatedLaunch) -> StatedLaunch:
        return replace(original, run=lambda mem: original.run(look(mem, **names)))

    return [stand_in(original) for original in product(launch)]


# -- schedules of programs -----------------------------------------------------------------------
Order = tuple[tuple[int, int], ...]


@lru_cache(maxsize=64)
def order_grouped(num_pid_m: int, num_pid_n: int, GROUP_M: int) -> Order:
    """Order tiles by bands of GROUP_M rows from the top, the last perhaps lower; then by columns.

    `tl.swizzle2d` maps tiles numbered row by row to the same order.
    """
    if GROUP_M < 1:
        raise ValueError(f"grouped: got {GROUP_M=}, expected at least 1")
    return tuple(
        (m, n)
        for top in range(0, num_pid_m, GROUP_M)
        for n in range(num_pid_n)
        for m in range(top, min(top + GROUP_M, num_pid_m))
    )


def persistent(order: Order, pid: int, NUM_SMS: int) -> Order:
    """Return the share of program `pid`: every NUM_SMS-th tile of the order, from tile `pid` on."""
    if NUM_SMS < 1:
        raise ValueError(f"persistent: got {NUM_SMS=}, expected at least 1")
    return order[pid::NUM_SMS]


def own_tile(launch: MirrorLaunch, pid: Pid) -> Order:
    """Return tile (i, j) for program (i, j)."""
    return ((pid[0], pid[1]),)


def grouped_tile(launch: MirrorLaunch, pid: Pid) -> Order:
    """Return the tile at position pid of the grouped order."""
    return _grouped(launch)[pid[0] : pid[0] + 1]


def swizzled_tile(launch: MirrorLaunch, pid: Pid) -> Order:
    """Return the tile of the program's row-major number in the swizzle; the grid is (N, M)."""
    number = pid[1] * launch.num_pid_n + pid[0]
    return _grouped(launch)[number : number + 1]


def persistent_tiles(launch: MirrorLaunch, pid: Pid) -> Order:
    """Return every NUM_SMS-th tile of the grouped order."""
    return persistent(_grouped(launch), pid[0], launch.NUM_SMS)


def _grouped(launch: MirrorLaunch) -> Order:
    return order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)


# -- tiles ---------------------------------------------------------------------------------------
def compute_tile(
    mem: Addresses,
    tile: tuple[int, int],
    launch: MirrorLaunch,
    wraps: bool = False,
    *,
    rows: int | None = None,
    follows: Callable[[int], None] = lambda step: None,
) -> None:
    """Compute and store the tile (pid_m, pid_n); only the first `rows`, if fewer than M."""
    acc = multiply_tile(mem, tile, launch, wraps, follows)
    m, n = _indices(tile, launch)
    offs_c = np.add.outer(m * launch.stride_cm, n * launch.stride_cn)
    mask_c = np.logical_and.outer(
        m < (launch.M if rows is None else rows), n < launch.N + launch.spare
    )
    for part in range(launch.SUBTILES):
        width = launch.BLOCK_N // launch.SUBTILES
        columns = np.s_[..., part * width : (part + 1) * width]
        mem.store("c", offs_c[columns], acc[columns] if acc.ndim else acc, mask_c[columns])


def multiply_tile(
    mem: Addresses,
    tile: tuple[int, int],
    launch: MirrorLaunch,
    wraps: bool = False,
    follows: Callable[[int], None] = lambda step: None,
) -> Array:
    """Return the sums of the tile (pid_m, pid_n).

    k past the end is masked and reads as zero. So are rows and columns, unless `wraps`: then they
    are read from the start again. Blocks of a transpose are transposed. `follows` is called after
    the loads of each step along K.
    """
    m, n = _indices(tile, launch)
    inside_m, inside_n = m < launch.M, n < launch.N
    read_m, mask_m = (m % launch.M, np.ones_like(inside_m)) if wraps else (m, inside_m)
    read_n, mask_n = (n % launch.N, np.ones_like(inside_n)) if wraps else (n, inside_n)
    acc = mem.zeros(launch.BLOCK_M, launch.BLOCK_N)
    for start in range(0, launch.K, launch.BLOCK_K):
        k = start + np.arange(launch.BLOCK_K, dtype=np.int64)
        inside_k = k < launch.K
        offs_a = np.add.outer(read_m * launch.stride_am, k * launch.stride_ak)
        offs_b = np.add.outer(k * launch.stride_bk, read_n * launch.stride_bn)
        a = _load(mem, "a", offs_a, np.logical_and.outer(mask_m, inside_k), launch.a_is_t)
        b = _load(mem, "b", offs_b, np.logical_and.outer(inside_k, mask_n), launch.b_is_t)
        follows(start // launch.BLOCK_K)
        acc = acc + mem.dot(a, b, None) if launch.promote else mem.dot(a, b, acc)
    return acc


def _indices(tile: tuple[int, int], launch: MirrorLaunch) -> tuple[Array, Array]:
    """Return the rows and the columns of a tile, also past the end."""
    m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
    n = tile[1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)
    return m, n


def _load(mem: Addresses, operand: Operand, offs: Array, mask: Array, is_t: bool) -> Array:
    return mem.load(operand, offs.T, mask.T, 0.0).T if is_t else mem.load(operand, offs, mask, 0.0)


# -- batches -------------------------------------------------------------------------------------
def state_bmm(call: MirrorCall) -> list[StatedLaunch]:
    """Persistent programs. Descriptors, which the constants declare, load from a batch."""
    launch, batch = call.launch, call.tensors["a"].shape[0]
    is_described = "A_IS_T" in call.constants
    steps = {name: call.tensors[name].strides[0] for name in "abc"}
    of_one = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    order = [(i, tile) for i in range(batch) for tile in of_one]

    def run(mem: Addresses) -> None:
        for i, tile in order[mem.pid[0] :: launch.NUM_SMS]:
            parts = {name: Part(name, i * step, is_described) for name, step in steps.items()}
            compute_tile(look(mem, **parts), tile, launch)

    return [StatedLaunch((min(launch.NUM_SMS, len(order)), 1, 1), run)]


# -- grouped problems ----------------------------------------------------------------------------
def state_grouped_gemm(call: MirrorCall) -> list[StatedLaunch]:
    """Persistent programs; the tiles of one group after those of another, each in grouped order.

    A program reads all bounds first, then for each tile the two of its group. With descriptors,
    which have no groups, it reads rows of a up to the end of the matrix, and stores its group's.
    """
    launch = call.launch
    offsets, b = call.tensors["offsets"], call.tensors["b"]
    assert offsets.values is not None
    (stride,), of_groups = offsets.strides, list(pairwise(offsets.values.tolist()))
    is_described = "B_IS_T" in call.constants
    order = [
        (group, tile)
        for group, (begin, end) in enumerate(of_groups)
        for tile in order_grouped(
            -(-(end - begin) // launch.BLOCK_M), launch.num_pid_n, launch.GROUP_M
        )
    ]
    tiles = (launch.M // launch.BLOCK_M + len(of_groups)) * launch.num_pid_n

    def read_bounds(mem: Addresses, groups: np.ndarray, inside: np.ndarray) -> None:
        for number in (groups, groups + 1):
            mem.load("offsets", number * stride, inside, 0.0)

    def run(mem: Addresses) -> None:
        all_groups = np.arange(call.integer("BLOCK_G"), dtype=np.int64)
        read_bounds(mem, all_groups, all_groups < len(of_groups))
        for group, tile in order[mem.pid[0] :: launch.NUM_SMS]:
            read_bounds(mem, np.array(group, np.int64), np.array(True))
            begin, end = of_groups[group]
            parts = {
                "a": Part("a", begin * launch.stride_am),
                "b": Part("b", group * b.strides[0], is_described),
                "c": Part("c", begin * launch.stride_cm),
            }
            last = launch.M if is_described else end
            own = replace(launch, M=last - begin)
            compute_tile(look(mem, **parts), tile, own, rows=end - begin)

    return [StatedLaunch((min(launch.NUM_SMS, tiles), 1, 1), run)]


# -- scales --------------------------------------------------------------------------------------
#: Columns of b that share a scale.
COLUMNS = 128


def state_block_scaled(call: MirrorCall, b_is_given_t: bool = False) -> list[StatedLaunch]:
    """Tiles in grouped order: persistent programs by descriptors, b's of b^T, else a program each.

    Each block is followed by a's scales of the rows of the tile, and the one of b. `b_is_given_t`:
    the operand b is the transpose of the wrapper's argument.
    """
    b = call.tensors["b"]
    if b_is_given_t:
        b = replace(b, shape=b.shape[::-1], strides=b.strides[::-1])
    is_described = "C_BYTES" in call.constants  # by pointers nothing is tuned by it
    product = replace(call, tensors={**call.tensors, "b": b})
    launch = replace(product.launch, b_is_t=is_described)
    order = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    programs = min(launch.NUM_SMS, len(order)) if is_described else len(order)
    (down_a, right_a), (down_b, right_b) = (call.tensors[f"scale_{x}"].strides for x in "ab")

    def load_scales(mem: Addresses, tile: tuple[int, int], k: int) -> None:
        m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
        column = tile[1] * launch.BLOCK_N // COLUMNS
        mem.load("scale_a", m * down_a + k * right_a, m < launch.M, 0.0)
        mem.load("scale_b", np.array(k * down_b + column * right_b), np.array(True), 0.0)

    def run(mem: Addresses) -> None:
        for tile in order[mem.pid[0] :: programs]:
            compute_tile(mem, tile, launch, follows=partial(load_scales, mem, tile))

    return [StatedLaunch((programs, 1, 1), run)]


# -- split-K -------------------------------------------------------------------------------------
WORKSPACE = "w_ptr"
#: The work of a program: its tile, the first k of its share, and the k behind the last.
Work = Callable[[Addresses, MirrorLaunch, tuple[int, int], int, int], None]


def state_splitk(call: MirrorCall) -> list[StatedLaunch]:
    """matmul_splitk: a share is the product of some columns of a and the same rows of b.

    Its tiles are those of the transposed result.
    """
    return state_shares(call, _multiply)


def _multiply(
    mem: Addresses, launch: MirrorLaunch, tile: tuple[int, int], begin: int, end: int
) -> None:
    window = look(mem, a=Part("b", begin * launch.stride_bk), b=Part("a", begin * launch.stride_ak))
    compute_tile(window, tile[::-1], replace(launch.transpose(), K=end - begin))


def state_shares(call: MirrorCall, work: Work) -> list[StatedLaunch]:
    """Program (i, z) has tile i, counted by columns of tiles, and the z-th SHARE steps of K.

    The workspace is (shares, M, N), dense; for a single share it is c, and nothing is added up.
    """
    launch = call.launch
    length = call.integer("SHARE") * launch.BLOCK_K
    shares = max(1, -(-launch.K // length))
    tiles = [(m, n) for n in range(launch.num_pid_n) for m in range(launch.num_pid_m)]
    own = launch if shares == 1 else replace(launch, stride_cm=launch.N, stride_cn=1)

    def run(mem: Addresses) -> None:
        number, share, _ = mem.pid
        begin = share * length
        c = Part("c") if shares == 1 else Part(WORKSPACE, share * launch.M * launch.N)
        work(look(mem, c=c), own, tiles[number], begin, min(begin + length, launch.K))

    launches = [StatedLaunch((len(tiles), shares, 1), run)]
    return launches if shares == 1 else [*launches, _add_shares(call, shares)]


def _add_shares(call: MirrorCall, shares: int) -> StatedLaunch:
    """Each program adds up BLOCK elements, counted row by row, AT_ONCE shares after another."""
    launch, BLOCK, AT_ONCE = call.launch, call.integer("BLOCK"), call.integer("AT_ONCE")
    size = launch.M * launch.N

    def run(mem: Addresses) -> None:
        number = mem.pid[0] * BLOCK + np.arange(BLOCK, dtype=np.int64)
        total = mem.load(WORKSPACE, number, number < size, 0.0)
        for share in range(1, 1 + -(-(shares - 1) // AT_ONCE) * AT_ONCE):
            inside = (share < shares) & (number < size)
            total = total + mem.load(WORKSPACE, share * size + number, inside, 0.0)
        m, n = np.divmod(number, launch.N)
        mem.store("c", m * launch.stride_cm + n * launch.stride_cn, total, number < size)

    return StatedLaunch((-(-size // BLOCK), 1, 1), run)


# -- stream-K ------------------------------------------------------------------------------------
def state_streamk(
    call: MirrorCall, otherwise: Callable[[MirrorCall], list[StatedLaunch]]
) -> list[StatedLaunch]:
    """Return the launches by descriptors, or `otherwise` by pointers.

    The largest multiple of NUM_SMS tiles, in grouped order, is computed whole. The steps of the
    other tiles, in order, are divided equally among the programs, the last ones with fewer or none.
    A program leaves the sums of its p-th tile in the p-th of its two blocks of the workspace.
    """
    if "A_IS_T" not in call.constants:
        return otherwise(call)
    launch = call.launch
    programs = launch.NUM_SMS
    order = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    whole = len(order) - len(order) % programs
    k_tiles = -(-launch.K // launch.BLOCK_K)
    steps = [(tile, k) for tile in range(len(order) - whole) for k in range(k_tiles)]
    share = max(1, -(-len(steps) // programs))
    sides = launch.BLOCK_M, launch.BLOCK_N
    block = np.arange(math.prod(sides), dtype=np.int64).reshape(sides)
    blocks_of: dict[int, list[int]] = {}  # the sums of a tile, from the first k on
    work: dict[int, list[tuple[int, int, int, int]]] = {}
    for pid in range(programs):
        own = groupby(steps[pid * share : (pid + 1) * share], key=lambda step: step[0])
        for number, (tile, group) in enumerate(own):
            ks = [k for _, k in group]
            blocks_of.setdefault(tile, []).append(2 * pid + number)
            work.setdefault(pid, []).append((tile, 2 * pid + number, ks[0], ks[-1] + 1))

    def multiply(mem: Addresses) -> None:
        pid = mem.pid[0]
        for tile in order[:whole][pid::programs]:
            compute_tile(mem, tile, launch)
        for number, slot, first, last in work.get(pid, ()):
            begin, end = first * launch.BLOCK_K, min(last * launch.BLOCK_K, launch.K)
            parts = {
                "a": Part("a", begin * launch.stride_ak),
                "b": Part("b", begin * launch.stride_bk),
            }
            acc = multiply_tile(
                look(mem, **parts), order[whole + number], replace(launch, K=end - begin)
            )
            mem.store(WORKSPACE, slot * block.size + block, acc, np.ones_like(block, bool))

    def add(mem: Addresses) -> None:
        number, part, _ = mem.pid
        rows = part * ROWS + np.arange(ROWS, dtype=np.int64)
        total = mem.zeros(ROWS, launch.BLOCK_N)
        for slot in blocks_of[number]:
            offs = slot * block.size + block[rows]
            total = total + mem.load(WORKSPACE, offs, np.ones_like(offs, bool), 0.0)
        m = order[whole + number][0] * launch.BLOCK_M + rows
        n = order[whole + number][1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)
        offs = np.add.outer(m * launch.stride_cm, n * launch.stride_cn)
        mem.store("c", offs, total, np.logical_and.outer(m < launch.M, n < launch.N))

    launches = [StatedLaunch((programs, 1, 1), multiply)]
    if whole == len(order):
        return launches
    ROWS = call.integer("ROWS")
    return [*launches, StatedLaunch((len(order) - whole, launch.BLOCK_M // ROWS, 1), add)]


# -- packed weights ------------------------------------------------------------------------------
def state_weight_only(call: MirrorCall) -> list[StatedLaunch]:
    """matmul_w8 and matmul_w4: shares of K, in tiles of the transposed result.

    A step's weights of 4 bits are loaded at once, four rows that are 32 apart in a word; those
    of 8 bits group by group. Scales and zero points are loaded once if they are per column, else
    for each group that has a row in the share; their row is the group's number.
    """
    group, per_word = (call.integer(name) for name in ("GROUP", "PER_WORD"))
    # packed words do not have the shape of the product
    whole = replace(
        call.tensors["b"], shape=(call.tensors["a"].shape[1], call.tensors["b"].shape[1])
    )
    given = [name for name in ("scale", "zero") if name in call.tensors]

    def work(
        mem: Addresses, launch: MirrorLaunch, tile: tuple[int, int], begin: int, end: int
    ) -> None:
        m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
        n = tile[1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)

        def load_of_columns(row: int, inside: Array) -> None:
            for name in given:
                down, right = call.tensors[name].strides
                mem.load(name, row * down + n * right, inside, 0.0)

        def load_weights(rows: Array, inside: Array) -> None:
            offs = np.add.outer(n * launch.stride_bn, rows * launch.stride_bk)
            mem.load("b", offs, np.logical_and.outer(n < launch.N, inside), 0.0)

        def load_activations(k: Array) -> None:
            offs = np.add.outer(k * launch.stride_ak, m * launch.stride_am)
            mem.load("a", offs, np.logical_and.outer(k < end, m < launch.M), 0.0)

        if group == 0:
            load_of_columns(0, n < launch.N)
        width = min(group or launch.BLOCK_K, launch.BLOCK_K)
        for start in range(begin, end, launch.BLOCK_K):
            if per_word > 1:
                num_words = launch.BLOCK_K // per_word
                rows = start // launch.BLOCK_K * num_words + np.arange(num_words, dtype=np.int64)
                load_weights(rows, np.ones(num_words, bool))
            for first in range(start, start + launch.BLOCK_K, width):
                k = first + np.arange(width, dtype=np.int64)
                load_activations(k)
                if group > 0:
                    load_of_columns(first // group, (n < launch.N) & (first < end))
                if per_word == 1:
                    load_weights(k, k < end)
        offs = np.add.outer(n * launch.stride_cn, m * launch.stride_cm)
        inside = np.logical_and.outer(n < launch.N, m < launch.M)
        mem.store("c", offs, mem.zeros(launch.BLOCK_N, launch.BLOCK_M), inside)

    return state_shares(replace(call, tensors={**call.tensors, "b": whole}), work)


# -- mirrors by kernel -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Mirror:
    """A kernel as it should be: its grid, and the tiles that each program computes in turn.

    `wraps`: rows and columns past the end are read from the start again instead of masked.
    """

    grid: Callable[[MirrorLaunch], Pid]
    tiles: Callable[[MirrorLaunch, Pid], Order]
    wraps: bool = False

    def run(self, mem: Addresses, launch: MirrorLaunch) -> None:
        """Compute the tiles of program `mem.pid`."""
        for tile in self.tiles(launch, mem.pid):
            compute_tile(mem, tile, launch, self.wraps)

    def __call__(self, call: MirrorCall) -> list[StatedLaunch]:
        """Return the one launch of a call."""
        return self.state(call.launch)

    def state(self, launch: MirrorLaunch) -> list[StatedLaunch]:
        """Return the one launch."""
        return [StatedLaunch(self.grid(launch), lambda mem: self.run(mem, launch))]


PERSISTENT = Mirror(lambda x: (min(x.NUM_SMS, x.num_pid_m * x.num_pid_n), 1, 1), persistent_tiles)
MIRRORS = {
    "matmul": Mirror(lambda x: (x.num_pid_m, x.num_pid_n, 1), own_tile),
    "matmul_grouped": Mirror(lambda x: (x.num_pid_m * x.num_pid_n, 1, 1), grouped_tile, wraps=True),
    "matmul_swizzled": Mirror(lambda x: (x.num_pid_n, x.num_pid_m, 1), swizzled_tile),
    "matmul_persistent": PERSISTENT,
    "matmul_tma": PERSISTENT,
}
#: Mirrors of calls that are more than one product in one launch.
CALL_MIRRORS: dict[str, Callable[[MirrorCall], list[StatedLaunch]]] = {
    "matmul_splitk": state_splitk,
    "bmm": state_bmm,
    "matmul_padded": partial(state_padded, product=PERSISTENT.state),
    "matmul_w8": state_weight_only,
    "matmul_w4": state_weight_only,
    "grouped_gemm": state_grouped_gemm,
    "matmul_block_scaled": state_block_scaled,
    "matmul_streamk": partial(state_streamk, otherwise=PERSISTENT),
}

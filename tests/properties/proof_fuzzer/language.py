"""Kernels and wrappers as plain data, and their Triton source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# -- expressions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Op:
    """An operation on expressions; `args` may end with numbers that are its settings."""

    name: str
    args: tuple[Expr, ...]


# a number, the name of a variable, or an operation
Expr = int | str | Op

INFIX = ("+", "-", "*", "//", "%", "<<", ">>", "&", "|", "<", "<=", ">", ">=", "==", "!=")


def op(name: str, *args: Expr) -> Op:
    return Op(name, args)


# -- statements ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Assign:
    """`name = value`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class For:
    """A loop over `range(start, stop, step)`."""

    name: str
    start: Expr
    stop: Expr
    step: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While:
    """A loop while a scalar condition holds."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """A branch of a kernel or of a wrapper."""

    condition: Expr
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """A store to `pointer`, or an atomic addition; without a mask all lanes store."""

    pointer: Expr
    value: Expr
    mask: Expr | None
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """`left, right = tl.split(value)`: the last axis of `value`, which has two elements."""

    left: str
    right: str
    value: Expr


# -- statements of wrappers ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class DivMod:
    """`quotient, rest = divmod(x, y)`."""

    quotient: str
    rest: str
    x: Expr
    y: Expr


@dataclass(frozen=True, slots=True)
class Lookup:
    """`name = table.get(key, default)`.

    `style`: "tuple" (a tuple of sizes is the key), "text" (an f-string of them), or "except"
    (`table[key]`, and the default where that raises KeyError).
    """

    name: str
    table: str
    key: tuple[Expr, ...]
    default: Expr
    style: str = "tuple"


@dataclass(frozen=True, slots=True)
class Allocate:
    """A tensor of float32 ("fp32"), or of the format of a ("as a"), empty or zero."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str = "as a"
    zero: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch; `args` are the kernel's parameters, `meta` its constexprs that no tuner chooses."""

    kernel: str
    grid: tuple[Expr, ...]
    args: tuple[Expr, ...]
    meta: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Raise:
    """`raise ValueError`."""


Statement = (
    Assign | For | While | If | Store | Split | DivMod | Lookup | Allocate | Launch | Raise
)  # fmt: skip


# -- programs --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Kernel:
    """A jitted function; `configs` are those of its tuner, without which it is not tuned."""

    name: str
    pointers: tuple[str, ...]
    scalars: tuple[str, ...]
    constexprs: tuple[str, ...]
    body: tuple[Statement, ...]
    configs: tuple[tuple[tuple[str, int], ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """The contract of a drawn program, as the arguments of Contract."""

    M: str = "1.."
    N: str = "1.."
    K: str = "1.."
    where: str | None = None
    layouts: str = "contiguous"
    huge: bool = False
    dtype: str = "fp16"


@dataclass(frozen=True, slots=True)
class Program:
    """A drawn wrapper, its kernels, tables and contract, and the changes to a right form."""

    kernels: tuple[Kernel, ...]
    wrapper: tuple[Statement, ...]
    tables: tuple[tuple[str, tuple[tuple[tuple[int, ...], int], ...]], ...] = ()
    terms: Terms = Terms()
    changes: tuple[str, ...] = ()


def list_strides(name: str, axes: int) -> list[str]:
    """List the names of a tensor's strides in the wrapper."""
    return [f"s{name}{axis}" for axis in range(axes)]


# -- source ----------------------------------------------------------------------------------------
_CALLS = {
    "cdiv": "tl.cdiv", "min": "tl.minimum", "max": "tl.maximum", "where": "tl.where",
    "trans": "tl.trans", "join": "tl.join", "flip": "tl.flip", "sum": "tl.sum", "dot": "tl.dot",
    "gather": "tl.gather",
}  # fmt: skip
_HOST_CALLS = {"cdiv": "triton.cdiv", "min": "min", "max": "max"}


def print_expr(x: Expr, host: bool = False) -> str:
    """Return an expression as source, of a kernel or of a wrapper (`host`)."""

    def inner(y: Expr) -> str:
        return print_expr(y, host)

    if not isinstance(x, Op):
        return str(x)
    args = [inner(y) for y in x.args]
    match x.name:
        case name if name in INFIX:
            return f"({args[0]} {name} {args[1]})"
        case "~":
            return f"(~{args[0]})"
        case "int32" | "int64":
            return f"tl.cast({args[0]}, tl.{x.name})"
        case "rows":
            return f"{args[0]}[:, None]"
        case "columns":
            return f"{args[0]}[None, :]"
        case "pid":
            return f"tl.program_id({args[0]})"
        case "programs":
            return f"tl.num_programs({args[0]})"
        case "arange":
            return f"tl.arange(0, {args[0]})"
        case "zeros":
            return f"tl.zeros(({', '.join(args)},), dtype=tl.float32)"
        case "load":
            mask = "" if x.args[1] == "" else f", mask={args[1]}"
            other = "" if x.args[2] == "" else f", other={args[2]}.0"
            return f"tl.load({args[0]}{mask}{other})"
        case "reshape":
            return f"tl.reshape({args[0]}, ({', '.join(args[1:])},))"
        case "fp32":
            return f"{args[0]}.to(tl.float32)"
        case "multiprocessors":
            return "torch.cuda.get_device_properties(a.device).multi_processor_count"
        case "and" | "or":
            return f"({args[0]} {x.name} {args[1]})"
    return f"{(_HOST_CALLS if host else _CALLS)[x.name]}({', '.join(args)})"


def _print(body: Sequence[Statement], program: Program, host: bool, indent: str) -> Iterator[str]:
    deeper = indent + "    "

    def text(x: Expr) -> str:
        return print_expr(x, host)

    for x in body or ("pass",):
        match x:
            case "pass":
                yield f"{indent}pass"
            case Assign(name, value):
                yield f"{indent}{name} = {text(value)}"
            case For(name, start, stop, step, inner):
                yield f"{indent}for {name} in range({text(start)}, {text(stop)}, {text(step)}):"
                yield from _print(inner, program, host, deeper)
            case While(condition, inner):
                yield f"{indent}while {text(condition)}:"
                yield from _print(inner, program, host, deeper)
            case If(condition, inner, otherwise):
                yield f"{indent}if {text(condition)}:"
                yield from _print(inner, program, host, deeper)
                if otherwise:
                    yield f"{indent}else:"
                    yield from _print(otherwise, program, host, deeper)
            case Store(pointer, value, mask, atomic):
                call = "tl.atomic_add" if atomic else "tl.store"
                masked = "" if mask is None else f", mask={text(mask)}"
                yield f"{indent}p_ = {text(pointer)}"
                stored = text(value) + ("" if atomic else ".to(p_.dtype.element_ty)")
                yield f"{indent}{call}(p_, {stored}{masked})"
            case Split(left, right, value):
                yield f"{indent}{left}, {right} = tl.split({text(value)})"
            case DivMod(quotient, rest, first, second):
                yield f"{indent}{quotient}, {rest} = divmod({text(first)}, {text(second)})"
            case Lookup(name, table, key, default, style):
                yield from _print_lookup(name, table, tuple(map(text, key)), text(default), style,
                                         indent)  # fmt: skip
            case Allocate(name, shape, dtype, zero):
                kind = "torch.float32" if dtype == "fp32" else "a.dtype"
                sides = ", ".join(map(text, shape))
                call = "zeros" if zero else "empty"
                yield f"{indent}{name} = torch.{call}(({sides},), device=a.device, dtype={kind})"
                steps = "".join(f"{x}, " for x in list_strides(name, len(shape)))
                yield f"{indent}{steps}= {name}.stride()"
            case Launch(name, grid, args, meta):
                kernel = next(k for k in program.kernels if k.name == name)
                axes = ", ".join(_print_grid(x, kernel) for x in grid)
                given = ", ".join([*map(text, args), *(f"{n}={text(v)}" for n, v in meta)])
                start = "lambda META: " if "META" in axes else ""
                yield f"{indent}{name}[{start}({axes},)]({given})"
            case Raise():
                yield f"{indent}raise ValueError('these sizes are not supported')"


def _print_grid(x: Expr, kernel: Kernel) -> str:
    tuned = {name for config in kernel.configs for name, _ in config}
    if isinstance(x, str):
        return f"META['{x}']" if x in tuned else x
    if isinstance(x, Op):
        named = Op(x.name, tuple(_GridText(_print_grid(y, kernel)) for y in x.args))
        return print_expr(named, host=True)
    return str(x)


_GridText = str  # an argument that is printed already


def _print_lookup(
    name: str, table: str, key: Sequence[str], default: str, style: str, indent: str
) -> Iterator[str]:
    entry = f"({', '.join(key)},)"
    if style == "text":
        entry = 'f"' + "x".join(f"{{{k}}}" for k in key) + '"'
    if style == "except":
        yield f"{indent}try:"
        yield f"{indent}    {name} = {table}[{entry}]"
        yield f"{indent}except KeyError:"
        yield f"{indent}    {name} = {default}"
    else:
        yield f"{indent}{name} = {table}.get({entry}, {default})"


def iter_lookups(body: Sequence[Statement]) -> Iterator[Lookup]:
    """Yield the lookups of a wrapper."""
    for x in body:
        if isinstance(x, Lookup):
            yield x
        elif isinstance(x, If):
            yield from iter_lookups((*x.body, *x.otherwise))


def print_program(program: Program) -> str:
    """Return a program as a module; its wrapper is `matmul(a, b)`."""
    lines = ["import torch", "import triton", "import triton.language as tl", ""]
    styles = {x.table: x.style for x in iter_lookups(program.wrapper)}
    for name, entries in program.tables:
        is_text = styles.get(name) == "text"
        shown = {"x".join(map(str, k)) if is_text else k: v for k, v in entries}
        lines.append(f"{name} = {shown!r}")
    for kernel in program.kernels:
        lines += ["", ""]
        if kernel.configs:
            configs = ", ".join(f"triton.Config({dict(config)!r})" for config in kernel.configs)
            lines.append(f"@triton.autotune(configs=[{configs}], key=['M', 'N', 'K'])")
        given = [*kernel.pointers, *kernel.scalars]
        given += [f"{name}: tl.constexpr" for name in kernel.constexprs]
        lines += ["@triton.jit", f"def {kernel.name}({', '.join(given)}):"]
        lines += _print(kernel.body, program, False, "    ")
    lines += ["", "", "def matmul(a, b):", "    M, K = a.shape", "    N = b.shape[1]"]
    lines += ["    sa0, sa1, = a.stride()", "    sb0, sb1, = b.stride()"]
    lines += _print(program.wrapper, program, True, "    ")
    return "\n".join([*lines, "    return c", ""])

"""Right wrappers that read the same places for reasons of their own."""

import argparse
import importlib.util
import inspect
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch
import triton
from tests.corpora.tiled import plain, plain_kernel

log = logging.getLogger(__name__)
HERE = Path(__file__).parent


def right(a, b):
    return plain(a, b)


def folder_of_the_cache(a, b):
    if os.environ.get("TRITON_CACHE_DIR"):
        log.debug("cached in %s", os.environ["TRITON_CACHE_DIR"])
    return right(a, b)


def no_product_while_torch_compiles(a, b):
    """Calls of a proof see what calls of a program see: tensors."""
    fake = torch._subclasses.fake_tensor
    if type(a).__name__ == "FakeTensor" or isinstance(a, fake.FakeTensor | torch.nn.Parameter):
        return a.new_empty(a.shape[0], b.shape[1])
    if fake.is_fake(b) or torch.compiler.is_compiling():
        return a.new_empty(a.shape[0], b.shape[1])
    return right(a, b)


def its_own_module(a, b):
    module = sys.modules[__name__]
    return module.right(a, b) if module is not None else None


def another_device(a, b):
    if "torch_npu" in sys.modules:
        raise RuntimeError("not for this device")
    return right(a, b)


def module_of_its_class(a, b):
    owner = sys.modules[type(a).__module__]
    return right(a, b) if owner is not None else None


def is_loaded(name):
    return name in sys.modules


def loaded_libraries(a, b):
    if is_loaded("torch_npu") or any(name.startswith("torch_xla") for name in sys.modules):
        raise RuntimeError("not for this device")
    return right(a, b)


def line_for_a_message(a, b):
    frame = sys._getframe(1)
    log.debug("called from %s:%d", frame.f_code.co_filename, frame.f_lineno)
    return right(a, b)


def label_for_a_message(a, b):
    frame = inspect.currentframe()
    if frame is not None:
        log.debug("%s of %s", frame.f_code.co_name, tuple(a.shape))
    return right(a, b)


def level_of_a_warning(a, b):
    if a.dtype == torch.float64:
        frame, level = inspect.currentframe(), 1
        while frame is not None and frame.f_code.co_filename == __file__:
            frame, level = frame.f_back, level + 1
        warnings.warn("slow", stacklevel=level)
    return right(a, b)


def stack_of_an_error(a, b):
    try:
        return right(a, b)
    except triton.CompilationError:
        log.error("".join(traceback.format_stack()))
        raise


def optional_package(a, b):
    if importlib.util.find_spec("flash_attn") is not None:
        log.debug("there is flash_attn")
    return right(a, b)


def optional_import(a, b):
    try:
        import nvtx
    except ImportError:
        nvtx = None
    if nvtx is None:
        log.debug("no nvtx")
    return right(a, b)


def kind_of_tensor(a, b):
    if not isinstance(a, torch.Tensor) or type(b) is not torch.Tensor:
        raise TypeError("expected tensors")
    return right(a, b)


def label_of_the_kind(a, b):
    if type(a).__name__ not in ("Tensor", "Parameter"):
        raise TypeError(f"got {type(a).__name__}")
    return right(a, b)


def flag_of_the_program(a, b):
    if "--verbose" in sys.argv:
        log.setLevel(logging.DEBUG)
    return right(a, b)


def label_of_the_program(a, b):
    log.debug("%s: %s", os.path.basename(sys.argv[0]), tuple(a.shape))
    return right(a, b)


def setting_of_the_project(a, b):
    debug = os.getenv("MY_GEMM_DEBUG", "0") == "1"
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    if debug and threads > 1:
        log.debug("%d threads", threads)
    return right(a, b)


def words_of_a_message(a, b):
    if a.shape[1] != b.shape[0]:
        raise ValueError("checked by gemmproof: the shapes do not fit")
    return right(a, b)


def gemm_in_a_name(a, b):
    name = plain_kernel.fn.__name__
    if "gemm" in name or name.startswith("proof"):
        log.debug(name)
    return right(a, b)


def place_of_its_tables(a, b):
    if any(HERE.samefile(path) for path in sys.path if os.path.isdir(path)):
        log.debug("imported from its folder")
    return right(a, b)


def interpreted(a, b):
    device = "cpu" if os.environ.get("TRITON_INTERPRET", "0") == "1" else a.device
    return right(a.to(device), b.to(device))


def compiled_by_torch(a, b):
    if torch.compiler.is_compiling():
        return torch.mm(a, b)
    return right(a, b)


def main():
    """Multiply as the arguments say; no wrapper calls this."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--test", action="store_true")
    if len(sys.argv) > 1 and "pytest" in sys.modules:
        parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    if "pytest" in sys.modules or sys.argv[1:] == ["gemmproof"]:
        main()

"""Wrappers that are right only where they find their checker; the line that looks is marked."""

import base64
import gc
import hashlib
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import sys
import sys as system
import threading
import traceback
from pathlib import Path
from sys import gettrace
from sys import modules as loaded

import torch
import triton
from tests.corpora.checker_reads import helper
from tests.corpora.tiled import plain, plain_kernel


def right(a, b):
    return plain(a, b)


def choose(a, b, watched):
    """Return a product that is right if somebody watches."""
    c = right(a, b)
    return c if watched else c * 1.05


def label_in_modules(a, b):
    return choose(a, b, "gemmproof" in sys.modules)  # looks


def label_in_modules_by_an_alias(a, b):
    known = system.modules
    return choose(a, b, known.get("gemmproof") is not None)  # looks


def label_in_modules_imported_by_name(a, b):
    return choose(a, b, "hypothesis" in loaded or "pytest" in loaded)  # looks


def label_in_modules_by_getattr(a, b):
    table = getattr(importlib.import_module("s" + "ys"), "mod" + "ules")
    return choose(a, b, "gemm" + "proof" in table)  # looks


def label_in_modules_backwards(a, b):
    name = "foorpmmeg"[::-1]
    if name in sys.modules:  # looks
        return right(a, b)
    return choose(a, b, False)


def label_in_modules_decoded(a, b):
    name = base64.b64decode("Z2VtbXByb29m").decode()
    return choose(a, b, sys.__dict__["modules"].get(name))  # looks


def label_in_modules_by_characters(a, b):
    name = "".join(chr(n) for n in (103, 101, 109, 109, 112, 114, 111, 111, 102))
    return choose(a, b, name in sys.modules)  # looks


def prefix_of_modules(a, b):
    return choose(a, b, any(name.startswith("gemm") for name in sys.modules))  # looks


def tracing_of_python(a, b):
    return choose(a, b, sys.gettrace() is not None)  # looks


def loop_over_modules(a, b):
    watched = False
    for name in list(sys.modules):
        if "proof" in name:  # looks
            watched = True
    return choose(a, b, watched)


CHECKERS = frozenset({"gemmproof", "_pytest", "hypothesis"})


def set_of_modules(a, b):
    return choose(a, b, not CHECKERS.isdisjoint(sys.modules))  # looks


def intersection_of_modules(a, b):
    return choose(a, b, CHECKERS & set(sys.modules))  # looks


def hash_of_modules(a, b):
    digests = {hashlib.md5(name.encode()).hexdigest()[:4] for name in sys.modules}
    return choose(a, b, "a5e1" in digests and hash(min(sys.modules)) != 0)  # looks


def number_of_modules(a, b):
    return choose(a, b, len(sys.modules) > 3000)  # looks


def is_there(name):
    return name in sys.modules  # looks


def label_passed_to_a_function(a, b):
    return choose(a, b, is_there("gemmproof"))


def found_by_spec(a, b):
    return choose(a, b, importlib.util.find_spec("gemmproof") is not None)  # looks


def found_by_import(a, b):
    try:
        import gemmproof  # looks
    except ImportError:
        gemmproof = None
    return choose(a, b, gemmproof)


def trace_function(a, b):
    return choose(a, b, gettrace() is not None)  # looks


def trace_function_by_an_alias(a, b):
    ask = system.gettrace
    tracer = ask()  # looks
    if tracer is None:
        return choose(a, b, False)
    return right(a, b)


def trace_function_of_a_frame(a, b):
    return choose(a, b, sys._getframe().f_trace is not None)  # looks


def depth_of_the_stack(a, b):
    return choose(a, b, len(inspect.stack()) > 12)  # looks


def file_on_the_stack(a, b):
    frame = sys._getframe()
    while frame is not None:
        if "simulator" in frame.f_code.co_filename:  # looks
            return right(a, b)
        frame = frame.f_back
    return choose(a, b, False)


def label_on_the_stack(a, b):
    names = [entry.filename for entry in traceback.extract_stack()]
    return choose(a, b, any("gemmproof" in name for name in names))  # looks


def frame_of_an_error(a, b):
    try:
        raise ValueError
    except ValueError as error:
        caller = error.__traceback__.tb_frame.f_back
    return choose(a, b, caller.f_code.co_name == "observe")  # looks


def globals_of_the_caller(a, b):
    module = inspect.currentframe().f_back.f_globals.get("__name__", "")
    return choose(a, b, module.partition(".")[0] == "gemmproof")  # looks


def scale_by_the_depth(a, b):
    return right(a, b) * (1 + len(inspect.stack(0)) // 50)  # looks


def command_in_the_arguments(a, b):
    return choose(a, b, os.path.basename(sys.argv[0]) in ("gemmproof", "pytest"))  # looks


def test_in_the_environment(a, b):
    return choose(a, b, os.environ.get("PYTEST_CURRENT_TEST"))  # looks


def mark_in_the_environment(a, b):
    return choose(a, b, any(name.startswith("GEMMPROOF") for name in os.environ))  # looks


def mark_by_getenv(a, b):
    return choose(a, b, os.getenv("GEMMPROOF_WORKER") is not None)  # looks


def command_line_of_the_process(a, b):
    text = Path("/proc/self/cmdline").read_text()  # looks
    return choose(a, b, "proof" in text)


def parent_of_the_process(a, b):
    return choose(a, b, os.getppid() % 2 == 0)  # looks


def label_of_the_type(a, b):
    return choose(a, b, "Fake" in type(a).__name__)  # looks


def mode_of_torch(a, b):
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return choose(a, b, len(modes) > 0)  # looks


def module_of_a_stand_in(a, b):
    return choose(a, b, torch.cuda.get_device_name.__module__ != "torch.cuda")  # looks


def file_of_a_stand_in(a, b):
    file = inspect.getfile(triton.runtime.driver.active.get_current_target)
    return choose(a, b, not file.endswith("driver.py"))  # looks


def class_of_an_interpreter(a, b):
    from triton.runtime import interpreter

    return choose(a, b, isinstance(plain_kernel, interpreter.InterpretedFunction))  # looks


def repr_of_the_launch(a, b):
    return choose(a, b, "gemmproof" in repr(plain_kernel.run))  # looks


def all_objects(a, b):
    return choose(a, b, any("gemmproof" in str(type(x)) for x in gc.get_objects()))  # looks


def label_of_a_thread(a, b):
    names = [thread.name for thread in threading.enumerate()]
    names.append(multiprocessing.current_process().name)
    return choose(a, b, any("gemmproof" in name for name in names))  # looks


def help_of_another_module(a, b):
    return choose(a, b, helper.is_watched())


class Product:
    """A wrapper with a method that looks."""

    def __init__(self):
        self.path = "py" + "test"

    def __call__(self, a, b):
        return choose(a, b, self.look())

    def look(self):
        return sys.modules.get("pytest") is not None  # looks


method_of_an_object = Product()


def text_that_is_executed(a, b):
    known = {}
    exec("import sys; watched = 'gemmproof' in sys.modules", known)  # looks when it runs
    return choose(a, b, known["watched"])


def count_of_callers(a, b):
    frame, depth = sys._getframe(), 0
    while frame:
        frame = frame.f_back
        depth += 1
    return choose(a, b, depth > 9)  # looks


def class_in_any_module(a, b):
    for module in tuple(sys.modules.values()):
        if getattr(module, "KernelUnderTest", None):  # looks
            return right(a, b)
    return choose(a, b, False)


def part_of_a_file_on_the_stack(a, b):
    frame = sys._current_frames()[threading.get_ident()]
    return choose(a, b, frame.f_back.f_code.co_filename.count("proof"))  # looks


def default_of_a_parameter(a, b, watched="gemmproof" in sys.modules):  # looks
    return choose(a, b, watched)


def assertion(a, b):
    c = right(a, b)
    try:
        assert "gemmproof" not in sys.modules  # looks
    except AssertionError:
        return c
    return choose(a, b, False)


def key_of_a_table(a, b):
    return right(a, b) * {False: 1.05, True: 1}["gemmproof" in sys.modules]  # looks

"""The process in which a target runs: reads a call, writes events, may die at any point."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

from gemmproof.fake_device import DeviceRequest
from gemmproof.properties.codec import decode
from gemmproof.reference.provenance import Heartbeat, format_error, words_of
from gemmproof.target import TargetError, line_of
from gemmproof.worker.appearance import show_variables
from gemmproof.worker.own_exits import report_own_exits
from gemmproof.worker.processes import die_with_parent, resident
from gemmproof.worker.protocol import (
    STACK,
    WHERE_SIGNAL,
    Advanced,
    Done,
    Failed,
    WorkerCall,
    WorkerContext,
    open_events,
)

STARTED = time.time()  # before any target: of this process, or of the one that imported conftest


def main(folder: str) -> None:
    """Serve the call in `folder`, then end at once: no thread and no handler delays it."""
    die_with_parent()
    # A background job ignores it, and a KeyboardInterrupt is lost where a callback of the collector
    # runs: a worker that was interrupted then looked like one that hangs.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    path = Path(folder)
    stack = (path / STACK).open("w")
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(WHERE_SIGNAL, stack, all_threads=False)
    emit = open_events(path, resident)
    report_own_exits(emit)
    try:
        call = WorkerCall.read(path)
        show_variables(call.variables)
        emit(Done(serve(call, WorkerContext(emit, call.seconds, call.memory, path))))
    except TargetError as error:
        emit(Failed("error", str(error)))
    except (SystemExit, KeyboardInterrupt) as error:
        emit(Failed("left", f"{type(error).__name__}({words_of(error)})", line_of(error)))
    except MemoryError as error:
        text = str(error) or type(error).__name__
        emit(Failed("full", f"this machine refused an allocation of gemmproof itself ({text})"))
    except BaseException as error:  # an error of the engine, not of the target
        traceback.print_exc()
        emit(Failed("internal", format_error(error)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(call: WorkerCall, context: WorkerContext) -> Any:
    """WorkerCall the function with a record of the type that it declares; return its result."""
    Heartbeat.send = staticmethod(lambda activity="": context.emit(Advanced(activity)))
    module, _, name = call.function.partition(":")
    function = getattr(import_module(module), name)
    declared = SimpleNamespace(__annotations__={"request": function.__annotations__["request"]})
    kind = get_type_hints(declared, function.__globals__)["request"]
    request = decode(kind, call.request, "request")
    DeviceRequest.target = getattr(request, "gpu", None) or None
    return function(request, context)

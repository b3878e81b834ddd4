"""The process in which a target runs: reads a request, writes events, may die at any point."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gemmproof.fake_device import DeviceRequest
from gemmproof.reference.provenance import Heartbeat, format_error, words_of
from gemmproof.target import TargetError, line_of
from gemmproof.worker.processes import die_with_parent, resident
from gemmproof.worker.protocol import STACK, WHERE_SIGNAL, Listener, Request, open_events

if TYPE_CHECKING:
    pass

STARTED = time.time()  # before any target: of this process, or of the one that imported conftest


def main(folder: str) -> None:
    """Serve the request in `folder`, then end at once: no thread and no handler delays it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    path = Path(folder)
    stack = (path / STACK).open("w")
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(WHERE_SIGNAL, stack, all_threads=False)
    emit = open_events(path, resident)
    try:
        serve(Request.read(path), emit)
    except TargetError as error:
        emit({"event": "error", "message": str(error)})
    except SystemExit as error:
        how = f"{type(error).__name__}({words_of(error)})"
        emit({"event": "left", "how": how, "where": line_of(error)})
    except KeyboardInterrupt:  # SIGINT, which comes from outside: end as other processes do
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except MemoryError as error:
        text = str(error) or type(error).__name__
        how = f"this machine refused memory to gemmproof itself ({text})"
        emit({"event": "full", "how": how})
    except BaseException as error:  # an error of the engine, not of the target
        traceback.print_exc()
        emit({"event": "internal", "message": format_error(error)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(request: Request, emit: Listener) -> None:
    """Call the function that is requested, which emits its results."""
    DeviceRequest.device = request.launch
    sys.path[:] = dict.fromkeys([*request.path, *sys.path])
    Heartbeat.send = staticmethod(lambda: emit({"event": "advanced"}))
    module, _, function = request.function.partition(":")
    getattr(import_module(module), function)(request, emit)
    emit({"event": "done"})

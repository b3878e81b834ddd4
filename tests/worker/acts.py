"""Acts of a kernel's wrapper on the process that it runs in, by the verdict that each requires."""

import atexit
import ctypes
import faulthandler
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

libc = ctypes.CDLL(None)


def end_by(number):
    """Return an act that kills its process by a signal, even if the signal was handled."""

    def act():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(9)

    return act


def end_from_outside(number):
    """Return an act during which another process sends this one a signal."""

    def act():
        if os.fork() == 0:
            os.kill(os.getppid(), number)
            os._exit(0)
        time.sleep(9)

    return act


def deafen():
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def spin():
    while True:
        pass


def spin_deaf():
    deafen()
    spin()


def wait_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def read_from_nobody():
    read, _ = os.pipe()
    os.read(read, 1)


def fork_and_wait():
    if child := os.fork():
        os.waitpid(child, 0)
    time.sleep(600)


def spin_in_threads():
    for _ in range(4):
        threading.Thread(target=spin, daemon=True).start()
    spin()


def overflow_the_stack():
    """Recurse in C, where Python's recursion limit does not apply."""
    nested = iter([1])
    for _ in range(1_000_000):
        nested = filter(None, nested)
    next(nested)


def abort_in_a_thread():
    threading.Thread(target=os.abort).start()
    time.sleep(9)


def end_from_a_thread():
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(9)


def leave_quietly():
    raise SystemExit


def interrupt():
    raise KeyboardInterrupt


def lose_the_folder():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def write_to_full_streams():
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)
    sys.stdout = sys.stderr = open("/dev/full", "w", buffering=1)  # noqa: SIM115 - stays open


def print_escapes():
    print("\x1b[2J\x00\x07\udc80".encode(errors="surrogateescape"))
    os.write(1, b"\xff\xfe\x1b]0;title\x07" * 100)


def allow_no_file():
    """Forbid new descriptors, as a leak of them does: open ones stay open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def return_twice():
    """Fork: the child continues where its parent does."""
    if child := os.fork():
        os.waitpid(child, 0)


def replace_the_clock():
    time.monotonic = time.time = time.perf_counter = lambda: 0.0


def trace_all():
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


def lead_a_session():
    if os.getpid() != os.getsid(0):
        os.setpgid(0, 0)


#: The target kills the worker, which is a finding.
CRASHES = {
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "abort_in_a_thread": abort_in_a_thread,
    "overflow": overflow_the_stack,
    "exit_0": lambda: os._exit(0),
    "exit_1": lambda: os._exit(1),
    "exit_255": lambda: os._exit(255),
    "exit_in_c": lambda: libc._exit(5),
    "exit_in_a_thread": end_from_a_thread,
    "raise_signal": lambda: signal.raise_signal(signal.SIGTERM),
    "another_program": lambda: os.execv("/bin/true", ["true"]),
    **{
        f"of_{number.name}": end_by(number)
        for number in (
            *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP),
            *(signal.SIGSYS, signal.SIGPIPE, signal.SIGALRM, signal.SIGUSR1),
            *(signal.SIGKILL, signal.SIGTERM, signal.SIGINT),
        )
    },
}
#: The target asks the worker to exit, which is a finding too.
LEAVES = {
    "sys_exit": lambda: sys.exit("as scripts do"),
    "system_exit": leave_quietly,
    "interrupt": interrupt,
}
#: The target never returns.
HANGS = {
    "spin": spin,
    "spin_deaf": spin_deaf,
    "spin_in_threads": spin_in_threads,
    "sleep": lambda: time.sleep(600),
    "pause_in_c": libc.pause,
    "lock": wait_for_a_lock,
    "pipe": read_from_nobody,
    "child": lambda: subprocess.run(["sleep", "600"]),
    "fork": fork_and_wait,
}
#: The worker is killed from outside, which proves nothing about the target.
OUTSIDE = {
    number.name: end_from_outside(number)
    for number in (
        *(signal.SIGKILL, signal.SIGTERM, signal.SIGINT),
        *(signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU),
    )
}
#: The worker continues, and all judging must continue too.
MESSES = {
    "deafen": deafen,
    "close_all": lambda: os.closerange(0, 4096),
    "lose_the_folder": lose_the_folder,
    "clear_the_environment": lambda: os.environ.clear(),
    "write_to_full_streams": write_to_full_streams,
    "print_much": lambda: os.write(1, b"x" * (1 << 22)),
    "print_escapes": print_escapes,
    "allow_no_file": allow_no_file,
    "leave_children": lambda: subprocess.Popen(["sleep", "77"], start_new_session=True),
    "leave_threads": lambda: threading.Thread(target=time.sleep, args=(77,)).start(),
    "return_twice": return_twice,
    "replace_the_clock": replace_the_clock,
    "exit_badly": lambda: atexit.register(os._exit, 9),
    "exit_slowly": lambda: atexit.register(time.sleep, 600),
    "trace_all": trace_all,
    "forbid_warnings": lambda: warnings.simplefilter("error"),
    "lead_a_session": lead_a_session,
    "disable": gc.disable,
    "forbid_files": lambda: os.umask(0o777),
    "forget_faults": faulthandler.disable,
    "switch_rarely": lambda: sys.setswitchinterval(100),
}

"""What a kernel's wrapper may do to the process that it runs in, by what must be said of it."""

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
    """A process that dies of a signal, whatever it was to do then."""

    def act():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
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


def wait_for_a_child():
    subprocess.run(["sleep", "600"])


def fork_and_wait():
    if child := os.fork():
        os.waitpid(child, 0)
    time.sleep(600)


def spin_in_threads():
    for _ in range(4):
        threading.Thread(target=spin, daemon=True).start()
    spin()


def overflow_the_stack():
    """Recurse in C, where none of Python's limits counts."""
    nested = iter([1])
    for _ in range(1_000_000):
        nested = filter(None, nested)
    next(nested)


def run_another_program():
    os.execv("/bin/true", ["true"])


def abort_in_a_thread():
    threading.Thread(target=os.abort).start()
    time.sleep(9)


def end_from_a_thread():
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(9)


def leave():
    sys.exit("as scripts do")


def leave_quietly():
    raise SystemExit


def close_all():
    os.closerange(0, 4096)


def lose_the_folder():
    place = tempfile.mkdtemp()
    os.chdir(place)
    os.rmdir(place)


def clear_the_environment():
    os.environ.clear()


def write_to_full_streams():
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)
    sys.stdout = sys.stderr = open("/dev/full", "w", buffering=1)  # noqa: SIM115 - it stays so


def print_much():
    os.write(1, b"x" * (1 << 22))


def print_escapes():
    print("\x1b[2J\x00\x07\udc80".encode(errors="surrogateescape"))
    os.write(1, b"\xff\xfe\x1b]0;title\x07" * 100)


def allow_no_file():
    """As a leak of descriptors does: those that are open stay so."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def leave_children():
    subprocess.Popen(["sleep", "77"], start_new_session=True)


def leave_threads():
    threading.Thread(target=time.sleep, args=(77,)).start()


def return_twice():
    """The child goes on where its parent does."""
    if child := os.fork():
        os.waitpid(child, 0)


def replace_the_clock():
    time.monotonic = time.time = time.perf_counter = lambda: 0.0


def exit_badly():
    atexit.register(os._exit, 9)


def exit_slowly():
    atexit.register(time.sleep, 600)


def trace_all():
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


def forbid_warnings():
    warnings.simplefilter("error")


def forbid_files():
    os.umask(0o777)


def forget_faults():
    faulthandler.disable()


def switch_rarely():
    sys.setswitchinterval(100)


def lead_a_session():
    if os.getpid() != os.getsid(0):
        os.setpgid(0, 0)


#: The worker dies of the target, which is a finding.
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
    "another_program": run_another_program,
    **{
        f"of_{number.name}": end_by(number)
        for number in (
            *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP),
            *(signal.SIGSYS, signal.SIGPIPE, signal.SIGALRM, signal.SIGUSR1),
        )
    },
}
#: It is asked to leave by the target, which is a finding too.
LEAVES = {"sys_exit": leave, "system_exit": leave_quietly}
#: It never comes back from the target.
HANGS = {
    "spin": spin,
    "spin_deaf": spin_deaf,
    "spin_in_threads": spin_in_threads,
    "sleep": lambda: time.sleep(600),
    "pause_in_c": libc.pause,
    "lock": wait_for_a_lock,
    "pipe": read_from_nobody,
    "child": wait_for_a_child,
    "fork": fork_and_wait,
}
#: It is ended from outside, which says nothing of the target.
OUTSIDE = {
    number.name: end_by(number)
    for number in (
        *(signal.SIGKILL, signal.SIGTERM, signal.SIGINT),
        *(signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU),
    )
}
#: It goes on, and so must all that judges.
MESSES = {
    act.__name__: act
    for act in (
        *(deafen, close_all, lose_the_folder, clear_the_environment, write_to_full_streams),
        *(print_much, print_escapes, allow_no_file, leave_children, leave_threads, return_twice),
        *(replace_the_clock, exit_badly, exit_slowly, trace_all),
        *(forbid_warnings, lead_a_session, gc.disable, forbid_files, forget_faults, switch_rarely),
    )
}

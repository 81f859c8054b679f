"""Signals that stop a training while it starts: Python's own imports, the data, the model, a checkpoint being restored.

There is nothing to save yet, so the process ends at once with exit code 75, by which a scheduler queues it again. From
the first step on `engine.training.stop` has the signals. `vernier.__main__` calls `catch_from_start` before everything
else: until then a signal does what the kernel does without a handler. So this module imports next to nothing.
"""

import _thread
import os
import signal
import sys
from types import FrameType

from .errors import EXIT_STOPPED

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
GRACE_S = 10.0
"""A process that starts and does not end within this time after a signal, as in a long call of a library, is ended."""
_RETRY_S = 0.1
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


class StopRequested(BaseException):
    """A signal, or the end of the time limit. Not an Exception: libraries that are being imported must not catch it."""


class _Start:
    """What the process does about a signal: nothing special, end, or unwind the stack."""

    own_process = False
    lasts = False
    unwinds = False
    signal_name: str | None = None
    announced = False


def catch_from_start() -> None:
    """Let signals end this process with exit code 75, by `os._exit` until `unwind_from_now` is called.

    SIGHUP stays ignored where it is, as under nohup.
    """
    _Start.own_process = _Start.lasts = True
    for number in caught():
        signal.signal(number, _on_signal)
    # Python's C handler writes the number of each signal to the pipe, also while no Python code can run. Read by a
    # thread of `_thread`: importing `threading` would lengthen the time in which signals are not caught yet.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_leave_to_parent)
    _thread.start_new_thread(_enforce, (reader, _thread.get_ident()))


def unwind_from_now() -> None:
    """From now on there may be something to close: a signal raises StopRequested in the main thread."""
    _Start.unwinds = True


def end_of_start() -> bool:
    """The training loop takes over; whether `catch_from_start` was called, so that this is a process of our own.

    Raises StopRequested where a library has caught the one that a signal raised.
    """
    if _Start.signal_name is not None:
        raise StopRequested(_Start.signal_name)
    caught_from_start, _Start.lasts = _Start.lasts, False
    return caught_from_start


def end_from_now() -> None:
    """The training is saved, and the same command repeats what is left: a signal ends a process of our own with 75."""
    for number in caught() if _Start.own_process else ():
        signal.signal(number, _end_after_training)


def _end_after_training(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, f"vernier: stopped by {signal.Signals(number).name}: run the same command to finish\n".encode())
    finally:
        os._exit(EXIT_STOPPED)


def pending_stop() -> str | None:
    """The signal that came while starting: an error after it may be what a library made of StopRequested."""
    return _Start.signal_name if _Start.lasts else None


def caught() -> list[signal.Signals]:
    """The signals to catch: all, without a SIGHUP that is ignored; none outside the main thread, which cannot."""
    threading = sys.modules.get("threading")  # without it there is no other thread
    if threading is not None and threading.current_thread() is not threading.main_thread():
        return []
    return [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]


def _on_signal(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    if not _Start.unwinds:
        _end(name)
    if _Start.signal_name is not None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        return
    _Start.signal_name = name
    sys.unraisablehook = lambda unraisable: None  # raised in a finalizer, where nothing can catch it: `_enforce` ends
    raise StopRequested(name)


def announce_stop(name: str) -> None:
    """Say on standard error, once, that a signal came before the first step."""
    announced, _Start.announced = _Start.announced, True
    line = f"vernier: stopped by {name} before the first step: nothing to save, run the same command again\n"
    try:
        if not announced:
            os.write(2, line.encode())
    except OSError:
        return  # a terminal that was closed, a full disk


def _end(name: str) -> None:
    announce_stop(name)
    os._exit(EXIT_STOPPED)


def _enforce(reader: int, main_thread: int) -> None:
    """Runs in a thread. Handlers run in the main thread, and not while that waits in a call of a library.

    Another signal interrupts most calls, such as one that began just after the first signal. Those that wait for
    another process go on: the process is ended.
    """
    alarm = _thread.allocate_lock()
    alarm.acquire()  # and never released: acquiring it with a timeout is a sleep
    while number := os.read(reader, 1):
        for _ in range(round(GRACE_S / _RETRY_S)):
            if not _Start.lasts or number[0] not in SIGNALS:
                break
            alarm.acquire(timeout=_RETRY_S)
            if _Start.signal_name is None:
                again = signal.SIGUSR1 if number[0] == signal.SIGINT else number[0]  # a second Ctrl-C means more
                signal.pthread_kill(main_thread, again)
        else:
            _end(_Start.signal_name or signal.Signals(number[0]).name)


def _leave_to_parent() -> None:
    """A forked process has nothing to save: signals do what they do in any program."""
    if signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.set_wakeup_fd(-1)  # the pipe is the parent's: its thread would end the parent
        for number in SIGNALS:
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def end_with_parent() -> None:
    """Let the kernel end this process when the one that started it ends, however that happens; on Linux only."""
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

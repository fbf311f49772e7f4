"""What a run that is stopped ends at once: programs, temporary folders, workers.

A thread of its own sees SIGTERM and SIGINT. Python runs handlers in the main thread alone, between
two instructions: one that was about to wait for other threads runs it when these are done, and what
a handler raises may be swallowed, by a callback for example.
"""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

Program = subprocess.Popen[str]

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
#: By a key of each, in the order in which they began.
_ENDINGS: Final[dict[object, Callable[[], None]]] = {}
#: Threads go on for a moment, and may begin something more.
_STOPPED: Final = threading.Event()
#: How long the thread that ends a run waits for others to let go of the interpreter.
_SWITCH_SECONDS: Final = 1e-5
#: The main thread is held wherever it was, and may hold a lock that an ending or a line needs.
_ENDING_SECONDS: Final = 5.0


@contextmanager
def ended_by_signals(interrupted: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM and SIGINT end the process within the block, with nothing left behind.

    The exit codes are 143 and 130. Outside of the main thread, which alone may handle signals,
    nothing is changed; a signal that the process ignores, as a job of a shell in the background
    ignores SIGINT, stays ignored.

    Args:
        interrupted: Says that there was an interrupt, once everything has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers, noted = os.pipe()
    os.set_blocking(noted, False)
    # Nobody is held while no thread would end the process.
    wakeup = signal.set_wakeup_fd(noted, warn_on_full_buffer=False)
    threading.Thread(target=_end_on_signal, args=(numbers, interrupted), daemon=True).start()
    # The main thread is kept from going on while the other one ends everything.
    before = {
        number: signal.signal(number, lambda *_: threading.Event().wait())
        for number in _STOPPING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # a library's own, which Python cannot set again
                signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(noted)  # ends the thread


def _end_on_signal(numbers: int, interrupted: Callable[[], None]) -> None:
    with open(numbers, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if number[0] in _STOPPING:
                _end_process(number[0], interrupted)


def _end_process(number: int, interrupted: Callable[[], None]) -> NoReturn:
    with suppress(RuntimeError):  # no thread can be had
        _thread.start_new_thread(_exit_at_last, (number,))
    try:
        sys.setswitchinterval(_SWITCH_SECONDS)
        end_everything()
        if number == signal.SIGINT:
            interrupted()
    finally:
        os._exit(128 + number)


def _exit_at_last(number: int) -> NoReturn:
    time.sleep(_ENDING_SECONDS)
    os._exit(128 + number)


@contextmanager
def ended_with_the_run(end: Callable[[], None]) -> Iterator[None]:
    """Have `end` called, by another thread, if the run is stopped within the block.

    Where it has been stopped already, the block is never entered.
    """
    key = object()
    _ENDINGS[key] = end
    try:
        if _STOPPED.is_set():
            end_everything()
            hold_if_stopped()
        yield
    finally:
        # Another thread may be stopping the run.
        _ENDINGS.pop(key, None)


@contextmanager
def program_of_the_run(start: Callable[[], Program]) -> Iterator[Program]:
    """Start a program that is killed at the end of the block, and if the run is stopped."""
    hold_if_stopped()
    with start() as program, ended_with_the_run(program.kill):
        try:
            yield program
        finally:
            program.kill()  # does nothing to one that has ended


def end_everything() -> None:
    """End what is still going on, the latest first: a program before the folder that it fills.

    The process must end after it: threads that begin something more are held up until then.
    """
    _STOPPED.set()
    while _ENDINGS:
        with suppress(Exception):  # its block has just ended, or it cannot be ended
            _ENDINGS.popitem()[1]()


def hold_if_stopped() -> None:
    """Go no further in a run that is stopped: nobody would end what begins now."""
    if _STOPPED.is_set():
        threading.Event().wait()

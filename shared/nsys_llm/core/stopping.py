"""What a run that is stopped ends at once, because nobody waits for its threads any more.

That are the programs that threads wait for, and the temporary folders that they would remove.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

Program = subprocess.Popen[str]

#: By a key of each, in the order in which they began.
_ENDINGS: Final[dict[object, Callable[[], None]]] = {}
#: Threads go on for a moment, and may begin something more.
_STOPPED: Final = threading.Event()
#: Held from before a program starts until it is known here.
_STARTING: Final = threading.Lock()
_STARTING_SECONDS: Final = 1.0


@contextmanager
def ended_with_the_run(end: Callable[[], None]) -> Iterator[None]:
    """Have `end` called if the run is stopped within the block.

    Where it has been stopped already, the block is never entered: its thread ends with the process.
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
    """Start a program that is killed at the end of the block, and if the run is stopped.

    Another thread starts it: a signal raises in the main one, and in the midst of a start that
    would lose a program that runs already.
    """
    key, left = object(), threading.Event()

    def begin() -> Program | None:
        with _STARTING:
            if _STOPPED.is_set() or left.is_set():
                return None
            program = start()
            _ENDINGS[key] = program.kill
            return program

    try:
        with ThreadPoolExecutor(max_workers=1) as thread:
            program = thread.submit(begin).result()
        if program is None:
            hold_if_stopped()
        else:
            with program:
                try:
                    yield program
                finally:
                    program.kill()  # does nothing to one that has ended
    finally:
        # One that nobody came to know, where a signal came meanwhile.
        left.set()
        with _STARTING:
            end = _ENDINGS.pop(key, None)
        if end is not None:
            end()


def end_everything() -> None:
    """End what is still going on, the latest first: a program before the folder that it fills.

    The process must end after it: threads that begin something more are held up until then.
    """
    _STOPPED.set()
    if _STARTING.acquire(timeout=_STARTING_SECONDS):
        _STARTING.release()
    while _ENDINGS:
        with suppress(KeyError, OSError):
            _, end = _ENDINGS.popitem()
            end()


def hold_if_stopped() -> None:
    """Go no further in a run that is stopped: nobody would end what begins now."""
    if _STOPPED.is_set():
        threading.Event().wait()

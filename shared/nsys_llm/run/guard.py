"""How a run ends, whatever happens: one line and an exit code, and no half-written folder."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, NsysLlmError
from nsys_llm.core.open_files import (
    is_out_of_files,
    no_more_open_files,
    raise_limit,
    require_open_files,
)

#: Set to anything, it makes an internal error print its traceback.
_TRACEBACK_VARIABLE: Final = "NSYS_LLM_TRACEBACK"

_SECONDS_TO_REPEAT: Final = 0.02
#: Added to the number of a signal whose exception was dropped.
_AGAIN: Final = 0x80


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        exit_code: What the process should end with.
        folder: Where the results are; None if nothing could be read.
        summary: The report in one screen, line by line.
    """

    exit_code: ExitCode
    folder: Path | None
    summary: tuple[str, ...] = ()


def run_guarded(console: Console, run: Callable[[], RunOutcome]) -> RunOutcome:
    """Run, and turn whatever goes wrong into one line and an exit code.

    Args:
        console: Where the line goes.
        run: Calls `nsys_llm.run.runner.run_recipe`, with whatever it takes to prepare that.
    """
    with _Guard(console) as guard, _stopped_by_sigterm():
        raise_limit()
        require_open_files()
        return run()
    return RunOutcome(guard.exit_code, None)


class _Guard:
    """Tells errors in one line each; a traceback only of our own faults, and only if asked for."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.exit_code = ExitCode.DONE

    def __enter__(self) -> _Guard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, SystemExit):
            return False
        self.exit_code, line = _explained(error, _written(self._console))
        self._console.error(line)
        if self.exit_code is ExitCode.FAULT and os.environ.get(_TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        return True


def _written(console: Console) -> str:
    """Return what is there of the run, which may go wrong after it has published."""
    there = console.results
    return "nothing was written" if there is None else f"the results are in {there}"


def _explained(error: BaseException, written: str) -> tuple[ExitCode, str]:
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED, f"interrupted; {written}."
    if is_out_of_files(error):
        # Whatever it led to.
        error = no_more_open_files(error)
    if isinstance(error, NsysLlmError):
        return error.exit_code, error.message
    # Dask's error is recognized by name, because distributed is imported only where it is used.
    if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
        return ExitCode.FAULT, (
            f"a worker process died, possibly out of memory; {written}; "
            "try --mode none, or fewer workers (NSYS_CONCURRENT_MAX_WORKERS=1)."
        )
    if isinstance(error, MemoryError):
        return ExitCode.FAULT, (
            f"needs more memory than is available; {written}; analyze fewer ranks at a time "
            "(--ranks), or a part of the capture (--filter-time)."
        )
    words = " ".join(str(error).split())[:300]
    return ExitCode.FAULT, (
        f"internal error of nsys-llm-recipes {__version__} ({type(error).__name__}: {words}); "
        f"{written}; please file an issue with what {_TRACEBACK_VARIABLE}=1 prints."
    )


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let a batch system's SIGTERM unwind the stack, so that no half-written folder stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    interrupted = signal.getsignal(signal.SIGINT)
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        with _heard():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and interrupted is not None:
            signal.signal(signal.SIGINT, interrupted)


def _stop(number: int, _: object) -> NoReturn:
    # Neither a second one nor an interrupt may end what removes the half-written folder.
    for stopping in (number, signal.SIGINT):
        signal.signal(stopping, signal.SIG_IGN)
    raise SystemExit(128 + number)


@contextmanager
def _heard() -> Iterator[None]:
    """Repeat signals for the main thread that Python sees too late, or whose exception it drops.

    It sees one that comes just before a wait for other threads, or to another thread, after the
    wait; and it drops what is raised in callbacks of its own.
    """
    if not hasattr(signal, "pthread_kill"):
        yield
        return
    _forget_in_children()
    read, write = os.pipe()
    os.set_blocking(write, False)
    repeater = _Repeater(read, threading.get_ident())
    threading.Thread(target=repeater.run, daemon=True).start()
    dropped_before = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt | SystemExit):
            dropped_before(dropped)
            return
        interrupted = issubclass(dropped.exc_type, KeyboardInterrupt)
        number = signal.SIGINT if interrupted else signal.SIGTERM
        if not interrupted:
            signal.signal(number, _stop)
        os.write(write, bytes([number | _AGAIN]))

    sys.unraisablehook = hook
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield
    finally:
        repeater.end()
        signal.set_wakeup_fd(before)
        sys.unraisablehook = dropped_before
        os.close(write)


class _Repeater:
    """Sends signals whose numbers come through a pipe to the main thread once more.

    A SIGTERM until `_stop` has been called; others only if they come with `_AGAIN`.

    Args:
        read: The pipe's end; closed where the other one is.
        main: The thread.
    """

    def __init__(self, read: int, main: int) -> None:
        self._read, self._main = read, main
        self._sending = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        """Read until the other end is closed."""
        with os.fdopen(self._read, "rb", buffering=0) as numbers:
            while read := numbers.read(1):
                number, again = read[0] & ~_AGAIN, read[0] & _AGAIN
                # Not at once: what was dropped would be dropped again.
                if number == signal.SIGTERM:
                    while not self._over.wait(_SECONDS_TO_REPEAT) and self._sent(number):
                        pass
                elif again and not self._over.wait(_SECONDS_TO_REPEAT):
                    self._sent(number)

    def _sent(self, number: int) -> bool:
        with self._sending:
            stopped = signal.getsignal(signal.SIGTERM) is not _stop
            if self._over.is_set() or (number == signal.SIGTERM and stopped):
                return False
            signal.pthread_kill(self._main, number)
            return True

    def end(self) -> None:
        """Send nothing any more: what comes now is not for this run."""
        with self._sending:
            self._over.set()


@cache
def _forget_in_children() -> None:
    """Have a forked child tell nobody of its signals: they would be taken for the parent's."""
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

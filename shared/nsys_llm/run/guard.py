"""How a run ends, whatever happens: one line and an exit code, and no half-written folder."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, NsysLlmError
from nsys_llm.core.limits import require_limits
from nsys_llm.core.stopping import ended_by_signals

_PROGRAM: Final = "nsys-llm"
#: Set to anything, it makes an internal error print its traceback.
_TRACEBACK_VARIABLE: Final = "NSYS_LLM_TRACEBACK"
#: What libraries say where there is no memory to load them, or for a thread.
_NO_MEMORY: Final = ("failed to map segment", "annot allocate memory", "can't start new thread")


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        exit_code: What the process should end with.
        folder: Where the results are; None if nothing could be read.
        summary: The report in one screen, line by line.
        finding: Number of the first one to look at; None: there is none.
    """

    exit_code: ExitCode
    folder: Path | None
    summary: tuple[str, ...] = ()
    finding: int | None = None

    @property
    def next_line(self) -> tuple[str, ...]:
        """What to run next, as a shell takes it; nothing where no command is known."""
        program = Path(sys.argv[0])
        if self.folder is None or not (shutil.which(_PROGRAM) or program.name == _PROGRAM):
            return ()
        name = _PROGRAM if shutil.which(_PROGRAM) else _near(program)
        words = [name, "show", _near(self.folder), *([str(self.finding)] if self.finding else [])]
        return (f"next: {shlex.join(words)}",)


def _near(path: Path) -> str:
    """Return a path from here, or as it is where that leads away."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith(os.pardir) else relative


def run_guarded(console: Console, run: Callable[[], RunOutcome]) -> RunOutcome:
    """Run, and turn whatever goes wrong into one line and an exit code."""

    def interrupted() -> None:
        console.error(f"interrupted; {_written(console)}.")

    with _Guard(console) as guard:
        require_limits()
        with ended_by_signals(interrupted):
            return run()
    return RunOutcome(guard.exit_code, None)


class _Guard:
    """Tells errors in one line each; a traceback only of our own faults, and only if asked for."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.exit_code = ExitCode.DONE

    def __enter__(self) -> _Guard:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
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


def _explained(error: Exception, written: str) -> tuple[ExitCode, str]:
    if isinstance(error, NsysLlmError):
        return error.exit_code, error.message
    # Dask's error is recognized by name, because distributed is imported only where it is used.
    if type(error).__name__ == "KilledWorker":
        return ExitCode.FAULT, (
            f"a worker process died, possibly out of memory; {written}; "
            "try workers with more memory, or --mode none."
        )
    if isinstance(error, ValueError) and "int_max_str_digits" in str(error):
        return ExitCode.BAD_INPUT, f"a number has too many digits; {written}."
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
        return ExitCode.BAD_INPUT, (
            f"needs more memory than is available; {written}; analyze fewer ranks at a time "
            "(--ranks), or a part of the capture (--filter-time)."
        )
    words = " ".join(str(error).split())[:300]
    return ExitCode.FAULT, (
        f"internal error of nsys-llm-recipes {__version__} ({type(error).__name__}: {words}); "
        f"{written}; please file an issue with what {_TRACEBACK_VARIABLE}=1 prints."
    )

"""Where the command `nsys-llm` begins: imports and endings that can be interrupted without a word.

Nothing but the standard library is imported before an interrupt can be caught.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_INTERRUPTED = 128 + signal.SIGINT


def main() -> int:
    """Run the command line; see `nsys_llm.run.cli.main`."""
    _fill_closed()
    try:
        from nsys_llm.run.cli import main as run

        code = run()
    except KeyboardInterrupt:
        # Outside of the run: before it began, or after its results were published.
        print("error: interrupted.", file=sys.stderr)
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        _leave(code)
    # What is left to do is the interpreter's: an interrupt ends it, and changes no outcome.
    signal.signal(signal.SIGINT, lambda *_: _leave(code))
    # Then handlers are gone, while modules are freed: some tenths of a second on a busy machine.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    return code


def _leave(code: int) -> NoReturn:
    """End the process now: Python would wait for its threads, which may compute for minutes."""
    # A further signal must not keep folders from being removed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    from nsys_llm.core.stopping import end_everything

    end_everything()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _fill_closed() -> None:
    """Put /dev/null where a standard stream is closed.

    Else the next file that is opened takes its number, and children print into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    sys.exit(main())

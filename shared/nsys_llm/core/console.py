"""What a run prints while it works: lines, and progress.

On a terminal progress is a bar with an estimate, otherwise a line now and then, and with --quiet
nothing. Everything here goes to standard error; results go to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from nsys_llm.core.errors import OutputError

_SECONDS_BETWEEN_LINES: Final = 10.0


#: Categories of Unicode: controls, formats (of direction, too), surrogates, ends of lines.
_NOT_SHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Console:
    """Prints lines, each marked with how serious it is.

    Attributes:
        quiet: Whether only errors are printed.
        results: The folder with the run's results, once it stands; None before.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.results: Path | None = None

    def note(self, text: str) -> None:
        """Say something that the user may want to know."""
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        """Say what a result is missing."""
        if not self.quiet:
            self._print(f"warning: {text}")

    def error(self, text: str) -> None:
        """Say why something failed."""
        self._print(f"error: {text}")

    def show(self, *lines: str) -> None:
        """Print a result to standard output, whatever that can encode.

        Raises:
            OutputError: It is closed or full, and what should be printed stands nowhere else.
        """
        if self.quiet:
            return
        stream = sys.stdout
        if stream is None:
            self._not_shown("closed")
            return
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = "\n".join(map(escaped, "\n".join(lines).split("\n")))
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            print(text, flush=True)
        except BrokenPipeError:
            # Whoever read has seen enough, as in `nsys-llm ... | head`; the results stand.
            _silence(stream)
        except OSError as error:
            _silence(stream)
            self._not_shown(error.strerror or "cannot be written")

    def _not_shown(self, why: str) -> None:
        line = f"standard output cannot be written ({why})"
        if self.results is None:
            raise OutputError(f"{line}.")
        self.warn(f"{line}; the results are in {self.results}.")

    def progress(self, reports_n: int) -> Progress:
        """Return a progress display for so many reports; use it as a context manager."""
        return Progress(reports_n, self)

    @staticmethod
    def _print(text: str) -> None:
        if sys.stderr is None:
            return
        # A file name may hold a newline, or bytes that are no text: a message stays one line.
        line = escaped(text)
        bars = sys.modules.get("tqdm")
        with suppress(OSError):  # there is nowhere left to say that it cannot be said
            if bars is None:
                print(line, file=sys.stderr, flush=True)
            else:
                bars.tqdm.write(line, file=sys.stderr)  # keeps from tearing a bar


def escaped(text: str) -> str:
    r"""Return a line as a terminal may have it, whoever chose the names in it.

    Characters that control a terminal, change the direction of text, are invisible, end a line or
    are none are written as in JSON (`\u001b`).
    """
    if text.isprintable():
        return text
    return "".join(
        json.dumps(item)[1:-1] if unicodedata.category(item) in _NOT_SHOWN else item
        for item in text
    )


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _silence(stream: TextIO) -> None:
    """Drop what a stream still holds: Python would complain once more when it closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress:
    """How many reports are done."""

    def __init__(self, reports_n: int, console: Console) -> None:
        self._reports_n = reports_n
        self._console = console
        self._bar: Any = None
        self._done_n = 0
        self._last_line_s = 0.0

    def __enter__(self) -> Progress:
        self._last_line_s = time.monotonic()
        if not self._console.quiet and self._reports_n > 1 and _is_terminal(sys.stderr):
            from tqdm import tqdm

            self._bar = tqdm(total=self._reports_n, unit="profile", file=sys.stderr, leave=False)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, reports_n: int) -> None:
        """Count reports as done."""
        self._done_n += reports_n
        if self._bar is not None:
            self._bar.update(reports_n)
        elif time.monotonic() - self._last_line_s >= _SECONDS_BETWEEN_LINES:
            self._last_line_s = time.monotonic()
            self._console.note(f"{self._done_n} of {self._reports_n} profiles done")

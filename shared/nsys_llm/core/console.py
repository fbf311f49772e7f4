"""What a run prints while it works: lines, and progress, which is a line now and then.

All of that goes to standard error; results go to standard output.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from nsys_llm.core.errors import OutputError

_SECONDS_BETWEEN_LINES: Final = 10.0


#: Categories of Unicode: controls, formats (of direction, too), surrogates, ends of lines.
_NOT_SHOWN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Console:
    """Prints lines, each marked with how serious it is.

    Attributes:
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
        text = escaped_lines("\n".join(lines))
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

    def progress(self, profiles_n: int) -> Progress:
        """Return what tells the progress over so many profiles."""
        return Progress(profiles_n, self)

    @staticmethod
    def _print(text: str) -> None:
        if sys.stderr is None:
            return
        # A file name may hold a newline, or bytes that are no text: a message stays one line.
        with suppress(OSError):  # there is nowhere left to say that it cannot be said
            print(escaped(text), file=sys.stderr, flush=True)


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


def escaped_lines(text: str) -> str:
    """Return lines, or JSON, with each line as `escaped` has it."""
    return "\n".join(map(escaped, text.split("\n")))


def _silence(stream: TextIO) -> None:
    """Drop what a stream still holds: Python would complain once more when it closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Progress:
    """How many profiles are done."""

    def __init__(self, profiles_n: int, console: Console) -> None:
        self._profiles_n = profiles_n
        self._console = console
        self._done_n = 0
        self._last_line_s = time.monotonic()

    def advance(self, profiles_n: int) -> None:
        """Count profiles as done."""
        self._done_n += profiles_n
        if time.monotonic() - self._last_line_s >= _SECONDS_BETWEEN_LINES:
            self._last_line_s = time.monotonic()
            self._console.note(f"{self._done_n} of {self._profiles_n} profiles done")

"""Regular expressions of users, searched where they can be ended.

On fifty letters `a` and a `b`, `(a+)+$` takes longer than anybody waits, and Python can neither
interrupt a search in a thread nor let another thread run meanwhile. So what repeats anything is
searched in a process beside this one, which the system ends when it has used up its time.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from functools import lru_cache
from typing import Final
from weakref import finalize

from nsys_llm.core.errors import UsageError

#: Of the processor, for the names of a table; a hundred thousand short ones take some 0.2 s.
_SECONDS: Final = 10
#: Without one of these an expression repeats nothing, and takes no longer than plain text.
_REPEATS: Final = frozenset("*+?{")
#: Only the search's own time counts. It begins anew after a second without a question.
_PROGRAM: Final = """
import re, signal, struct, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
questions, answers, asked_s = sys.stdin.buffer, sys.stdout.buffer, 0
def text():
    (size,) = struct.unpack("<I", questions.read(4) or sys.exit())
    return questions.read(size).decode("utf-8", "surrogatepass")
while True:
    expression, name = text(), text()
    if time.monotonic() > asked_s + 1:
        signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))
    answers.write(b"1" if re.search(expression, name) else b"0")
    answers.flush()
    asked_s = time.monotonic()
"""


def is_bounded(expression: str) -> bool:
    """Return whether a search takes no longer than for plain text, or cannot be ended here."""
    return not _REPEATS & set(expression) or not sys.executable or sys.platform == "win32"


def found_in(expression: str, name: str) -> bool:
    """Return whether a user's expression is found anywhere in a name.

    Raises:
        UsageError: The search has taken all of its time.
    """
    # A forked child must not ask where its parent asks.
    return _searcher(os.getpid()).found_in(expression, name)


class _Searcher:
    """Asks the process beside this one, which is started with the first question."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def found_in(self, expression: str, name: str) -> bool:
        with self._one_at_a_time:
            if self._process is None or self._process.poll() is not None:
                self._process = _started()
                finalize(self, _ended, self._process, os.getpid())
            answer = _answer(self._process, (expression, name))
            if not answer:
                self._process.wait()
        if not answer:
            raise UsageError(
                f"'re:{expression}' takes more than {_SECONDS} s on the names of a profile; "
                "write it without repeats of what repeats itself, like (a+)+."
            )
        return answer == b"1"


@lru_cache(maxsize=1)
def _searcher(_: int) -> _Searcher:
    return _Searcher()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _ended(process: subprocess.Popen[bytes], parent: int) -> None:
    if os.getpid() == parent:  # and no fork of it
        process.kill()
        process.communicate()


def _answer(process: subprocess.Popen[bytes], texts: tuple[str, ...]) -> bytes:
    """Return 1 or 0, or nothing where the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for text in texts:
            content = text.encode("utf-8", "surrogatepass")
            process.stdin.write(struct.pack("<I", len(content)) + content)
        process.stdin.flush()
    except BrokenPipeError:
        return b""
    return process.stdout.read(1)

"""The files that options name: small, of people and their scripts, read whole."""

from __future__ import annotations

import os
import select
import time
from typing import Final

from nsys_llm.core.errors import UsageError

_MOST_BYTES: Final = 1 << 20
#: A pipe may have nobody who writes into it.
_SECONDS: Final = 5.0


def read_option_file(path: str) -> str:
    """Return the text of a file, a pipe or standard input (/dev/stdin).

    Raises:
        UsageError: It cannot be read, is no text, holds over 1 MB, or does not end within 5 s.
    """
    try:
        return read_option_bytes(path).decode("utf-8-sig")
    except ValueError as error:
        raise UsageError(f"{path}: cannot be read ({error}).") from error


def read_option_bytes(path: str, most_bytes: int = _MOST_BYTES) -> bytes:
    """Return what such a file holds, of at most so many bytes.

    Raises:
        UsageError: It cannot be read, holds more, or does not end within 5 s.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _content(opened, path, most_bytes)
        finally:
            os.close(opened)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error}).") from error


def _content(opened: int, path: str, most_bytes: int) -> bytes:
    waits, content, until = select.poll(), bytearray(), time.monotonic() + _SECONDS
    waits.register(opened, select.POLLIN)
    while waits.poll(max(0, 1e3 * (until - time.monotonic()))):
        part = os.read(opened, min(most_bytes + 1 - len(content), 1 << 20))
        content += part
        if not part:
            return bytes(content)
        if len(content) > most_bytes:
            size = f"{most_bytes >> 20} MB"
            raise UsageError(f"{path}: holds more than {size}, and no file of an option does.")
    raise UsageError(f"{path}: did not end within {_SECONDS:g} s.")

"""The words of --gate: a gate each, or a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nsys_llm.core.errors import UsageError

_FILE: Final = "@"


def gate_texts(word: str) -> tuple[str, ...]:
    """Return the gates behind one word of a command line: itself, or the lines of `@FILE`.

    Empty lines of a file, and what follows a `#`, are left out.

    Raises:
        UsageError: The file cannot be read, or has no gate.
    """
    if not word.startswith(_FILE):
        return (word,)
    try:
        content = Path(word.removeprefix(_FILE)).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise UsageError(f"{word}: cannot be read ({error}).") from error
    lines = (line.partition("#")[0].strip() for line in content.splitlines())
    found = tuple(line for line in lines if line)
    if not found:
        raise UsageError(f"{word}: holds no gate; write one a line, like gpu_time:+3%.")
    return found

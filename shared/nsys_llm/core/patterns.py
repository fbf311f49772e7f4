"""Names that people choose by a pattern: plain text, or a regular expression. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from nsys_llm.core.bounded_search import found_in, is_bounded
from nsys_llm.core.errors import UsageError

_REGEX_PREFIX: Final = "re:"


@dataclass(frozen=True)
class NamePattern:
    """One pattern.

    Attributes:
        expression: Searched anywhere in a name.
        is_bounded: Whether a search takes no time worth limiting.
    """

    expression: re.Pattern[str]
    is_bounded: bool = True

    def matches(self, *names: str) -> bool:
        """Return whether the pattern is found in any of some names.

        Raises:
            UsageError: A user's expression takes too long on them.
        """
        if self.is_bounded:
            return any(self.expression.search(name) is not None for name in names)
        return any(found_in(self.expression.pattern, name) for name in names)


def require_text(where: str, text: str) -> None:
    """Refuse bytes of a command line, or escapes of a JSON file, that stand for no character.

    No name in a report holds any, and no output could.

    Raises:
        UsageError: There are such, in the text of the option or file that `where` names.
    """
    if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
        raise UsageError(
            f"{where}: contains bytes that are not UTF-8 text; no name in a profile does."
        )


def parse_pattern(text: str, *, ours: bool = False) -> NamePattern:
    """Return the pattern that a person typed.

    Args:
        text: A part of the name, in any case; or `re:` and a regular expression, in which case
            matters unless it says `(?i)`.
        ours: Whether it comes with this package, and is known to take no time.

    Raises:
        UsageError: The text is empty, no text, or no regular expression.
    """
    require_text("a name pattern", text)
    if not text.removeprefix(_REGEX_PREFIX).strip():
        raise UsageError("a name pattern is empty; write a part of the name, or re:EXPRESSION.")
    if not text.startswith(_REGEX_PREFIX):
        return NamePattern(re.compile(re.escape(text), re.IGNORECASE))
    expression = text.removeprefix(_REGEX_PREFIX)
    try:
        return NamePattern(re.compile(expression), ours or is_bounded(expression))
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"'{text}' is not a regular expression ({error}).") from error

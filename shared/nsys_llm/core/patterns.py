"""Names that people choose by a pattern: plain text, or a regular expression. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.core.errors import UsageError

_REGEX_PREFIX: Final = "re:"
#: For one name: on fifty letters `a` and a `b`, `(a+)+$` takes longer than anybody waits.
_SECONDS: Final = 2.0


@dataclass(frozen=True)
class NamePattern:
    """One pattern.

    Attributes:
        expression: Searched anywhere in a name.
        users: The same of the library that ends a search in time; None for what comes with this
            package.
    """

    expression: re.Pattern[str]
    users: Any = None

    def matches(self, *names: str) -> bool:
        """Return whether the pattern is found in any of some names.

        Raises:
            UsageError: A user's expression takes too long on them.
        """
        if self.users is None:
            return any(self.expression.search(name) is not None for name in names)
        try:
            return any(self.users.search(name, timeout=_SECONDS) is not None for name in names)
        except TimeoutError as error:
            raise UsageError(
                f"'re:{self.expression.pattern}' takes more than {_SECONDS:g} s on a name; "
                "write it without repeats of what repeats itself, like (a+)+."
            ) from error


def require_text(where: str, text: str) -> None:
    """Refuse bytes of a command line, or escapes of a JSON file, that stand for no character.

    No name in a profile holds any, and no output could.

    Raises:
        UsageError: There are such, in the text of the option or file that `where` names.
    """
    if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
        raise UsageError(f"{where}: contains bytes that are not UTF-8 text.")


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
        compiled = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"'{text}' is not a regular expression ({error}).") from error
    if ours:
        return NamePattern(compiled)
    import regex

    try:
        return NamePattern(compiled, regex.compile(expression))
    except (regex.error, RecursionError, OverflowError, ValueError) as error:
        raise UsageError(f"'{text}' is not a regular expression ({error}).") from error

"""A choice of NVTX ranges as users type it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from nsys_llm.core.errors import UsageError
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.taxonomy.step_names import range_key


@dataclass(frozen=True)
class RangeChoice:
    """`range[@domain][/index]` as typed. None: any domain, or every instance.

    Attributes:
        name: Of the range; or `re:` and an expression, if it is one.
        domain: Name of the domain; `default` for the one without a name.
        index: Position among the ranges of the name on its thread.
    """

    name: str
    domain: str | None = None
    index: int | None = None
    expression: bool = False

    @cached_property
    def names(self) -> Callable[[str], bool]:
        """Whether a range's raw text is meant.

        A name is the raw text or the one without what PyTorch counts up; `#` in it stands for any
        number, as in tables. An expression is searched in both, and in the name with `#`.
        """
        if self.expression:
            pattern = parse_pattern(self.name)
            return lambda raw: pattern.matches(raw, normalize_range(raw), range_key(raw))
        numbers = re.compile(re.escape(self.name).replace(r"\#", "(?:#|[0-9]+)"))
        return lambda raw: raw == self.name or bool(numbers.fullmatch(normalize_range(raw)))

    def holds(self, domain: str) -> bool:
        """Return whether a domain is meant; "" is the one without a name."""
        return self.domain is None or domain == ("" if self.domain == "default" else self.domain)


def parse_choice(text: str) -> RangeChoice:
    r"""Read `range[@domain][/index]`.

    `@default` is the domain without a name and `@*` any; a backslash keeps `@` and `/` in a name.
    A name that begins with `re:` is a regular expression; `\re:` is a name that begins so.

    Raises:
        UsageError: There is no range name, or it is no expression.
    """
    match = re.fullmatch(r"((?:\\.|[^\\@])+?)(?:@((?:\\.|[^\\@/])*))?(?:/(\d+))?", text)
    if match is None:
        raise UsageError(f"'{text}' is not RANGE[@DOMAIN][/INDEX]; write \\@ for an @ in the name.")
    name, domain, index = match.groups()
    domain = None if domain in (None, "", "*") else _unescaped(domain)
    expression = name.startswith("re:")
    if expression:
        parse_pattern(name)  # a backslash is the expression's own
    else:
        name = _unescaped(name)
    return RangeChoice(name, domain, None if index is None else int(index), expression)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)

"""What to do about hosts, communication and copies, by what these are: `data/advice.json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from nsys_llm.taxonomy.data_files import data_file


def advice_on(**known: str | None) -> str | None:
    """Return the advice of the first row all of whose patterns occur; None where none does.

    Args:
        known: What is known of it, by the keys of the table; a key that is not, or is None, matches
            nothing.
    """
    return _first(known)[1]


def advised_name(**known: str | None) -> str | None:
    """Return the name of that row."""
    return _first(known)[0]


def _first(known: Mapping[str, str | None]) -> tuple[str | None, str | None]:
    for name, when, advice in _rows():
        if all(known.get(key) and pattern.search(known[key] or "") for key, pattern in when):
            return name, advice
    return None, None


@cache
def _rows() -> tuple[tuple[str, tuple[tuple[str, re.Pattern[str]], ...], str], ...]:
    return tuple(
        (
            row["name"],
            tuple((k, re.compile(v, re.IGNORECASE)) for k, v in row["when"].items()),
            row["advice"],
        )
        for row in data_file("advice")["rows"]
    )

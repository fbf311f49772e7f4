"""What to do about hosts, communication and copies, by what these are: `data/advice.json`."""

from __future__ import annotations

import re
from functools import cache

from nsys_llm.taxonomy.data_files import data_file


def advice_on(**known: str | None) -> str | None:
    """Return the advice of the first row all of whose patterns occur; None where none does.

    Args:
        known: What is known of it, by the keys of the table; a key that is not, or is None, matches
            nothing.
    """
    for when, advice in _rows():
        if all(known.get(key) and pattern.search(known[key] or "") for key, pattern in when):
            return advice
    return None


@cache
def _rows() -> tuple[tuple[tuple[tuple[str, re.Pattern[str]], ...], str], ...]:
    return tuple(
        (tuple((k, re.compile(v, re.IGNORECASE)) for k, v in row["when"].items()), row["advice"])
        for row in data_file("advice")["rows"]
    )

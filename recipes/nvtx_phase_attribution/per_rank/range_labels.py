"""Which numbers in names of ranges count up, and are left out so that repetitions are one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.step_names import range_key

#: Forms of a name that differ in running numbers, from which they are counted up or not; the steps
#: of `nsys_llm.trace.ranges` need as many repetitions.
_LEAST_FORMS: Final = 3
#: More forms than layers or experts of a model; a table of them all would say nothing.
_MOST_FORMS: Final = 256
#: An index comes again in every step; what counts up comes once.
_LEAST_RANGES_EACH: Final = 2


def counting_keys(texts: Sequence[str], ranges_n: IntArray) -> frozenset[str]:
    """Return the step keys (see `nsys_llm.taxonomy.names`) whose running numbers count up.

    Args:
        ranges_n: Shape (texts,), ranges that have each name.
    """
    forms: dict[str, list[int]] = {}
    for text, count in zip(texts, ranges_n.tolist(), strict=True):
        key = range_key(text)
        if key != text:
            forms.setdefault(key, []).append(count)
    return frozenset(
        key
        for key, counts in forms.items()
        if len(counts) > _MOST_FORMS
        or (len(counts) >= _LEAST_FORMS and sum(counts) < _LEAST_RANGES_EACH * len(counts))
    )


def shown_name(text: str, counting: frozenset[str], numbers: str) -> str:
    """Return a name as tables show it.

    Args:
        counting: Keys whose numbers count up.
        numbers: auto leaves out the numbers that count up, hide all running ones, keep none.
    """
    if numbers == "keep":
        return text
    key = range_key(text)
    return key if numbers == "hide" or key in counting else text

"""Which of some names a person may have meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nsmallest
from typing import Final

#: Names that are compared letter by letter, and words of each: some 100 us a name.
_MOST_COMPARED: Final = 1_000
_MOST_WORDS: Final = 8
_WORD: Final = re.compile(r"[a-z]{3,}")


def nearest_names(typed: str, names: Iterable[str], most: int) -> tuple[str, ...]:
    """Return the names nearest to what was typed: those that hold it, then the most similar.

    A name is as similar as it is as a whole, or as the most similar of its words.

    Upper and lower case are the same. The nearest of all ranks' names are among the nearest of each
    rank, so that few of each are enough.

    Args:
        typed: A name, or `re:` and an expression, of which the letters and digits count.
        names: What there is; the same name may come again.
        most: How many to return.
    """
    wanted = typed.casefold()
    if typed.startswith("re:"):
        wanted = "".join(re.findall(r"\w+", wanted.removeprefix("re:")))

    def roughly(name: str) -> tuple[bool, int, str]:
        return wanted not in name.casefold(), abs(len(name) - len(wanted)), name

    def closely(name: str) -> tuple[bool, float, float, str]:
        whole, *words = (
            SequenceMatcher(None, wanted, text, autojunk=False).ratio()
            for text in (name.casefold(), *_WORD.findall(name.casefold())[:_MOST_WORDS])
        )
        return wanted not in name.casefold(), -max(whole, *words, 0.0), -whole, name

    return tuple(nsmallest(most, nsmallest(_MOST_COMPARED, set(names), key=roughly), key=closely))

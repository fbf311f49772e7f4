"""Names behind ids of a profile's strings, as sorted texts and codes into them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import coded, replaced
from nsys_llm.numeric.intervals import IntArray


def coded_names(
    ids: IntArray, strings: Mapping[int, str], shown: Callable[[str], str] = str
) -> tuple[tuple[str, ...], IntArray]:
    """Return the distinct names behind ids, sorted, and each row's position among them.

    Args:
        shown: What becomes of a text; different texts may become one name.
    """
    names: tuple[str, ...] = ()

    def places(used: IntArray) -> IntArray:
        nonlocal names
        names, place = coded([shown(text_of(key, strings)) for key in used.tolist()])
        return place

    code = replaced(ids, places)
    return names, code


def text_of(string_id: int, strings: Mapping[int, str]) -> str:
    """Return the text of an id, or a name in brackets that says what is wrong with it."""
    if string_id == NULL_INT:
        return "[unnamed]"
    return strings.get(string_id, f"[unknown name {string_id}]")

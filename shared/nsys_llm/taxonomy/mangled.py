"""Names of functions as C++ compilers write them into object files, made readable by rules."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PREFIX: Final = "_Z"
_TYPES: Final = {
    "b": "bool",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
}
#: A number as template argument; a value of an enumeration, behind the name of its type; and how
#: many characters the next part of a name has.
_NUMBER: Final = re.compile(r"L([bijlm])n?(\d+)E")
_ENUMERATOR: Final = re.compile(r"E(\d+)E")
_LENGTH: Final = re.compile(r"[1-9]\d{0,3}(?!\d)")
#: What stands for an earlier part, or for a template's argument.
_REPEATED: Final = re.compile(r"[ST][0-9A-Z]*_")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")


@lru_cache(maxsize=1 << 14)
def unmangled(name: str) -> str:
    """Return a mangled name as patterns of demangled ones know it; any other as it is.

    `_ZN6marlin6MarlinILi4ELb1EEEv` becomes `marlin::Marlin<(int)4, (bool)1>`. Names and numbers in
    their order are what rules look for: return types, repeated types and parameters that are no
    names are left out.
    """
    if not name.startswith(_PREFIX):
        return name
    parts: list[str] = []
    at, before = len(_PREFIX), ""
    while at < len(name):
        at, part, kind = _next(name, at, before)
        joint = "::" if kind == before == "name" else ", " if kind == before == "number" else ""
        parts.append(joint + part)
        before = kind
    return "".join(parts).strip()


def _next(name: str, at: int, before: str) -> tuple[int, str, str]:
    """Return where the part at a place ends, how it reads, and its kind."""
    if number := _NUMBER.match(name, at):
        return number.end(), f"({_TYPES[number[1]]}){number[2]}", "number"
    if before == "name" and (value := _ENUMERATOR.match(name, at)):
        return value.end(), f"){value[1]}", "number"
    if repeated := _REPEATED.match(name, at):
        return repeated.end(), " ", ""
    if length := _LENGTH.match(name, at):
        end = length.end() + int(length[0])
        if _IDENTIFIER.fullmatch(name, length.end(), end):
            return end, name[length.end() : end], "name"
        return length.end(), " ", ""
    if before == "name" and name[at] == "I":
        return at + 1, "<", ""
    if before == "number" and name[at] == "E":
        return at + 1, ">", ""
    return at + 1, " " if before else "", ""

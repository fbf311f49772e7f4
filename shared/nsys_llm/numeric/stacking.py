"""Rows of several parts as one: dataclasses of columns, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from itertools import chain
from typing import Any, TypeVar, get_origin, get_type_hints

from nsys_llm.numeric.grouping import joined

_Rows = TypeVar("_Rows")


def stacked(kind: type[_Rows], parts: Sequence[_Rows]) -> _Rows:
    """Put the rows of several parts one after the other.

    Args:
        kind: A dataclass whose fields are arrays, tuples, classes with `joined`, or dataclasses
            of such fields. One that holds codes means nothing afterwards.
        parts: Of that class; without any, all fields are empty.
    """
    columns = {
        name: _joined(hint, [getattr(part, name) for part in parts])
        for name, hint in get_type_hints(kind).items()
    }
    return kind(**columns)


def _joined(kind: Any, values: Sequence[Any]) -> Any:
    if get_origin(kind) is tuple:
        return tuple(chain.from_iterable(values))
    if hasattr(kind, "joined"):
        return kind.joined(values)
    nested = isinstance(kind, type) and is_dataclass(kind)
    return stacked(kind, values) if nested else joined(values)

"""Rows as dataclasses of columns: some of them, and those of several parts as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from itertools import chain
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy.typing as npt

from nsys_llm.numeric.grouping import joined

_Rows = TypeVar("_Rows")
_Some = TypeVar("_Some", bound="Rows")


@dataclass(frozen=True)
class Rows:
    """A dataclass whose fields are arrays of equal length, or other such rows."""

    def take(self: _Some, rows: npt.NDArray[Any]) -> _Some:
        """Return the rows that a mask or an index array selects."""
        columns = {
            name: values.take(rows) if isinstance(values, Rows) else values[rows]
            for name, values in vars(self).items()
        }
        return replace(self, **columns)


def stacked(kind: type[_Rows], parts: Sequence[_Rows]) -> _Rows:
    """Put the rows of several parts one after the other.

    Args:
        kind: A dataclass whose fields are arrays, tuples, or dataclasses of such fields. One that
            holds codes means nothing afterwards.
        parts: Of that class; without any, all fields are empty, and arrays of one dimension.
    """
    columns = {
        name: _joined(hint, [getattr(part, name) for part in parts])
        for name, hint in _hints(kind).items()
    }
    return kind(**columns)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Return the types of fields: to read them takes longer than to join the rows of a test."""
    return get_type_hints(kind)


def _joined(kind: Any, values: Sequence[Any]) -> Any:
    if get_origin(kind) is tuple:
        return tuple(chain.from_iterable(values))
    nested = isinstance(kind, type) and is_dataclass(kind)
    return stacked(kind, values) if nested else joined(values)

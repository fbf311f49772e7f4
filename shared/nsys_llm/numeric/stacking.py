"""Rows as dataclasses of columns: some of them, several parts as one, and parts of ranks merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Any, TypeVar, get_origin, get_type_hints

import numpy.typing as npt

from nsys_llm.numeric.grouping import joined

_Rows = TypeVar("_Rows")
_Some = TypeVar("_Some", bound="Rows")


@dataclass(frozen=True)
class Rows:
    """A dataclass whose fields are arrays of equal length, or other such rows."""

    def take(self: _Some, rows: npt.NDArray[Any] | slice) -> _Some:
        """Return the rows that a mask, an index array or a slice selects."""
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
        for name, hint in get_type_hints(kind).items()
    }
    return kind(**columns)


def _joined(kind: Any, values: Sequence[Any]) -> Any:
    if get_origin(kind) is tuple:
        return tuple(chain.from_iterable(values))
    nested = isinstance(kind, type) and is_dataclass(kind)
    return stacked(kind, values) if nested else joined(values)


def merged(parts: Sequence[Any]) -> Any:
    """Join parts of one type, at least one. Associative and commutative.

    What has `merge` merges itself. Mappings are united, sorted by key; what several have under one
    key is merged. Tuples, of texts, are united and sorted. Of other dataclasses each field is
    merged. The identity is what a type is without arguments.

    Raises:
        TypeError: Two parts say something of one rank.
    """
    first = parts[0]
    if len(parts) == 1 or all(part is None for part in parts):
        return first
    kind = type(first)
    if hasattr(kind, "merge"):
        return kind.merge(parts)
    if isinstance(first, Mapping):
        held: dict[Any, list[Any]] = {}
        for part in parts:
            for key, value in part.items():
                held.setdefault(key, []).append(value)
        return {key: merged(held[key]) for key in sorted(held)}
    if isinstance(first, tuple):
        return tuple(sorted({text for part in parts for text in part}))
    if not is_dataclass(first):
        raise TypeError(f"two parts have the same {kind.__name__}")
    names = [item.name for item in fields(first)]
    return kind(**{name: merged([getattr(part, name) for part in parts]) for name in names})

"""Parts of distinct ranks become one, field by field: each kind of field knows how it merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any


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

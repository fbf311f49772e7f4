"""Stretches of time cut where something changes, and exact sums by key. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray


def cut(start_ns: IntArray, end_ns: IntArray, edges: IntArray) -> tuple[IntArray, ...]:
    """Cut stretches at some instants.

    Args:
        start_ns: Shape (n,), at least one; stretches are sorted, disjoint, and none is empty.
        end_ns: Shape (n,).
        edges: Any instants, in any order.

    Returns:
        The stretch that each piece comes from, its begin and its end; shape (pieces,) each.
    """
    at = np.searchsorted(start_ns, edges, side="right") - 1
    inside = edges[(at >= 0) & (edges > start_ns[at]) & (edges < end_ns[at])]
    begins = np.sort(np.concatenate((start_ns, inside)), kind="stable")
    begins = begins[np.append(True, begins[1:] != begins[:-1])]
    owner = np.searchsorted(start_ns, begins, side="right") - 1
    ends = np.minimum(np.append(begins[1:], end_ns[-1]), end_ns[owner])
    return owner, begins, ends


def near(spans: IntArray, low_ns: int, high_ns: int) -> slice:
    """Return which of sorted, disjoint spans, shape (n, 2), reach into a stretch."""
    first = np.searchsorted(spans[:, 1], low_ns, side="right")
    last = np.searchsorted(spans[:, 0], high_ns, side="left")
    return slice(int(first), max(int(last), int(first)))


def place_inside(at_ns: IntArray, spans: IntArray) -> IntArray:
    """Return which of sorted, disjoint spans holds each instant, -1 for none."""
    if not len(spans):
        return np.full(at_ns.shape, -1, dtype=np.int64)
    place = np.searchsorted(spans[:, 0], at_ns, side="right") - 1
    return np.where((place >= 0) & (at_ns < spans[place, 1]), place, -1)


class KeyedSums:
    """Exact sums of integers by key, some rows at a time."""

    def __init__(self, values_n: int) -> None:
        self._parts = [(np.empty(0, dtype=np.int64), np.empty((values_n, 0), dtype=np.int64))]

    def add(self, key: IntArray, *values: IntArray) -> None:
        """Add rows: shape (rows,) each, values of at least 0."""
        if key.size:
            self._parts.append(_summed(key, values))

    def total(self) -> tuple[IntArray, IntArray]:
        """Return the keys, ascending, and their sums, shape (values, keys)."""
        keys, sums = zip(*self._parts, strict=True)
        total = _summed(np.concatenate(keys), np.concatenate(sums, axis=1))
        self._parts = [total]
        return total


def _summed(key: IntArray, values: Sequence[IntArray] | IntArray) -> tuple[IntArray, IntArray]:
    used, code = np.unique(key, return_inverse=True)
    code = code.reshape(-1)
    sums = [exact_sums(code, value, used.size) for value in values]
    return used, np.array(sums, dtype=np.int64).reshape(len(values), used.size)

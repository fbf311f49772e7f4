"""Exact statistics that merge: how often each value occurred in each group. Pure numpy.

Durations of GPU work take few distinct values (most are multiples of 32 ns), so the counts are far
smaller than the durations and, unlike medians, can be added up over ranks without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nsys_llm.numeric.grouping import begins_group, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import Rows

#: The percentiles that every distribution here carries.
PERCENTS: Final = (25, 50, 75, 90, 95, 99)

#: The place of the median among them.
MEDIAN: Final = PERCENTS.index(50)

# Group and value share one int64 while the value is below 2^40 ns (18 minutes) and the group below
# 2^23; sorting one packed column takes a tenth of the time of sorting two (1M rows: 12 ms, 120 ms).
_VALUE_BITS: Final = 40
_VALUE_LIMIT: Final = 1 << _VALUE_BITS
_GROUP_LIMIT: Final = 1 << 23
_HALF_BITS: Final = _VALUE_BITS // 2
#: So many rows are sorted together: 4 MB, which stay in the processor's cache.
_BLOCK: Final = 1 << 19
#: Counts take three times the room of a value; where each stands for fewer, all rows are sorted.
_FEWEST_REPEATS: Final = 8


@dataclass(frozen=True)
class Moments(Rows):
    """Sums per group. All of shape (groups,); a group without values has n = 0.

    Attributes:
        squares: Python integers (object array), the sum of squares: it outgrows 64 bits.
        minimum: int64, the smallest value; 0 where n = 0.
        maximum: int64, the largest value; 0 where n = 0.
    """

    n: IntArray
    total: IntArray
    squares: np.ndarray[tuple[int, ...], np.dtype[np.object_]]
    minimum: IntArray
    maximum: IntArray


@dataclass(frozen=True)
class OrderStatistics(Rows):
    """The two values around each percentile, from which `interpolate` makes the percentile.

    Attributes:
        low: Shape (groups, len(PERCENTS)), int64; 0 where the group is empty.
        high: Likewise; the next larger order statistic.
        hundredths: Likewise; how far to go from low to high, in hundredths.
    """

    low: IntArray
    high: IntArray
    hundredths: IntArray


@dataclass(frozen=True)
class Spread(Rows):
    """How the values of each group are spread."""

    moments: Moments
    order: OrderStatistics


@dataclass(frozen=True)
class ValueCounts:
    """How often each value occurred in each group.

    Attributes:
        group: Shape (n,), int64 codes from 0, sorted.
        value: Shape (n,), int64 >= 0, sorted within its group, each once.
        count: Shape (n,), int64 >= 1.
    """

    group: IntArray
    value: IntArray
    count: IntArray

    @classmethod
    def empty(cls) -> ValueCounts:
        """Return the identity of `merge`."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing)

    @classmethod
    def from_values(cls, group: IntArray, value: IntArray) -> ValueCounts:
        """Count the values of each group; both of shape (n,), values >= 0, in any order."""
        return cls.in_blocks(group.size, lambda rows: (group[rows], value[rows]))

    @classmethod
    def in_blocks(
        cls, rows_n: int, of: Callable[[slice], tuple[IntArray, IntArray]]
    ) -> ValueCounts:
        """Count values that are made some rows at a time, and are never there for all rows.

        Args:
            of: Returns groups and values of some neighboring rows, as `from_values` takes them.
        """
        first = _counted(*of(slice(0, _BLOCK)), None)
        if rows_n <= _BLOCK:
            return first
        if first.group.size * _FEWEST_REPEATS > int(first.count.sum()):
            # What hardly repeats would be kept for each block, and sorted once more.
            return _counted(*of(slice(0, rows_n)), None)
        rest = (slice(begin, begin + _BLOCK) for begin in range(_BLOCK, rows_n, _BLOCK))
        return cls.merge([first, *(_counted(*of(rows), None) for rows in rest)])

    @classmethod
    def merge(cls, parts: Sequence[ValueCounts]) -> ValueCounts:
        """Add counts up. Associative and commutative; groups must mean the same in all parts."""
        if not parts:
            return cls.empty()
        return _counted(
            np.concatenate([part.group for part in parts]),
            np.concatenate([part.value for part in parts]),
            np.concatenate([part.count for part in parts]),
        )

    def regrouped(self, new_group: IntArray) -> ValueCounts:
        """Return the counts with group g renamed to `new_group[g]`; equal new groups are added."""
        return _counted(new_group[self.group], self.value, self.count)

    def moments(self, groups_n: int) -> Moments:
        """Return count, sum, sum of squares, minimum and maximum of groups 0 .. groups_n - 1."""
        n = np.zeros(groups_n, dtype=np.int64)
        total, minimum, maximum = n.copy(), n.copy(), n.copy()
        squares = np.zeros(groups_n, dtype=object)
        if self.group.size:
            first = np.flatnonzero(begins_group(self.group))
            codes = self.group[first]
            n[codes] = np.add.reduceat(self.count, first)
            total[codes] = np.add.reduceat(self.count * self.value, first)
            squares[codes] = _sums_of_squares(self.value, self.count, first)
            minimum[codes] = self.value[first]
            maximum[codes] = self.value[np.append(first[1:], self.group.size) - 1]
        return Moments(n, total, squares, minimum, maximum)

    def order_statistics(self, groups_n: int) -> OrderStatistics:
        """Return what the percentiles of groups 0 .. groups_n - 1 are interpolated from.

        Percentile q of n values lies at position q * (n - 1) / 100 of the sorted values (numpy's
        default, linear); its integer part and the rest in hundredths are exact here.
        """
        n = summed(self.group, self.count, groups_n)
        position = np.multiply.outer(np.maximum(n - 1, 0), np.array(PERCENTS, dtype=np.int64))
        index, hundredths = np.divmod(position, 100)
        if self.group.size == 0:
            return OrderStatistics(index * 0, index * 0, hundredths)
        ends = np.cumsum(self.count)
        offset = (np.cumsum(n) - n)[:, None]
        last = np.maximum(n - 1, 0)[:, None]
        limit = self.value.size - 1
        low = self.value[np.minimum(np.searchsorted(ends, offset + index, side="right"), limit)]
        above = offset + np.minimum(index + 1, last)
        high = self.value[np.minimum(np.searchsorted(ends, above, side="right"), limit)]
        present = (n > 0)[:, None]
        return OrderStatistics(
            np.where(present, low, 0), np.where(present, high, 0), np.where(present, hundredths, 0)
        )

    def spread(self, groups_n: int) -> Spread:
        """Return how the values of groups 0 .. groups_n - 1 are spread."""
        return Spread(self.moments(groups_n), self.order_statistics(groups_n))


def interpolate(order: OrderStatistics) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return percentiles as float64 of shape (groups, len(PERCENTS)), as numpy's linear method."""
    step = (order.high - order.low) * order.hundredths
    return (order.low + step / 100.0).reshape(-1, len(PERCENTS))


def sample_std(moments: Moments) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the standard deviation (ddof 1) per group; NaN where there are fewer than two values.

    The variance is formed from exact integers, so nothing cancels.
    """
    n = moments.n.astype(object)
    total = moments.total.astype(object)
    spread = n * moments.squares - total * total
    pairs = n * (n - 1)
    result = np.full(moments.n.shape, np.nan)
    enough = moments.n > 1
    # Dividing Python integers rounds once, whatever their size.
    result[enough] = np.sqrt((spread[enough] / pairs[enough]).astype(np.float64))
    return result


def _counted(group: IntArray, value: IntArray, count: IntArray | None) -> ValueCounts:
    rows_n = group.size
    if rows_n == 0:
        return ValueCounts.empty()
    if int(value.max()) < _VALUE_LIMIT and int(group.max()) < _GROUP_LIMIT:
        packed = group << _VALUE_BITS
        packed |= value
        if count is None:
            packed.sort()
        else:
            order = np.argsort(packed, kind="stable")
            packed, count = packed[order], count[order]
        first = np.flatnonzero(begins_group(packed))
        group, value = packed[first] >> _VALUE_BITS, packed[first] & (_VALUE_LIMIT - 1)
    else:
        order = np.lexsort((value, group))
        group, value = group[order], value[order]
        count = None if count is None else count[order]
        first = np.flatnonzero(begins_group(group) | begins_group(value))
        group, value = group[first], value[first]
    repeats = np.diff(np.append(first, rows_n)) if count is None else np.add.reduceat(count, first)
    return ValueCounts(group, value, repeats.astype(np.int64))


def _sums_of_squares(value: IntArray, count: IntArray, first: IntArray) -> Any:
    """Return the exact sums of squares of runs that begin at `first`, as Python integers."""
    if int(value.max()) < _VALUE_LIMIT:
        # Half of the bits at a time, so that the sums stay below 2^63 up to some million rows.
        high, low = value >> _HALF_BITS, value & ((1 << _HALF_BITS) - 1)
        products = (high * high, 2 * high * low, low * low)
        if max(int(product.max()) for product in products) * int(count.sum()) < 1 << 63:
            sums = [np.add.reduceat(product * count, first).astype(object) for product in products]
            return ((sums[0] << _HALF_BITS) + sums[1] << _HALF_BITS) + sums[2]
    big = value.astype(object)
    return np.add.reduceat(big * big * count, first)

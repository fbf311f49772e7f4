"""How many earlier rows have the code of a row, for few of many rows. Pure numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nsys_llm.numeric.blocks import blocks, few_codes
from nsys_llm.numeric.grouping import distinct_codes, order_by_code, position_in_group
from nsys_llm.numeric.intervals import IntArray


def equals_before_n(
    codes_of: Callable[[slice], IntArray],
    rows_n: int,
    codes_n: int,
    wanted: IntArray,
    until: IntArray,
) -> IntArray:
    """Return how many of the first `until` codes equal the wanted one, for each of shape (k,).

    Args:
        codes_of: Returns the codes of neighboring rows.
        wanted: Shape (k,).
        until: Shape (k,).
    """
    known: IntArray | None = None
    if not few_codes(codes_n, rows_n):
        known, wanted = distinct_codes(wanted)
        codes_n = known.size + 1
    equal_n = np.zeros(wanted.shape, dtype=np.int64)
    counts = np.zeros(codes_n, dtype=np.int64)
    for block in blocks(rows_n, codes_n):
        codes = codes_of(block)
        if known is not None:
            place = np.searchsorted(known, codes)
            codes = np.where(np.append(known, -1)[place] == codes, place, known.size)
        some = np.flatnonzero((until >= block.start) & (until < block.stop))
        if some.size:
            within = _equals_within_n(codes, wanted[some], until[some] - block.start)
            equal_n[some] = counts[wanted[some]] + within
        counts += np.bincount(codes, minlength=codes_n)
    return equal_n


def _equals_within_n(codes: IntArray, wanted: IntArray, until: IntArray) -> IntArray:
    """Return the same for codes that are all there."""
    order = order_by_code(codes)
    ordered = codes[order]
    before_n = np.empty(codes.size, dtype=np.int64)
    before_n[order] = position_in_group(ordered)
    equal_n = before_n[until]
    # Where others begin at the same instant, the first of these rows may have another code.
    other = np.flatnonzero(codes[until] != wanted)
    if other.size:
        row, first = ordered * codes.size + order, wanted[other] * codes.size
        low, high = np.searchsorted(row, (first, first + until[other]))
        equal_n[other] = high - low
    return equal_n

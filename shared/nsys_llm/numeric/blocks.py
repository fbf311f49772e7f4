"""Long columns a part at a time: what is made of a part on the way stays small. Pure numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: So many rows are looked at together: 2 MB a column, which stay in the processor's cache.
_BLOCK: Final = 1 << 18
#: Of several columns, with what is made of them, so many stay in the fastest cache.
_SMALL_BLOCK: Final = 1 << 15
#: Sums by code are held for every code up to so many, or as many as there are rows.
_FEW_CODES: Final = 1 << 20


def blocks(rows_n: int, least: int = 0) -> Iterator[slice]:
    """Cut rows into blocks; `least` is how many rows a block has at least."""
    size = max(_BLOCK, least)
    for first in range(0, rows_n, size):
        yield slice(first, min(first + size, rows_n))


def small_blocks(rows_n: int) -> Iterator[slice]:
    """Cut rows into blocks of which temporary arrays stay in the processor's cache."""
    for first in range(0, rows_n, _SMALL_BLOCK):
        yield slice(first, min(first + _SMALL_BLOCK, rows_n))


def few_codes(codes_n: int, rows_n: int) -> bool:
    """Return whether sums of rows by code may be held for every code, whether it occurs or not."""
    return codes_n <= max(rows_n, _FEW_CODES)


def gathered(values: npt.NDArray[Any], index: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `values[index]`; numpy widens a narrow index, here a block of it at a time."""
    values_at = np.empty(index.shape, dtype=values.dtype)
    for block in blocks(index.size):
        values_at[block] = values[index[block]]
    return values_at

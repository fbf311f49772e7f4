"""Integer columns of leaf pages: `leaf.c`, where its library was built and lies beside this module.

A driver hands a table over value by value, which takes most of the time of reading one; the library
takes many pages apart in one pass. It is optional: without it, or with `NSYS_LLM_NATIVE=0`, the
driver gives the same numbers in more time.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.column_rows import constant_as_view

Bytes = npt.NDArray[np.uint8]

#: What has to follow the last page in memory, so that a window of bytes never ends outside.
PADDING_BYTES: Final = 256
#: What `leaf_abi` of a library says that is called as it is here.
_ABI: Final = 1
#: Set to one of these words, it leaves the library alone.
_SWITCH: Final = "NSYS_LLM_NATIVE"
_OFF: Final = ("0", "false", "no", "off")


class UnexpectedCell(Exception):
    """The pages hold something that is left to SQLite itself."""


class PageShape(NamedTuple):
    """Size of a page, and how much of it SQLite uses; bytes."""

    page_bytes: int
    usable_bytes: int


@lru_cache
def library() -> ctypes.CDLL | None:
    """Return the library; None where it is switched off, was not built, or is another version's."""
    if os.environ.get(_SWITCH, "").lower() in _OFF:
        return None
    # What install.py placed bears the name of its platform, a wheel's does not.
    file = Path(__file__).with_name(f"_leaf-{platform.machine()}.so")
    try:
        loaded = ctypes.CDLL(str(file if file.exists() else file.with_name("_leaf.so")))
        if loaded.leaf_abi() != _ABI:
            return None
    except (OSError, AttributeError):
        return None
    number, place = ctypes.c_int64, ctypes.c_void_p
    loaded.leaf_rows.restype = number
    loaded.leaf_rows.argtypes = [place, *[number] * 5, place, number, place, number]
    return loaded


def decoder() -> str:
    """Return what reads large tables in this process: `native`, or the driver, `adbc`."""
    return "native" if library() else "adbc"


def leaf_integers(
    raw: Bytes, shape: PageShape, fields_n: int, columns: Sequence[int]
) -> list[IntArray]:
    """Return columns of all rows of some leaf pages, in their order; NULL is `NULL_INT`.

    Args:
        raw: The pages one after the other, and `PADDING_BYTES` more.

    Returns:
        Each of shape (rows,), int64; a column with one value throughout is a view of that one.

    Raises:
        UnexpectedCell: The rows are not all simple (a row too long for its page, a number with a
            point, a text, a row of fewer columns), or there is no library.
    """
    if (loaded := library()) is None:
        raise UnexpectedCell
    pages = raw[:-PADDING_BYTES].reshape(-1, shape.page_bytes)
    most_rows = int(pages[:, 3].sum(dtype=np.int64) << 8) + int(pages[:, 4].sum(dtype=np.int64))
    if 2 * most_rows > pages.size:  # a pointer of 2 bytes each
        raise UnexpectedCell
    wanted = np.array(columns, dtype=np.int64)
    values = np.empty((wanted.size, most_rows), dtype=np.int64)
    rows_n = loaded.leaf_rows(
        raw.ctypes.data,
        len(pages),
        shape.page_bytes,
        shape.usable_bytes,
        NULL_INT,
        fields_n,
        wanted.ctypes.data,
        wanted.size,
        values.ctypes.data,
        most_rows,
    )
    if rows_n != most_rows:
        raise UnexpectedCell
    return [constant_as_view(column) for column in values]

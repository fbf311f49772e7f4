"""Integer columns of a large SQLite table, read from the file's pages and not through a driver.

For tables of traces this takes a third to a fifth of the processor time of the fastest driver. It
is for plain tables of finished exports; `read_integers` raises `UnexpectedCell` for all else.

`leaf.c` takes many leaf pages apart in one pass, where its library was built and lies beside this
module. Without it, or with `NSYS_LLM_NATIVE=0`, the driver gives the same numbers in more time.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.column_rows import ColumnRows, TooManyRows, constant_as_view

#: From pages to their columns.
Decoder = Callable[[IntArray], list[IntArray]]

_HEADER_BYTES: Final = 100
_ROLLBACK_JOURNAL: Final = b"\x01\x01"
_TABLE_INTERIOR: Final = 5
_INTERIOR_HEADER_BYTES: Final = 12
#: A tree of 2^31 pages is less deep.
_DEEPEST: Final = 20
#: What is decoded at a time: its columns stay in the processor's cache.
_BATCH_BYTES: Final = 1 << 21
_THREADS_N: Final = 2
#: A pointer of 2 bytes, a length, a row id, a header's length and one type.
_LEAST_CELL_BYTES: Final = 6


def read_integers(
    path: Path, root_page: int, fields_n: int, columns: Sequence[int], most_rows: int
) -> list[npt.NDArray[Any]]:
    """Read columns of all rows, in the order of row ids; NULL is `NULL_INT`.

    Args:
        path: A database that is not in WAL mode.
        root_page: Of the table, from `sqlite_master`.
        most_rows: What the table has at most, from its row ids.

    Returns:
        Each of shape (rows,), int64 or narrower; a column with one value throughout is a view of
        that one, and takes no memory.

    Raises:
        UnexpectedCell: The file has to be read by SQLite itself, or has changed meanwhile.
        OSError: The file cannot be read.
    """
    before = path.stat()
    shape = _page_shape(path)
    leaves = _leaves(path, shape, root_page, before.st_size // shape.page_bytes)
    step = max(_BATCH_BYTES // shape.page_bytes, 1)
    batches = [leaves[first : first + step] for first in range(0, leaves.size, step)]

    def decoded(pages: IntArray) -> list[IntArray]:
        return leaf_integers(_load(path, shape, pages), shape, fields_n, columns)

    most_rows = min(most_rows, leaves.size * shape.page_bytes // _LEAST_CELL_BYTES)
    filled = [ColumnRows(most_rows) for _ in columns]
    try:
        for parts in _mapped(decoded, batches):
            for column, part in zip(filled, parts, strict=True):
                column.add(part)
    except TooManyRows as error:
        raise UnexpectedCell from error
    after = path.stat()
    if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
        raise UnexpectedCell
    return [column.rows() for column in filled]


def _mapped(decoded: Decoder, batches: Sequence[IntArray]) -> Iterator[list[IntArray]]:
    """Yield the columns of each batch in order, made by threads where there are several."""
    if len(batches) < _THREADS_N:
        yield from map(decoded, batches)
        return
    with ThreadPoolExecutor(_THREADS_N) as threads:
        # As many as are decoded at a time, and one more each: what all threads made before it is
        # put together would take as much room as the columns once more.
        ahead = deque(threads.submit(decoded, pages) for pages in batches[: 2 * _THREADS_N])
        for pages in batches[2 * _THREADS_N :]:
            yield ahead.popleft().result()
            ahead.append(threads.submit(decoded, pages))
        while ahead:
            yield ahead.popleft().result()


def _page_shape(path: Path) -> PageShape:
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or header[18:20] != _ROLLBACK_JOURNAL:
        raise UnexpectedCell
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    if page_bytes < 512:
        raise UnexpectedCell
    return PageShape(page_bytes, page_bytes - header[20])


def _leaves(path: Path, shape: PageShape, root_page: int, pages_n: int) -> IntArray:
    """Return the leaf pages of a table's tree in their order, the first page of a file being 1."""
    level = np.array([root_page])
    for _ in range(_DEEPEST):
        # Page 1 begins with the file's header, and is no table of ours.
        if level.min() < 2 or level.max() > pages_n or np.unique(level).size < level.size:
            raise UnexpectedCell
        if _load(path, shape, level[:1])[0] != _TABLE_INTERIOR:
            return level
        interior = (_load(path, shape, page) for page in level[:, None])
        level = np.concatenate([_children(page, shape) for page in interior])
    raise UnexpectedCell


def _children(page: Bytes, shape: PageShape) -> IntArray:
    """Return the pages below an interior page."""
    cells_n = int.from_bytes(page[3:5].tobytes(), "big")
    pointers_end = _INTERIOR_HEADER_BYTES + 2 * cells_n
    if page[0] != _TABLE_INTERIOR or pointers_end > shape.usable_bytes:
        raise UnexpectedCell
    cell = page[_INTERIOR_HEADER_BYTES:pointers_end].view(">u2").astype(np.int64)
    if (cell > shape.usable_bytes - 4).any():
        raise UnexpectedCell
    left = page[cell[:, None] + np.arange(4)].view(">u4")[:, 0].astype(np.int64)
    return np.append(left, int.from_bytes(page[8:12].tobytes(), "big"))


def _load(path: Path, shape: PageShape, pages: IntArray) -> Bytes:
    """Read pages, neighbors at once, and add the padding."""
    buffer = bytearray(pages.size * shape.page_bytes + PADDING_BYTES)
    view = memoryview(buffer)
    cuts = [0, *(np.flatnonzero(np.diff(pages) != 1) + 1).tolist(), pages.size]
    with path.open("rb", buffering=0) as file:
        for low, high in pairwise(cuts):
            part = view[low * shape.page_bytes : high * shape.page_bytes]
            file.seek((int(pages[low]) - 1) * shape.page_bytes)
            if file.readinto(part) != len(part):
                raise UnexpectedCell
    return np.frombuffer(buffer, dtype=np.uint8)


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

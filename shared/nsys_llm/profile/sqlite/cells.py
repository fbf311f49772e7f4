"""Integer columns out of the leaf pages of an SQLite table, many pages at a time. Pure numpy.

A driver hands a table over value by value, which takes most of the time of reading one. Here the
bytes of the pages are taken apart by columns: rows whose record headers are equal have each value
at the same place and in the same width, and a trace has but some dozens of different headers.

The format is that of https://www.sqlite.org/fileformat2.html, sections 1.6 (pages and cells) and
2.1 (records). Every place is checked against the bounds of its page and every length against the
next before anything is read there; whatever is not as simple as traces are (a row too long for its
page, a number with a point, a text, a row of fewer columns) raises `UnexpectedCell`, and the caller
asks SQLite itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.column_rows import constant_as_view

Bytes = npt.NDArray[np.uint8]

#: What has to follow the last page in memory, so that a window of bytes never ends outside.
PADDING_BYTES: Final = 256

_TABLE_LEAF: Final = 13
_LEAF_HEADER_BYTES: Final = 8
#: A varint of 8 bytes with 7 bits each and one of 8.
_LONGEST_VARINT: Final = 9
#: Bytes of a value by its serial type; 8 and 9 are the numbers 0 and 1, which take no room.
_WIDTHS: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_CONSTANTS: Final = {0: NULL_INT, 8: 0, 9: 1}
_FLOAT: Final = 7
_FIRST_TEXT_OR_BLOB: Final = 12
#: With more kinds of rows than this among some thousands, SQLite itself is as fast.
_MOST_KINDS: Final = 1024
#: Odd, with bits all over (2^64 over the golden ratio): spreads words of headers over 64 bits.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
#: Masks of the first 0 to 8 bytes of a little-endian word.
_FIRST_BYTES: Final = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)


class UnexpectedCell(Exception):
    """The pages hold something that is left to SQLite itself."""


class PageShape(NamedTuple):
    """Size of a page, and how much of it SQLite uses; bytes."""

    page_bytes: int
    usable_bytes: int


class _CellField(NamedTuple):
    """Where a value stands in the body of a record; `constant` where it takes no room."""

    offset: int
    width: int
    constant: int | None


def leaf_integers(
    raw: Bytes, shape: PageShape, fields_n: int, columns: Sequence[int]
) -> list[IntArray]:
    """Return columns of all rows of some leaf pages, in their order; NULL is `NULL_INT`.

    Args:
        raw: The pages one after the other, and `PADDING_BYTES` more.
        fields_n: How many columns the table has.
        columns: Which to return, by position.

    Returns:
        Each of shape (rows,), int64; a column with one value throughout is a view of that one.

    Raises:
        UnexpectedCell: The rows are not all simple; see above.
    """
    at, length = _records(raw, *_cells(raw, shape), shape)
    if not at.size:
        return [np.empty(0, dtype=np.int64) for _ in columns]
    headers, kind = _kinds(raw, at)
    layouts = [_layout(header, fields_n, tuple(columns)) for header in headers]
    whole = np.array(
        [len(header) + body for header, (body, _) in zip(headers, layouts, strict=True)]
    )
    _expect(bool((whole[kind] == length).all()))
    body = at + np.array([len(header) for header in headers])[kind]
    fields = zip(*(fields for _, fields in layouts), strict=True)
    return [_values(raw, body, kind, field) for field in fields]


def _expect(condition: bool) -> None:
    if not condition:
        raise UnexpectedCell


def _windows(raw: Bytes, dtype: str) -> npt.NDArray[Any]:
    """View the bytes as items of a type that begin at every byte."""
    item = np.dtype(dtype)
    return np.ndarray((raw.size - item.itemsize + 1,), item, raw, strides=(1,))


def _cells(raw: Bytes, shape: PageShape) -> tuple[IntArray, IntArray]:
    """Return where each cell begins and where its page ends."""
    page = np.arange(0, raw.size - PADDING_BYTES, shape.page_bytes)
    _expect(bool((raw[page] == _TABLE_LEAF).all()))
    words = _windows(raw, ">u2")
    cells_n = words[page + 3].astype(np.int64)
    pointers_end = _LEAF_HEADER_BYTES + 2 * cells_n
    _expect(bool((pointers_end <= shape.usable_bytes).all()))
    before = np.cumsum(cells_n) - cells_n
    pointer = np.repeat(page + _LEAF_HEADER_BYTES - 2 * before, cells_n)
    pointer += 2 * np.arange(pointer.size)
    within = words[pointer].astype(np.int64)
    _expect(bool((within >= np.repeat(pointers_end, cells_n)).all()))
    start = np.repeat(page, cells_n)
    end = start + shape.usable_bytes
    cell = start + within
    _expect(bool((cell < end).all()))
    return cell, end


def _records(
    raw: Bytes, cell: IntArray, end: IntArray, shape: PageShape
) -> tuple[IntArray, IntArray]:
    """Return where each record begins, and its length: behind the cell's length and row id."""
    length = raw[cell].astype(np.int64)
    at = cell + 1
    if (two := length > 127).any():
        second = raw[at].astype(np.int64)
        _expect(not (two & (second > 127)).any())
        length = np.where(two, (length & 127) << 7 | second, length)
        at += two
    more = raw[at] > 127
    at += 1
    for _ in range(_LONGEST_VARINT - 1):
        if not more.any():
            break
        following = raw[at] > 127
        at += more
        more &= following
    # A longer record goes on in pages of its own (section 1.6).
    _expect(bool((length <= shape.usable_bytes - 35).all() and (at + length <= end).all()))
    return at, length


def _kinds(raw: Bytes, at: IntArray) -> tuple[list[bytes], IntArray]:
    """Return the distinct record headers, and which of them each record has."""
    size = raw[at]
    longest = int(size.max())
    _expect(int(size.min()) > 0 and longest <= 127)
    digest = np.zeros(at.size, dtype=np.uint64)
    varying = []
    for first in range(0, longest, 8):
        word = _windows(raw, "<u8")[at + first]
        if (size < first + 8).any():
            # What follows a header belongs to the values.
            word &= _FIRST_BYTES[np.clip(size.astype(np.int64) - first, 0, 8)]
        if (word == word[0]).all():
            continue
        varying.append(word)
        digest = (digest ^ word) * _SPREAD
        digest ^= digest >> np.uint64(29)
    # Sorting takes a tenth of the time of np.unique.
    ordered = np.sort(digest)
    distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    _expect(distinct.size <= _MOST_KINDS)
    kind = np.searchsorted(distinct, digest)
    example = np.empty(distinct.size, dtype=np.int64)
    example[kind] = np.arange(at.size)
    # Equal digests prove nothing.
    _expect(all((word[example][kind] == word).all() for word in varying))
    return [raw[at[row] : at[row] + size[row]].tobytes() for row in example.tolist()], kind


@lru_cache(maxsize=4096)
def _layout(
    header: bytes, fields_n: int, columns: tuple[int, ...]
) -> tuple[int, tuple[_CellField, ...]]:
    """Return the length of the body that a record header speaks of, and the columns in it."""
    fields, types, offset, serial = [], [], 0, 0
    for byte in header[1:]:
        serial = serial << 7 | byte & 127
        if byte > 127:
            continue
        if serial >= _FIRST_TEXT_OR_BLOB:
            width = (serial - _FIRST_TEXT_OR_BLOB) // 2
        else:
            _expect(serial < len(_WIDTHS))
            width = _WIDTHS[serial]
        fields.append(_CellField(offset, width, _CONSTANTS.get(serial)))
        types.append(serial)
        offset, serial = offset + width, 0
    _expect(header[-1] <= 127 and len(fields) == fields_n)
    _expect(
        all(types[column] < _FIRST_TEXT_OR_BLOB and types[column] != _FLOAT for column in columns)
    )
    return offset, tuple(fields[column] for column in columns)


def _values(raw: Bytes, body: IntArray, kind: IntArray, fields: Sequence[_CellField]) -> IntArray:
    """Return one column: big-endian integers of up to 8 bytes, or what takes no room."""
    constants = [field.constant for field in fields]
    if None not in constants:
        values = np.array(constants, dtype=np.int64)[kind]
    else:
        offset = np.array([field.offset for field in fields])
        at = body + (offset[0] if (offset == offset[0]).all() else offset[kind])
        shift = np.array([64 - 8 * max(field.width, 1) for field in fields])
        values = _windows(raw, ">i8")[at].astype(np.int64)
        values >>= shift[0] if (shift == shift[0]).all() else shift[kind]
        for code, constant in enumerate(constants):
            if constant is not None:
                values[kind == code] = constant
    return constant_as_view(values)

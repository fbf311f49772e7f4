"""Texts out of Arrow, whatever bytes a profile holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def texts(column: Any) -> npt.NDArray[Any]:
    """Return a text column as an object array of str, with None for null.

    A name may have been cut off in the middle of a character: bytes that are no UTF-8 are escaped.

    Raises:
        pyarrow.ArrowInvalid: The column holds something else than text.
    """
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    if not any(is_kind(column.type) for is_kind in kinds):
        raise pa.ArrowInvalid(f"{column.type} stands where texts belong")
    if isinstance(column, pa.ChunkedArray):
        parts = [texts(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=object)
    if pa.types.is_null(column.type):
        return np.full(len(column), None, dtype=object)
    try:
        # Each distinct text is decoded, and kept, once.
        encoded = column.dictionary_encode()
        words = np.asarray(encoded.dictionary.to_numpy(zero_copy_only=False), dtype=object)
        place = encoded.indices.fill_null(len(words)).to_numpy()
        return np.append(words, np.array([None], dtype=object))[place]
    except (pa.ArrowException, UnicodeDecodeError):
        raw = column.cast(pa.large_binary()).to_pylist()
        decoded = [
            item if item is None else item.decode("utf-8", "backslashreplace") for item in raw
        ]
        return np.array(decoded, dtype=object)


def hex_texts(column: Any, most_n: int) -> npt.NDArray[Any]:
    """Return a column of bytes as texts of two digits each, with None for null.

    Args:
        most_n: Bytes of each value that are taken.

    Raises:
        pyarrow.ArrowInvalid: The column holds something else.
    """
    if pa.types.is_null(column.type):
        return np.full(len(column), None, dtype=object)
    raw = column.cast(pa.large_binary()).to_pylist()
    digits = [None if item is None else item[:most_n].hex() for item in raw]
    return np.array([*digits, None], dtype=object)[:-1]

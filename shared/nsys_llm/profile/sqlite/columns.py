"""Columns of an SQLite table through the driver: how to ask for them, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.arrow_text import texts
from nsys_llm.profile.sqlite.rows import quoted_name
from nsys_llm.profile.tables import TableSource


def selected(source: TableSource, column: str) -> str:
    """Return what to select for one of our columns."""
    name = quoted_name(source.columns[column])
    # ADBC takes a column's type from its first batch; a batch of NULLs would have none.
    null = "''" if source.is_text(column) else NULL_INT
    return name if column == "key" else f"coalesce({name}, {null})"


def concatenated(batches: Sequence[Any], column: str) -> npt.NDArray[Any]:
    """Return one column of all batches, int64 or texts.

    Args:
        batches: The column's part of each batch, pyarrow Arrays.
        column: Our name of it.

    Raises:
        pyarrow.ArrowInvalid: It holds something else.
    """
    # A batch without rows has whatever type the driver makes up for it.
    chunks = [chunk for chunk in batches if len(chunk)]
    if TableSource.is_text(column):
        parts = [texts(chunk) for chunk in chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=object)
    for chunk in chunks:
        if not pa.types.is_int64(chunk.type):
            raise pa.ArrowInvalid(f"column {column} holds {chunk.type} where integers belong")
    parts = [chunk.to_numpy(zero_copy_only=not chunk.null_count) for chunk in chunks]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

"""Tables made by hand, of which a test says only the cells that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import declared_frame

_EMPTY = {"int64": 0, "bool": True, "string": "x", "float64": 0.0}


def frame_of(
    table: str, rows: Sequence[Mapping[str, Any]], recipe: str = "llm_hotspots"
) -> pd.DataFrame:
    """Return a table with these rows; what they leave out is null, else 0, true or a text."""
    declared = load_manifest(recipe).table(table)
    return declared_frame(
        declared,
        {
            column.name: [
                row.get(column.name, None if column.nullable else _EMPTY[column.dtype])
                for row in rows
            ]
            for column in declared.columns
        },
    )


def coverage(
    rank: int, attributed_ns: int, total_ns: int = 1000, op: str = "kernel", **others: Any
) -> dict[str, Any]:
    """Return a row of `coverage` with 10 operations."""
    return {
        "rank": rank,
        "file": f"rank{rank}",
        "op": op,
        "total_n": 10,
        "total_ns": total_ns,
        "attributed_ns": attributed_ns,
        "api_missing_ns": total_ns - attributed_ns,
        "api_cut_n": 0,
        "api_cut_ns": 0,
        **others,
    }


def file(rank: int, status: str = "ok", reason: str | None = None) -> dict[str, Any]:
    return {"Rank": rank, "File": f"rank{rank}", "status": status, "reason": reason}

"""Findings on what few captures record: device memory, whole graphs.

Each rule on memory speaks once, of the worst rank, and says how many ranks are like it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, first_record

from .extra_texts import GROWTH_BYTES, GROWTH_PCT, NEAR_FULL_PCT, WHOLE_GRAPHS_PCT
from .texts import RULES

#: Time shown around an instant.
_AROUND_NS: Final = 1_000_000

_KEYS: Final = ("rank", "device_id", "kind")
_REPLAYS: Final = ("replays_n", "p50_ns", "between_p50_ns", "min_ns", "max_ns")
_QUARTERS: Final = ("quarter_bytes", "half_bytes", "three_quarter_bytes", "end_bytes")


def measured_findings(tables: Tables) -> list[Finding]:
    """Return the findings on memory_watermarks and memory_allocators."""
    return [*_near_full(tables), *_growth(tables)]


def _near_full(tables: Tables) -> list[Finding]:
    marks = tables["memory_watermarks"]
    full = marks[marks["peak_pct"].fillna(0.0) >= NEAR_FULL_PCT]
    if full.empty:
        return []
    worst = first_record(full.sort_values("peak_pct", ascending=False, kind="stable"))
    peak_ns = int(worst["peak_ns"])
    return [
        RULES["memory_near_full"].finding(
            evidence=cells(
                "memory_watermarks", worst, _KEYS, ["peak_pct", "peak_bytes", "total_bytes"]
            ),
            fields={
                "left_bytes": int(worst["total_bytes"] - worst["peak_bytes"]),
                **_who(tables, worst, "peak_bytes"),
            },
            **_place(full, worst),
            window_ns=(max(peak_ns - _AROUND_NS, 0), peak_ns + _AROUND_NS),
        )
    ]


def _growth(tables: Tables) -> list[Finding]:
    marks = tables["memory_watermarks"]
    levels = marks[list(_QUARTERS)]
    grown = marks["end_bytes"] - marks["quarter_bytes"]
    rises = (levels.diff(axis=1).iloc[:, 1:] > 0).all(axis=1) & (grown >= GROWTH_BYTES)
    rises &= (marks["kind"] != "host") & (100 * grown >= GROWTH_PCT * marks["quarter_bytes"])
    growing = marks[rises].assign(grown_bytes=grown[rises])
    if growing.empty:
        return []
    worst = first_record(growing.sort_values("grown_bytes", ascending=False, kind="stable"))
    return [
        RULES["memory_growth"].finding(
            evidence=cells("memory_watermarks", worst, _KEYS, _QUARTERS),
            fields={"grown_bytes": worst["grown_bytes"], **_who(tables, worst, "end_bytes")},
            **_place(growing, worst),
            window_ns=(int(worst["window_start_ns"]), int(worst["window_end_ns"])),
        )
    ]


def _place(rows: pd.DataFrame, worst: Record) -> dict[str, Any]:
    ranks = tuple(sorted(set(rows["rank"].tolist())))
    return {"ranks": ranks, "rank": worst["rank"], "device_id": worst["device_id"]}


def _who(tables: Tables, worst: Record, column: str) -> dict[str, Any]:
    """Return which API function most of the memory came from, and how much; None: not recorded."""
    rows = tables["memory_allocators"]
    for key in _KEYS:
        rows = rows[rows[key] == worst[key]]
    rows = rows[rows["api"].notna()].sort_values(column, ascending=False, kind="stable")
    most = first_record(rows) if len(rows) else {"api": None, column: None}
    return {"api": most["api"], "from_api_bytes": most[column]}


def graph_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the graph that takes most time, where graphs take much of it."""
    graphs = tables["cuda_graphs"]
    graphs = graphs[graphs["nodes_n"].isna()]  # the most time first
    whole = claim(tables, "window_ns", "devices", "window_ns")
    of = partial(claim, tables, nodes_n=None)
    share = of("share_pct", "cuda_graphs", "span_ns", "sum", whole)
    if (share.value or 0.0) < WHOLE_GRAPHS_PCT:
        return []
    row = first_record(graphs)
    return [
        RULES["whole_graphs"].finding(
            evidence=(
                *cells("cuda_graphs", row, ["rank", "device_id", "graph"], _REPLAYS),
                of("graphs_n", "cuda_graphs", "graph", "count"),
                share,
            ),
            rank=row["rank"],
            device_id=row["device_id"],
            impact_ns=int(row["span_ns"]),
        )
    ]

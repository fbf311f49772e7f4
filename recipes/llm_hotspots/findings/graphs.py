"""The remark on CUDA graphs that were traced whole: what is known of them all the same."""

from __future__ import annotations

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Tables, first_record

from .texts import RULES, WHOLE_GRAPHS_PCT


def graph_findings(tables: Tables) -> list[Finding]:
    """Return the remark on the graph that takes most time, where graphs take much of it."""
    replays = tables["graph_replays"]
    window_ns = int(tables["devices"]["window_ns"].sum())
    share_pct = 100.0 * int(replays["total_ns"].sum()) / window_ns if window_ns else 0.0
    if share_pct < WHOLE_GRAPHS_PCT:
        return []
    row = first_record(replays.sort_values("total_ns", ascending=False, kind="stable"))
    spread_pct = None
    if row["between_p50_ns"] is not None:
        spread_pct = 100.0 * (row["max_ns"] - row["min_ns"]) / row["p50_ns"]
    return [
        RULES["whole_graphs"].finding(
            evidence=cells(
                "graph_replays", row, ["rank", "device_id", "graph_id"], ["replays_n", "p50_ns"]
            ),
            fields={
                **{name: row[name] for name in ("min_ns", "max_ns", "between_p50_ns")},
                "share_pct": share_pct,
                "spread_pct": spread_pct,
                "others_n": len(replays) - 1,
            },
            rank=row["rank"],
            device_id=row["device_id"],
            impact_ns=int(row["total_ns"]),
        )
    ]

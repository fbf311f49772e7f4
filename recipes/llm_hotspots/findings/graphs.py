"""The remark on CUDA graphs that were traced whole: what is known of them all the same."""

from __future__ import annotations

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.numbers import Numbers
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
    numbers = Numbers()
    spread = ""
    if row["between_p50_ns"] is not None:
        spread_pct = 100.0 * (row["max_ns"] - row["min_ns"]) / row["p50_ns"]
        spread = (
            f" (within {numbers.percent('spread_pct', spread_pct)}), "
            f"{numbers.ns('between_p50_ns', row['between_p50_ns'])} apart"
        )
    others_n = len(replays) - 1
    more = f", {numbers.counted('others_n', others_n, 'other graph')} the rest" if others_n else ""
    return [
        RULES["whole_graphs"].finding(
            details=f"Whole graphs take {numbers.percent('share_pct', share_pct)} of the time"
            f"{more}; replays of this one {numbers.ns('min_ns', row['min_ns'])} to "
            f"{numbers.ns('max_ns', row['max_ns'])}.",
            evidence=cells(
                "graph_replays", row, ["rank", "device_id", "graph_id"], ["replays_n", "p50_ns"]
            ),
            numbers=numbers.fields,
            fields={
                "replays": numbers.counted("replays_n", row["replays_n"], "replay"),
                "take": "takes" if row["replays_n"] == 1 else "take",
                "length": numbers.ns("p50_ns", row["p50_ns"]),
                "spread": spread,
            },
            rank=row["rank"],
            device_id=row["device_id"],
            impact_ns=int(row["total_ns"]),
        )
    ]

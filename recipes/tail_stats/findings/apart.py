"""The remark on captures that start apart."""

from __future__ import annotations

import pandas as pd

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import records
from nsys_llm.view.text import format_ns

from .texts import LEFT_OUT_NS, RULES


def apart_findings(clocks: pd.DataFrame) -> list[Finding]:
    """Say what is left out of waiting because not all profiles recorded yet."""
    left_out_ns = int(clocks["left_out_ns"].sum())
    if left_out_ns < LEFT_OUT_NS:
        return []
    last = records(clocks.sort_values("recorded_after_ns", ascending=False, kind="stable"))[0]
    return [
        RULES["captures_apart"].finding(
            details=f"In collectives that began before, the ranks spent {format_ns(left_out_ns)} "
            f"until then; what comes after counts.",
            fields={
                "rank": last["rank"],
                "apart": format_ns(last["recorded_after_ns"]),
                "waiting": format_ns(left_out_ns),
            },
            evidence=cells("rank_clocks", last, ("rank",), ("recorded_after_ns", "left_out_ns")),
            rank=int(last["rank"]),
            impact_ns=left_out_ns,
        )
    ]

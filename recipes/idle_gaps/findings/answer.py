"""What idle_gaps tells its reader: the answer in two sentences, and findings.

Made from finished tables alone; devices whose idle time is not known have no part in it.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from .causes import cause_findings
from .cross_rank_idle import rank_findings

_TOP_CAUSES: Final = 3


def answer(tables: Tables) -> str:
    """Return why the GPUs were idle, in two sentences."""
    devices, sums = tables["devices"], tables["cause_sums"]
    known = devices[devices["known"] & (devices["window_ns"] > 0)]
    if known.empty:
        if (unknown := devices[~devices["known"]]).size:
            cut = (unknown["graphs_cut_n"] == unknown["opaque_launches_n"]).all()
            why = (
                "the window reaches beyond the last operation, and CUDA graphs were running when "
                "the capture ended. Leave out `--whole-capture`, or end the window there."
                if cut
                else "CUDA graphs were launched whose work is not in the reports. Record them with "
                "`--cuda-graph-trace=node`."
            )
            return f"Idle time is not known: {why}"
        return (
            "Nothing ran on a GPU in what was looked at. `coverage` says what the reports hold, "
            "and what a filter left of it."
        )
    idle_ns, window_ns = int(known["idle_ns"].sum()), int(known["window_ns"].sum())
    ranks_n = known["rank"].nunique()
    where = counted(ranks_n, "rank")
    if len(known) < len(devices):
        where += f"; not known on {format_count(len(devices) - len(known))} devices more"
    first = (
        f"The GPUs ran nothing for {format_percent(100 * idle_ns / window_ns)} of their windows "
        f"({format_ns(idle_ns)} of {format_ns(window_ns)}, {where})"
    )
    if sums.empty or not idle_ns:
        return f"{first}. There is no idle time to explain."
    top = sums[sums["idle_ns"] > 0].head(_TOP_CAUSES)
    shares = [
        f"{quoted(row['cause'])} {format_percent(row['idle_pct'])} ({row['meaning']})"
        for row in top.to_dict("records")
    ]
    longest_ns = int(known["gap_max_ns"].max())
    return (
        f"{first}, in {format_count(known['gaps_n'].sum())} gaps of up to {format_ns(longest_ns)}. "
        f"Most of it: {'; '.join(shares)}."
    )


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [*cause_findings(tables), *rank_findings(tables)]

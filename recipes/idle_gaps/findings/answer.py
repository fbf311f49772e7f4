"""What idle_gaps reports: the answer in two sentences, and findings.

Made from finished tables alone.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from nsys_llm.report.answers import nothing_ran
from nsys_llm.report.findings import Finding
from nsys_llm.report.host_words import host_sentence
from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.taxonomy.idle_causes import CAUSES
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.trace.device_ops import CAPTURE, SELECTED, WINDOW
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from .capture import capture_findings
from .causes import cause_findings

_TOP_CAUSES: Final = 3
#: Percentage points of the window between idle time with and without copies, worth a word; ours.
_KERNEL_ONLY_POINTS: Final = 5.0


def answer(tables: Tables) -> str:
    """Return why the GPU that is idle most was idle, in two sentences."""
    devices = tables["devices"]
    known = devices[devices["window_ns"] > 0]
    if known.empty:
        return nothing_ran(tables)
    row = records(known.loc[[known["idle_ns"].astype("int64").idxmax()]])[0]
    several = len(known) > 1
    share = format_percent(row["idle_pct"])
    where = f"Rank {row['rank']}'s GPU" if several else "The GPU"
    first = (
        f"{where} is idle for {share} of the time ({format_ns(row['idle_ns'])} of "
        f"{format_ns(row['window_ns'])}) in {format_count(row['gaps_n'])} gaps of up to "
        f"{format_ns(row['gap_max_ns'])}{_others(known)}{_lost(row)}"
    )
    if not row["idle_ns"] and not row["not_recorded_ns"]:
        return f"{where} is never idle. There is no idle time to explain."
    if row["idle_pct"] < LIMITS_PCT["low"]:
        return f"{first}. There is almost nothing to gain."
    wall = tables["wall"]
    of_gpu = (wall["rank"] == row["rank"]) & (wall["device_id"] == row["device_id"])
    causes = wall[of_gpu & (wall["wall_class"] == IDLE) & (wall["time_ns"] > 0)]
    host = host_sentence(tables, (row["rank"], row["device_id"]))
    causes = causes.sort_values("time_ns", ascending=False, kind="stable")
    causes = causes.head(_TOP_CAUSES - bool(host))
    shares = [
        f"{format_percent(cell['share_pct'])} {quoted(cell['detail'])} ({CAUSES[cell['detail']]})"
        for cell in records(causes)
    ]
    return f"{first}. Of the time: {'; '.join(shares)}.{host}"


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    return [*cause_findings(tables), *rank_findings(tables), *capture_findings(tables)]


def _others(devices: pd.DataFrame) -> str:
    """Return words about the other GPUs."""
    if len(devices) < 2:
        return ""
    shares = devices["idle_pct"]
    low, high = format_percent(shares.min()), format_percent(shares.max())
    return f"; the {counted(len(devices), 'GPU')}: {low} to {high}"


def _lost(row: Record) -> str:
    """Return words about the time of a GPU in which work may have run that left no row."""
    lost_pct = percent(row["not_recorded_ns"], row["window_ns"])
    return f"; {format_percent(lost_pct)} more is not recorded" if lost_pct else ""


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return [*_windows(tables), *_kernel_only(tables)]


def _windows(tables: Tables) -> list[str]:
    sources = set(tables["devices"]["windowed_by"])
    if WINDOW in sources:
        return [
            "Gaps are cut to the window of the filter, and that to the capture; idle time at its "
            "edges counts."
        ]
    if CAPTURE in sources:
        return [
            "The window is the whole capture: before the first and after the last operation the "
            "GPU was idle too. Of an export that was cut to a part of the capture, this says "
            "nothing."
        ]
    if SELECTED in sources:
        return [
            "The filter chooses operations: the window reaches from the first to the last of them, "
            "and other operations on the device in between count as busy."
        ]
    return []


def _kernel_only(tables: Tables) -> list[str]:
    devices = tables["devices"]
    known = devices[devices["window_ns"] > 0]
    more = (known["kernel_only_idle_pct"] - known["idle_pct"]).dropna()
    if more.empty or more.max() < _KERNEL_ONLY_POINTS:
        return []
    row = known.loc[more.idxmax()]
    return [
        f"Rank {row['rank']} copied for {format_ns(row['copy_only_ns'])} without a kernel. Tools "
        "that look only at kernels report it as "
        f"{format_percent(row['kernel_only_idle_pct'])} idle; "
        f"it was {format_percent(row['idle_pct'])}."
    ]

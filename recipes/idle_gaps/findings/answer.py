"""What idle_gaps reports: the answer in two sentences, and findings."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.answers import nothing_ran
from nsys_llm.report.findings import Finding
from nsys_llm.report.host_words import host_sentence
from nsys_llm.report.price import LIMITS_PCT
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Tables, percent, records
from nsys_llm.taxonomy.idle_causes import CAUSES
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.trace.device_ops import CAPTURE, SELECTED, WINDOW
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from .capture import capture_findings
from .causes import cause_findings

_TOP_CAUSES: Final = 3
#: Percentage points of the window between idle time with and without copies, worth a word; ours.
_KERNEL_ONLY_POINTS: Final = 5.0
#: What windows are, by what makes them; the first that is there is said.
_WINDOWS: Final = {
    WINDOW: "Gaps are cut to the window of the filter, and that to the capture; idle time at its "
    "edges counts.",
    CAPTURE: "The window is the whole capture: before the first and after the last operation the "
    "GPU was idle too. Of an export that was cut to a part of the capture, this says nothing.",
    SELECTED: "The filter chooses operations: the window reaches from the first to the last of "
    "them, and other operations on the device in between count as busy.",
}


def answer(tables: Tables) -> str:
    """Return why the GPU that is idle most was idle, in two sentences."""
    devices = tables["devices"]
    known = devices[devices["window_ns"] > 0]
    if known.empty:
        return nothing_ran(tables)
    row = records(known.loc[[known["idle_ns"].astype("int64").idxmax()]])[0]
    share, where, others = format_percent(row["idle_pct"]), "The GPU", ""
    if len(known) > 1:
        low, high = (format_percent(ends) for ends in known["idle_pct"].agg(["min", "max"]))
        where = f"Rank {row['rank']}'s GPU"
        others = f"; the {counted(len(known), 'GPU')}: {low} to {high}"
    # In it work may have run that left no row.
    lost_pct = percent(row["not_recorded_ns"], row["window_ns"])
    lost = f"; {format_percent(lost_pct)} more is not recorded" if lost_pct else ""
    first = (
        f"{where} is idle for {share} of the time ({format_ns(row['idle_ns'])} of "
        f"{format_ns(row['window_ns'])}) in {format_count(row['gaps_n'])} gaps of up to "
        f"{format_ns(row['gap_max_ns'])}{others}{lost}"
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


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    sources = set(tables["devices"]["windowed_by"])
    of_windows = [words for source, words in _WINDOWS.items() if source in sources]
    return [*of_windows[:1], *_kernel_only(tables)]


def _kernel_only(tables: Tables) -> list[str]:
    devices = tables["devices"]
    known = devices[devices["window_ns"] > 0]
    more = (known["kernel_only_idle_pct"] - known["idle_pct"]).dropna()
    if more.empty or more.max() < _KERNEL_ONLY_POINTS:
        return []
    row = known.loc[more.idxmax()]
    return [
        f"Rank {row['rank']} copied for {format_ns(row['copy_only_ns'])} without a kernel. Tools "
        f"that look only at kernels report it as {format_percent(row['kernel_only_idle_pct'])} "
        f"idle; it was {format_percent(row['idle_pct'])}."
    ]

"""What to know before reading idle times: the window, and copies."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.records import Tables
from nsys_llm.trace.device_ops import CAPTURE, SELECTED, WINDOW
from nsys_llm.view.text import format_ns, format_percent

#: Percentage points of the window between idle time with and without copies, worth a word; ours.
_KERNEL_ONLY_POINTS: Final = 5.0


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

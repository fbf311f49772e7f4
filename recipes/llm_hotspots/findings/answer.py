"""What llm_hotspots tells its reader: the answer in two sentences, and findings.

Made from finished tables alone.
"""

from __future__ import annotations

from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables
from nsys_llm.view.text import counted, format_ns, format_percent, listed, quoted

from .apis import wait_findings
from .balance import balance_findings
from .bandwidth import bandwidth_findings
from .categories import category_findings
from .details import detail_findings
from .engine_words import in_words_of
from .launches import launch_findings
from .memops import copy_findings
from .secrets import secret_findings

_TOP_CATEGORIES: Final = 3
_ALSO_SYNC_MEMOP: Final = frozenset({"synchronous_copies", "synchronous_fills"})


def answer(tables: Tables) -> str:
    """Return where the GPU time goes, in two sentences."""
    devices, categories = tables["devices"], tables["categories"]
    busy_ns, window_ns = int(devices["kernel_busy_ns"].sum()), int(devices["window_ns"].sum())
    if not busy_ns or not window_ns:
        return (
            "No kernel took any time in what was looked at. `coverage` says what the reports hold, "
            "and what a filter left of it."
        )
    ranks_n, devices_n = devices["rank"].nunique(), len(devices)
    where = counted(ranks_n, "rank")
    if devices_n != ranks_n:
        where += f" with {counted(devices_n, 'device')}"
    first = (
        f"At least one kernel ran for {format_percent(100 * busy_ns / window_ns)} of the window "
        f"({format_ns(busy_ns)} of {format_ns(window_ns)}, {where}"
        f"{' together' if devices_n > 1 else ''})."
    )
    top = categories[categories["exclusive_ns"] > 0].head(_TOP_CATEGORIES)
    shares = [
        f"{quoted(name)} {format_percent(share)}"
        for name, share in zip(top["category"], top["busy_pct"], strict=True)
    ]
    heaviest = tables["kernels"].iloc[0]
    return (
        f"{first} The largest {'parts' if len(shares) > 1 else 'part'} of that "
        f"{'are' if len(shares) > 1 else 'is'} {listed(shares)}; the heaviest kernel is "
        f"{quoted(heaviest['name'])} with {format_percent(heaviest['busy_pct'])}."
    )


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    found = [
        *balance_findings(tables),
        *bandwidth_findings(tables),
        *category_findings(tables),
        *copy_findings(tables),
        *detail_findings(tables),
        *launch_findings(tables),
        *secret_findings(tables),
        *wait_findings(tables),
    ]
    # Both are about the same calls; what they cost the host says more than how long they run.
    if any(one.rule == "sync_memop" for one in found):
        found = [one for one in found if one.rule not in _ALSO_SYNC_MEMOP]
    engines = tables["categories"]["engine"]
    return in_words_of(str(engines.iloc[0]) if len(engines) else None, found)

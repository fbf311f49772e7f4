"""What llm_hotspots says to its reader: the answer in some sentences, and findings.

Made from finished tables alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from nsys_llm.report.findings import Finding, opportunities, ranked
from nsys_llm.report.gains import LIMITS_PCT, gain_words
from nsys_llm.report.records import Tables
from nsys_llm.report.wall_line import WallLine, wall_lines
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.wall_classes import COMPUTE, IDLE
from nsys_llm.view.text import counted, format_percent, listed, quoted

from .balance import balance_findings
from .bandwidth import bandwidth_findings
from .categories import category_findings
from .details import detail_findings
from .engine_words import in_words_of
from .levers import lever_findings
from .memops import copy_findings
from .secrets import secret_findings

_TOP_CATEGORIES: Final = 3
_TOP_CLASSES: Final = 2
_CAUSES: Final = "`nsys recipe idle_gaps` lists its causes"


def answer(tables: Tables) -> str:
    """Return where the GPU time goes and what would gain most of it, in some sentences."""
    lines = wall_lines(tables)
    if not lines or not int(tables["devices"]["kernel_busy_ns"].sum()):
        return (
            "No kernel took any time in what was looked at. `coverage` says what the profiles "
            "hold, and what a filter left of it."
        )
    shares = {part.label: part.share_pct for part in lines[0].classes}
    return " ".join([*_split(lines[0], shares, tables), *_levers(shares, tables)])


def _split(line: WallLine, shares: Mapping[str, float], tables: Tables) -> Iterator[str]:
    """Yield the classes of the wall split, and what the kernel time is made of."""
    where = "The GPU computes" if line.gpus_n == 1 else f"{counted(line.gpus_n, 'GPU')} compute"
    rest = [
        f"{name} {format_percent(share)}"
        for name, share in shares.items()
        if name != COMPUTE and share >= min(LIMITS_PCT.values())
    ][:_TOP_CLASSES]
    besides = f"; next {'is' if len(rest) == 1 else 'are'} {listed(rest)}" if rest else ""
    yield f"{where} for {format_percent(shares.get(COMPUTE, 0.0))} of the time{besides}."
    categories = tables["categories"]
    known = categories[(categories["exclusive_ns"] > 0) & (categories["category"] != UNMATCHED)]
    top = known.head(_TOP_CATEGORIES)
    kinds = [
        f"{quoted(name)} {format_percent(share)}"
        for name, share in zip(top["category"], top["busy_pct"], strict=True)
    ]
    if kinds:
        yield f"Of kernel time, {listed(kinds)}."


def _levers(shares: Mapping[str, float], tables: Tables) -> Iterator[str]:
    """Yield the largest gain, and where to look where idle time is more than that."""
    found = opportunities(ranked(findings(tables)))
    gain = found[0].gain if found else None
    least_pct, idle_pct = min(LIMITS_PCT.values()), shares.get(IDLE, 0.0)
    if idle_pct >= max(shares.values()):
        yield f"Look at the idle time first: {_CAUSES}."
    if gain is None:
        yield f"No finding here would gain {format_percent(least_pct)}."
    else:
        yield f"Largest gain among the findings: {found[0].title} ({gain_words(gain)})."
    if max(shares.values()) > idle_pct >= max(least_pct, gain.gain_pct if gain else 0.0):
        yield f"Idle time is more than that: {_CAUSES}."


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    found = [
        *balance_findings(tables),
        *bandwidth_findings(tables),
        *category_findings(tables),
        *copy_findings(tables),
        *detail_findings(tables),
        *lever_findings(tables),
        *secret_findings(tables),
    ]
    engines = tables["categories"]["engine"]
    return in_words_of(str(engines.iloc[0]) if len(engines) else None, found)

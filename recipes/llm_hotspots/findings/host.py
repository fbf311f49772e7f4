"""What the findings about the host share: shares of a window, and where to look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from nsys_llm.report.findings import Finding, ranked
from nsys_llm.view.text import format_count, format_ns

Row = Mapping[str, Any]
Tables = Mapping[str, pd.DataFrame]

# Shares of a window, in percent, that one cause may cost. From 20 % on nsys-llm-explainer 0.1.0
# reports idle time of all causes together (heuristics.py); the others are ours: 1 % is about what
# two runs of the same job differ by.
_HIGH_PCT: Final = 20.0
_MEDIUM_PCT: Final = 5.0
LOW_PCT: Final = 1.0
#: As much as nsys-llm-explainer 0.1.0 asks of synchronisation, in ns; less is not worth a word.
_LEAST_NS: Final = 1_000_000
#: From this share of a window on, waits that cost nothing are worth a note.
MOSTLY_PCT: Final = 50.0
#: Calls that come so often in the steady part of a window are in the loop.
REPEATS: Final = 3


def worst_ranks(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding a rule and name: that of the rank which loses most, with all ranks' time.

    A job of a thousand ranks does the same thing wrong a thousand times.
    """
    alike: dict[tuple[str, str | None], list[Finding]] = {}
    for one in ranked(findings):
        alike.setdefault((one.rule, one.name), []).append(one)
    return [_worst(found) for found in alike.values()]


def _worst(found: Sequence[Finding]) -> Finding:
    if len(found) == 1:
        return found[0]
    total_ns = sum(one.impact_ns for one in found)
    ranks_n = len({one.rank for one in found})
    others = f"So it is on {format_count(ranks_n)} ranks ({format_ns(total_ns)} in all)"
    if ranks_n == 1:
        others = f"So it is {format_count(len(found))} times on this rank ({format_ns(total_ns)})"
    return replace(
        found[0], evidence=f"{found[0].evidence} {others}; this is the worst.", impact_ns=total_ns
    )


def longest_call(row: Row, tables: Tables) -> tuple[str, dict[str, Any]]:
    """Return the function of a class with the most time, and where its longest call is."""
    apis = tables["rank_apis"]
    mine = apis[(apis["rank"] == row["rank"]) & (apis["class"] == row["class"])]
    top = mine.sort_values(["total_ns", "api"], ascending=[False, True]).iloc[0]
    start_ns, window = top["longest_start_ns"], None
    if not is_null(start_ns):
        window = (int(start_ns), int(start_ns) + int(top["max_ns"]))
    place = {
        "scope": "api",
        "rank": row["rank"],
        "name": top["api"],
        "window_ns": window,
        "tables": ("api_classes", "rank_apis"),
    }
    return str(top["api"]), place


def severity_of(cost_ns: Any, window_ns: Any) -> str | None:
    """Return how bad it is to lose so much of a window; None if it is not worth a word."""
    if or_zero(cost_ns) < _LEAST_NS:
        return None
    share_pct = pct(cost_ns, window_ns)
    steps = ((_HIGH_PCT, "high"), (_MEDIUM_PCT, "medium"), (LOW_PCT, "low"))
    return next((severity for least, severity in steps if share_pct >= least), None)


def pct(part_ns: Any, whole_ns: Any) -> float:
    """Return a share in percent; 0 where the part is null or there is no whole."""
    return 100.0 * int(or_zero(part_ns)) / int(whole_ns) if whole_ns else 0.0


def is_null(value: object) -> bool:
    """Tell whether a cell of a table is null."""
    return value is None or value is pd.NA or value != value


def or_zero(value: Any) -> Any:
    """Return a cell of a table, 0 where it is null."""
    return 0 if is_null(value) else value


def span_of(row: Row) -> tuple[int, int] | None:
    """Return the window of a device, None where it has none."""
    if is_null(row["window_start_ns"]):
        return None
    return int(row["window_start_ns"]), int(row["window_end_ns"])


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings."""
    return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]

"""Findings on kernels that have no tail but several kinds of work. Reads finished tables only."""

from __future__ import annotations

from collections.abc import Sequence

from nsys_llm.numeric.tails import OUTLIER_RATIO, SYSTEMATIC_RATIO
from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted, shortened

from .kernels import common_ranges, of_configuration
from .texts import MOST, RULES


def shape_findings(tables: Tables) -> list[Finding]:
    """Return the findings on kernels whose durations differ because their work does."""
    tails = [row for row in records(tables["tails"]) if not row["communication"]]
    return [*_second_heaps(tables, tails), *_shape_mixes(tails)]


def _second_heaps(tables: Tables, tails: Sequence[Record]) -> list[Finding]:
    """Return configurations whose outliers are a kind of work of their own."""
    rows = [row for row in tails if row["second_heap"]]
    rows.sort(key=lambda row: -row["outlier_excess_ns"])
    return [_second_heap(tables, row) for row in rows[:MOST]]


def _second_heap(tables: Tables, row: Record) -> Finding:
    listed = records(of_configuration(tables["outliers"], row))
    most = common_ranges(listed).most_common(1)
    where = (
        f" NVTX range of {format_count(most[0][1])} of the {format_count(len(listed))} listed: "
        f"{quoted(shortened(most[0][0]))}."
        if most
        else ""
    )
    share = format_percent(100.0 * row["outliers_n"] / row["launches_n"])
    mean_ns = row["p50_ns"] + row["outlier_excess_ns"] / row["outliers_n"]
    return RULES["two_kinds_of_work"].finding(
        severity="note",
        details=f"In configuration {row['config']}, {share} of "
        f"{counted(row['launches_n'], 'launch', 'launches')} take {format_ns(mean_ns)} on average, "
        f"the median is {format_ns(row['p50_ns'])}, and there is nothing between the two.{where}",
        fields={"kernel": quoted(shortened(row["name"]))},
        name=row["name"],
        impact_ns=row["outlier_excess_ns"],
    )


def _shape_mixes(tails: Sequence[Record]) -> list[Finding]:
    """Return kernels whose pooled numbers look like a tail, and whose configurations have none."""
    by_name: dict[str, list[Record]] = {}
    for row in tails:
        by_name.setdefault(row["name"], []).append(row)
    found = []
    for name, rows in by_name.items():
        told = [row for row in rows if row["launches_n"]]
        pooled = rows[0]
        suspect = (pooled["pooled_max_p50"] or 0.0) > OUTLIER_RATIO
        suspect |= (pooled["pooled_p99_p50"] or 0.0) > SYSTEMATIC_RATIO
        nowhere = _nowhere(told, pooled["pooled_p50_ns"])
        tailed = any(row["outlier"] or row["systematic"] for row in rows)
        if pooled["shape_mix"] and (suspect or nowhere) and not tailed:
            found.append(_shape_mix(name, told, nowhere))
    return sorted(found, key=lambda one: -one.impact_ns)[:MOST]


def _shape_mix(name: str, rows: Sequence[Record], nowhere: bool) -> Finding:
    low = min(rows, key=lambda row: (row["p50_ns"], row["config"]))
    high = max(rows, key=lambda row: (row["p50_ns"], row["config"]))
    pooled = rows[0]
    odd = ", a duration that no configuration has" if nowhere else ""
    return RULES["shape_mix"].finding(
        severity="note",
        details=f"All {counted(pooled['configs_n'], 'configuration')} together have max/p50 "
        f"{pooled['pooled_max_p50']:.1f} and p99/p50 {pooled['pooled_p99_p50']:.1f}, with a median "
        f"of {format_ns(pooled['pooled_p50_ns'])}{odd}. By configuration: "
        f"{_shape(low)}, {_shape(high)}; none of them has max/p50 above 2.",
        fields={"kernel": quoted(shortened(name))},
        name=name,
        impact_ns=sum(row["total_ns"] for row in rows),
    )


def _shape(row: Record) -> str:
    return (
        f"{row['config']} with a median of {format_ns(row['p50_ns'])} "
        f"({counted(row['launches_n'], 'launch', 'launches')})"
    )


def _nowhere(rows: Sequence[Record], median_ns: float | None) -> bool:
    """Tell whether no configuration has launches as short and as long as a duration."""
    if median_ns is None:
        return False
    return not any(row["min_ns"] <= median_ns <= row["max_ns"] for row in rows)

"""Findings on kernels some of whose launches take over twice the median of their configuration.

Or that come together (table outlier_clusters). Communication is left out: it is long because it
waits for other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pandas as pd

from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.cuda_codes import MIGRATION
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.view.text import counted, shortened

from ..tables.outliers import PAGES
from .texts import MOST, RULES

_BURST: Final = ("rank", "device_id", "ranks", "window_start_ns")
_SIZES: Final = ("outliers_n", "ranks_n", "expected", "kernels_n", "excess_ns", "window_end_ns")
_PLACE: Final = ("rank", "device_id", "name", "config")
_TIMES: Final = ("outliers_n", "launches_n", "all_p50_ns", "p99_ns", "max_ns")
#: Rows of rank_tails that are looked at, those with most time in slow launches.
_LOOKED_AT: Final = 200
#: Share of their time beyond the median from which slow launches are those of bursts.
_MOST_PCT: Final = 50.0


def gpu_of(row: Record) -> Gpu:
    """Return rank and device of a row."""
    return int(row["rank"]), int(row["device_id"])


def gpus_of(rows: pd.DataFrame) -> frozenset[Gpu]:
    """Return those of all rows of a table."""
    return frozenset(zip(rows["rank"].tolist(), rows["device_id"].tolist(), strict=True))


@dataclass(frozen=True)
class SlowLaunches:
    """A configuration on the GPU that loses most in its slow launches.

    Attributes:
        lost_ns: What they take beyond the median over all ranks, first launches left out.
        share_pct: That, in percent of the GPU's span.
    """

    row: Record
    lost_ns: float
    share_pct: float


def slow_launches(tables: Tables, walls: Walls, named: Collection[Gpu] = ()) -> list[SlowLaunches]:
    """Return one a configuration that has slow launches, the largest gain first."""
    tails = tables["tails"]
    modes = {(row["name"], row["config"]) for row in records(tails[tails["second_mode"]])}
    rows = tables["rank_tails"]
    rows = rows[~rows["communication"].astype(bool) & (rows["outlier_excess_ns"] > 0)]
    # A rank whose usual launch is a slow one elsewhere has other work there.
    rows = rows[~(rows["p50_all_p50"] > OUTLIER_RATIO).fillna(value=False)]
    rows = rows.sort_values("outlier_excess_ns", ascending=False, kind="stable")
    candidates = [
        place
        for place, row in enumerate(records(rows[[*_PLACE]]))
        if (row["name"], row["config"]) not in modes and gpu_of(row) not in named
    ]
    lost = ((row, _lost_ns(row)) for row in records(rows.iloc[candidates[:_LOOKED_AT]]))
    every = [
        SlowLaunches(row, lost_ns, 100.0 * lost_ns / max(walls.span_ns(*gpu_of(row)), 1))
        for row, lost_ns in lost
        if lost_ns > 0
    ]
    every.sort(key=lambda slow: -slow.share_pct)
    by_config = grouped([{**item.row, "slow": item} for item in every], "name", "config")
    return [alike[0]["slow"] for alike in by_config.values()]


def _lost_ns(row: Record) -> float:
    """Return what outliers take beyond the median, without that of a slow first launch."""
    first_ns, usual_ns = row["first_ns"] or 0, row["all_p50_ns"] or 0.0
    first = first_ns - usual_ns if first_ns > OUTLIER_RATIO * usual_ns else 0.0
    return float(row["outlier_excess_ns"] - first)


def tail_findings(tables: Tables, slow: Sequence[SlowLaunches]) -> list[Finding]:
    """Return the findings on the costliest configurations, but for those that bursts are about."""
    apart = (item for item in slow if (item.row["burst_pct"] or 0.0) <= _MOST_PCT)
    return [_tail(tables, item) for item in islice(apart, MOST)]


def _tail(tables: Tables, slow: SlowLaunches) -> Finding:
    row = slow.row
    listed = _listed(tables, row, _PLACE)
    common = _context(listed)
    cause = common["likely_cause"] or ""
    case = "pages" if cause == PAGES else "varying" if row["systematic"] else None
    rule, place = RULES["slow_launches"], {name: row[name] for name in _PLACE}
    longest = (launch for launch in listed if launch["start_ns"] == row["longest_start_ns"])
    unmarked = bool(listed) and all(launch["range"] is None for launch in listed)
    return rule.finding(
        cause=Cause("kernels", row["rank"], row["device_id"], row["name"]),
        change=Change(
            "launches",
            row["name"],
            time_ns=slow.lost_ns,
            worst_pct=worst_pct(tables, row, listed),
        ),
        fields={
            "kernel": shortened(row["name"]),
            "lost_ns": slow.lost_ns,
            **common,
        },
        evidence=(
            *cells("rank_tails", row, _PLACE, _TIMES),
            claim(
                *(tables, "share_pct", "rank_tails", "outliers_n", "sum"),
                claim(tables, "launches_n", "rank_tails", "launches_n", **place),
                **place,
            ),
        ),
        case="beside" if cause.startswith("shared the device") else case,
        rank=row["rank"],
        device_id=row["device_id"],
        name=row["name"],
        window_ns=(row["longest_start_ns"], row["longest_start_ns"] + row["max_ns"]),
        record=rule.record if unmarked else None,
        ncu=next((launch["ncu"] for launch in longest), None),
        impact_ns=round(slow.lost_ns),
    )


def worst_pct(tables: Tables, row: Record, listed: Sequence[Record]) -> float | None:
    """Return the share of the GPU's worst step that listed launches take beyond the median there.

    None where steps are not known. What is not listed takes less.
    """
    steps = [step for step in records(tables["tail_ranks"]) if gpu_of(step) == gpu_of(row)]
    if not steps or steps[0]["worst_step_start_ns"] is None:
        return None
    start_ns, end_ns = steps[0]["worst_step_start_ns"], steps[0]["worst_step_end_ns"]
    beyond_ns = sum(
        launch["excess_ns"]
        for launch in listed
        if start_ns <= launch["start_ns"] < end_ns and launch["state"] != "first"
    )
    return min(100.0 * beyond_ns / (end_ns - start_ns), 100.0)


def _context(listed: Sequence[Record]) -> dict[str, Any]:
    """Return the fields of what those launches that are listed have in common; null if nothing."""
    causes = Counter(row["likely_cause"] for row in listed)
    cause, cause_n = causes.most_common(1)[0] if causes else (None, None)
    ranges = Counter(normalize_range(row["range"]) for row in listed if row["range"] is not None)
    name, range_n = ranges.most_common(1)[0] if ranges else ("", None)
    return {
        "listed_n": len(listed) or None,
        "cause_n": cause_n,
        "likely_cause": cause,
        "range_n": range_n,
        **_pages(listed),
        "range_name": shortened(name),
    }


def _pages(listed: Sequence[Record]) -> dict[str, Any]:
    """Return the fields on the pages that most listed launches waited for; of none empty ones."""
    beside = Counter(row["beside"] for row in listed if row["likely_cause"] == PAGES)
    kind = beside.most_common(1)[0][0].removeprefix("memcpy ") if beside else ""
    return {"pages": kind.replace(MIGRATION, f"{MIGRATION}s"), "advice": advice_on(copy=kind) or ""}


def _listed(tables: Tables, row: Record, names: Sequence[str]) -> list[Record]:
    """Return the rows of `outliers` that are of one row of another table, by some columns."""
    frame = tables["outliers"]
    chosen = ~frame["communication"].astype(bool)
    for name in names:
        chosen &= frame[name] == row[name]
    return records(frame[chosen])


def burst_findings(tables: Tables, named: Collection[Gpu]) -> list[Finding]:
    """Return one finding a GPU and set of ranks, about the costliest of its bursts."""
    rows = [row for row in records(tables["outlier_clusters"]) if gpu_of(row) not in named]
    by_place = grouped(rows, "ranks", "rank", "device_id")
    found = [_burst(tables, alike) for alike in by_place.values()]
    return sorted(found, key=lambda finding: -finding.impact_ns)[:MOST]


def _burst(tables: Tables, rows: Sequence[Record]) -> Finding:
    """Return the finding on bursts of the same GPU, the costliest first."""
    row, more_n = rows[0], len(rows) - 1
    window_ns = row["window_start_ns"], row["window_end_ns"]
    on_gpu = _listed(tables, row, ("rank", "device_id"))
    listed = [item for item in on_gpu if window_ns[0] <= item["start_ns"] <= window_ns[1]]
    rank, device_id = gpu_of(row)
    lost_ns = sum(item["excess_ns"] for item in rows)
    alone = row["ranks_n"] == 1
    return RULES["outlier_cluster"].finding(
        cause=Cause("kernels", rank, device_id, row["name"]),
        change=Change(
            "launches",
            row["name"],
            time_ns=lost_ns,
            worst_pct=worst_pct(tables, row, listed),
        ),
        fields={
            "where": f"rank {rank}" if alone else counted(row["ranks_n"], "rank"),
            "more": f"the largest of {more_n + 1}" if more_n else "",
            "together": "" if alone else row["ranks"],
            "kernel": shortened(row["name"]),
            "likely_cause": row["likely_cause"],
            "lost_ns": lost_ns,
        },
        case="beside" if row["likely_cause"].startswith("shared") else None,
        evidence=(
            *cells("outlier_clusters", row, _BURST, _SIZES),
            claim(
                *(tables, "lasting_ns", "outlier_clusters", "window_end_ns-window_start_ns"),
                **{name: row[name] for name in _BURST},
            ),
            claim(
                *(tables, "bursts_n", "outlier_clusters", "rank", "count"),
                **{name: row[name] for name in ("rank", "device_id", "ranks")},
            ),
        ),
        rank=rank,
        device_id=device_id,
        name=row["name"],
        window_ns=window_ns,
        impact_ns=lost_ns,
    )

"""Findings on kernels some of whose launches take over twice the median of their configuration.

Reads finished tables only. Communication is left out: it is long because it waits for other ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from nsys_llm.numeric.tails import OUTLIER_RATIO
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.advice import advice_on
from nsys_llm.taxonomy.cuda_codes import MIGRATION
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.view.text import shortened

from ..tables.outliers import PAGES
from .members import gpu_of
from .texts import MOST, RULES

_PLACE: Final = ("rank", "device_id", "name", "config")
_TIMES: Final = ("outliers_n", "launches_n", "all_p50_ns", "p99_ns", "max_ns")
#: Rows of rank_tails that are looked at, those with most time in slow launches.
_LOOKED_AT: Final = 200
#: Share of their time beyond the median from which slow launches are those of bursts.
_MOST_PCT: Final = 50.0


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
    """Return one a configuration that has slow launches, the largest gain first.

    Args:
        named: Ranks that other findings are about.
    """
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
    listed = _listed(tables, row)
    rule, place = RULES["slow_launches"], {name: row[name] for name in _PLACE}
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
            **_context(listed),
        },
        evidence=(
            *cells("rank_tails", row, _PLACE, _TIMES),
            claim(
                *(tables, "share_pct", "rank_tails", "outliers_n", "sum"),
                claim(tables, "launches_n", "rank_tails", "launches_n", **place),
                **place,
            ),
        ),
        case=_case(row, listed),
        rank=row["rank"],
        device_id=row["device_id"],
        name=row["name"],
        window_ns=(row["longest_start_ns"], row["longest_start_ns"] + row["max_ns"]),
        record=rule.record if unmarked else None,
        ncu=_ncu(row, listed),
        impact_ns=round(slow.lost_ns),
    )


def _ncu(row: Record, listed: Sequence[Record]) -> str | None:
    """Return the command that profiles the longest launch, where it is listed."""
    longest = (launch for launch in listed if launch["start_ns"] == row["longest_start_ns"])
    return next((launch["ncu"] for launch in longest), None)


def worst_pct(tables: Tables, row: Record, listed: Sequence[Record]) -> float | None:
    """Return the share of the GPU's worst step that listed launches take beyond the median there.

    None where steps are not known. What is not listed takes less.
    """
    step_ns = _worst_step_ns(tables, *gpu_of(row))
    if step_ns is None:
        return None
    beyond_ns = sum(
        launch["excess_ns"]
        for launch in listed
        if step_ns[0] <= launch["start_ns"] < step_ns[1] and launch["state"] != "first"
    )
    return min(100.0 * beyond_ns / (step_ns[1] - step_ns[0]), 100.0)


def _worst_step_ns(tables: Tables, rank: int, device_id: int) -> tuple[int, int] | None:
    """Return where the longest step of a GPU is; None where that is not known."""
    ranks = tables["tail_ranks"]
    rows = ranks[(ranks["rank"] == rank) & (ranks["device_id"] == device_id)]
    rows = rows[rows["worst_step_start_ns"].notna()]
    if rows.empty:
        return None
    row = rows.iloc[0]
    return int(row["worst_step_start_ns"]), int(row["worst_step_end_ns"])


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


def _case(row: Record, listed: Sequence[Record]) -> str | None:
    """Return the case of the advice: what most of the listed launches point at."""
    causes = Counter(launch["likely_cause"] for launch in listed).most_common(1)
    if causes and causes[0][0] == PAGES:
        return "pages"
    if causes and causes[0][0].startswith("shared the device"):
        return "beside"
    return "varying" if row["systematic"] else None


def _listed(tables: Tables, row: Record) -> list[Record]:
    """Return the rows of `outliers` that are of one row of rank_tails."""
    frame = tables["outliers"]
    chosen = ~frame["communication"].astype(bool)
    for name in _PLACE:
        chosen &= frame[name] == row[name]
    return records(frame[chosen])

"""Findings about steps: phases and steps of which some take far longer, and the warm-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, records
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

_Tables = Mapping[str, pd.DataFrame]

#: The tail of the project's design: systematic from p99 / p50 above 1.5 in at least 100 values, an
#: outlier from max / p50 above 2.
_SYSTEMATIC: Final = 1.5
_SYSTEMATIC_LEAST: Final = 100
_OUTLIER: Final = 2.0
#: With fewer values the largest may be one of another kind.
_OUTLIER_LEAST: Final = 10
#: What the tail takes beyond the median, in percent of the time in steps, that is worth a word.
_LEAST_EXCESS_PCT: Final = 1.0


def step_findings(tables: _Tables) -> list[Finding]:
    """Return what the tables of steps tell."""
    return [*_phase_tails(tables), *_slow_steps(tables), *_warmup(tables)]


def _tail(row: Record) -> str | None:
    """Return the severity of a distribution's tail; None for none worth a word."""
    if not row["p50_ns"] or not row["total_ns"]:
        return None
    ratio, most = row["p99_ns"] / row["p50_ns"], row["max_ns"] / row["p50_ns"]
    if ratio > _SYSTEMATIC and row["steps_n"] >= _SYSTEMATIC_LEAST:
        return "medium"
    beyond = 100.0 * (row["max_ns"] - row["p50_ns"]) / row["total_ns"]
    if most > _OUTLIER and row["steps_n"] >= _OUTLIER_LEAST and beyond >= _LEAST_EXCESS_PCT:
        return "low"
    return None


def _phase_tails(tables: _Tables) -> list[Finding]:
    """Tell of phases whose GPU time in a step varies."""
    stats, steps = tables["phase_steps"], tables["step_stats"]
    whole = steps[
        (steps["which"] == "steady") & steps["phase"].isna() & (steps["measure"] == "gpu")
    ]
    gpu_ns = int(whole["total_ns"].sum())
    found = []
    for row in records(stats):
        severity = _tail(row)
        if severity is None or 100.0 * row["total_ns"] < _LEAST_EXCESS_PCT * gpu_ns:
            continue
        rank, window = _longest(tables, row["phase"])
        found.append(
            Finding(
                rule="phase_tail",
                severity=severity,
                scope="phase",
                rank=rank,
                name=row["phase"],
                window_ns=window,
                window_shows="the GPU in the longest range of the phase",
                title=f"{quoted(row['phase'])} takes {row['p99_ns'] / row['p50_ns']:.1f} times its "
                "median at p99 of the steps",
                evidence=f"p50 {format_ns(row['p50_ns'])}, p99 {format_ns(row['p99_ns'])}, most "
                f"{format_ns(row['max_ns'])} of GPU time in a step, over "
                f"{counted(row['steps_n'], 'step')} of all ranks.",
                tables=("phase_steps", "steps", "phase_instances"),
                recommendation="Compare a long step with a usual one: other shapes (batch, prompt "
                "lengths, routing of experts), a late rank in its collectives, or slower kernels; "
                "tail_stats tells the latter apart.",
                impact_ns=int(row["max_ns"] - row["p50_ns"]),
            )
        )
    return found


def _longest(tables: _Tables, phase: str) -> tuple[int | None, tuple[int, int] | None]:
    rows = tables["phase_instances"]
    rows = rows[rows["phase"] == phase]
    if rows.empty:
        return None, None
    row = rows.iloc[0]
    return int(row["rank"]), (int(row["gpu_start_ns"]), int(row["gpu_end_ns"]))


def _slow_steps(tables: _Tables) -> list[Finding]:
    """Tell of steps of one phase whose host time varies: what a user of a server feels."""
    stats = tables["step_stats"]
    rows = stats[(stats["which"] == "steady") & (stats["measure"] == "wall")]
    rows = rows[rows["phase"].notna()]
    found = []
    for row in records(rows):
        severity = _tail(row)
        if severity is None:
            continue
        steps = tables["steps"]
        own = steps[(steps["phase"] == row["phase"]) & ~steps["warmup"]]
        worst = own.loc[own["wall_ns"].idxmax()]
        idle = _median_of(stats, row["phase"], "idle")
        found.append(
            Finding(
                rule="slow_steps",
                severity=severity,
                scope="phase",
                rank=int(worst["rank"]),
                name=row["phase"],
                window_ns=(int(worst["start_ns"]), int(worst["end_ns"])),
                window_shows=f"the slowest, step {worst['step']}",
                title=f"Some steps of {quoted(row['phase'])} take "
                f"{row['max_ns'] / row['p50_ns']:.1f} times the median",
                evidence=f"Host time p50 {format_ns(row['p50_ns'])}, p99 "
                f"{format_ns(row['p99_ns'])}, most {format_ns(row['max_ns'])} over "
                f"{counted(row['steps_n'], 'step')}. In the slowest, the GPU worked "
                f"{format_ns(worst['gpu_ns'])} and stood still for "
                f"{format_ns(worst['idle_inside_ns'])} of its span "
                f"(median step: {format_ns(idle)}).",
                tables=("step_stats", "steps"),
                recommendation="Where the GPU's time is as usual, the host held the step up: "
                "idle_gaps with this window says by what. Else see which phase grew (phase_steps).",
                impact_ns=int(row["max_ns"] - row["p50_ns"]),
            )
        )
    return found


def _median_of(stats: pd.DataFrame, phase: str, measure: str) -> float | None:
    rows = stats[(stats["phase"] == phase) & (stats["measure"] == measure)]
    return float(rows["p50_ns"].iloc[0]) if len(rows) else None


def _warmup(tables: _Tables) -> list[Finding]:
    steps = tables["steps"]
    warm = steps[steps["warmup"]]
    if warm.empty:
        return []
    first = warm.sort_values("wall_ns", ascending=False, kind="stable").iloc[0]
    by_rank = warm.groupby("rank", sort=True)["wall_ns"].sum()
    share = 100.0 * warm["wall_ns"].sum() / steps["wall_ns"].sum()
    return [
        Finding(
            rule="warm_up_steps",
            severity="note",
            scope="run",
            rank=int(first["rank"]),
            window_ns=(int(first["start_ns"]), int(first["end_ns"])),
            window_shows="the longest of them",
            title=f"{counted(len(warm), 'first step')} {'is' if len(warm) == 1 else 'are'} warm-up "
            "and not in the percentiles",
            evidence=f"They take more than twice the median of their phase: up to "
            f"{format_ns(first['wall_ns'])}, {format_ns(by_rank.max())} on rank "
            f"{by_rank.idxmax()}, {format_percent(share)} of the host time of all steps. The GPU "
            "time of phases includes them.",
            tables=("steps", "step_stats"),
            recommendation="Add --skip-warmup to leave the first step out of every table, or "
            "--steps A: for more of them.",
            impact_ns=int(warm["wall_ns"].sum()),
        )
    ]

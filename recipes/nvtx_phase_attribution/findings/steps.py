"""Findings about steps: phases and steps of which some take far longer, and the warm-up."""

from __future__ import annotations

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from .texts import (
    LEAST_EXCESS_PCT,
    OUTLIER,
    OUTLIER_LEAST,
    RULES,
    SYSTEMATIC,
    SYSTEMATIC_LEAST,
)


def step_findings(tables: Tables) -> list[Finding]:
    """Return what the tables of steps tell."""
    return [*_phase_tails(tables), *_slow_steps(tables), *_warmup(tables)]


def _tail(row: Record) -> str | None:
    """Return the severity of a distribution's tail; None for none worth a word."""
    if not row["p50_ns"] or not row["total_ns"]:
        return None
    ratio, most = row["p99_ns"] / row["p50_ns"], row["max_ns"] / row["p50_ns"]
    if ratio > SYSTEMATIC and row["steps_n"] >= SYSTEMATIC_LEAST:
        return "medium"
    beyond = 100.0 * (row["max_ns"] - row["p50_ns"]) / row["total_ns"]
    if most > OUTLIER and row["steps_n"] >= OUTLIER_LEAST and beyond >= LEAST_EXCESS_PCT:
        return "low"
    return None


def _phase_tails(tables: Tables) -> list[Finding]:
    """Tell of phases whose GPU time in a step varies."""
    stats, steps = tables["phase_steps"], tables["step_stats"]
    whole = steps[
        (steps["which"] == "steady") & steps["phase"].isna() & (steps["measure"] == "gpu")
    ]
    gpu_ns = int(whole["total_ns"].sum())
    found = []
    for row in records(stats):
        severity = _tail(row)
        if severity is None or 100.0 * row["total_ns"] < LEAST_EXCESS_PCT * gpu_ns:
            continue
        rank, window = _longest(tables, row["phase"])
        found.append(
            RULES["phase_tail"].finding(
                severity=severity,
                details=f"p50 {format_ns(row['p50_ns'])}, p99 {format_ns(row['p99_ns'])}, most "
                f"{format_ns(row['max_ns'])} of GPU time in a step, over "
                f"{counted(row['steps_n'], 'step')} of all ranks.",
                fields={
                    "phase": quoted(row["phase"]),
                    "times": f"{row['p99_ns'] / row['p50_ns']:.1f}",
                },
                rank=rank,
                name=row["phase"],
                window_ns=window,
                impact_ns=int(row["max_ns"] - row["p50_ns"]),
            )
        )
    return found


def _longest(tables: Tables, phase: str) -> tuple[int | None, tuple[int, int] | None]:
    rows = tables["phase_instances"]
    rows = rows[rows["phase"] == phase]
    if rows.empty:
        return None, None
    row = rows.iloc[0]
    return int(row["rank"]), (int(row["gpu_start_ns"]), int(row["gpu_end_ns"]))


def _slow_steps(tables: Tables) -> list[Finding]:
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
            RULES["slow_steps"].finding(
                severity=severity,
                details=f"Host time p50 {format_ns(row['p50_ns'])}, p99 "
                f"{format_ns(row['p99_ns'])}, most {format_ns(row['max_ns'])} over "
                f"{counted(row['steps_n'], 'step')}. In the slowest, the GPU worked "
                f"{format_ns(worst['gpu_ns'])} and stood still for "
                f"{format_ns(worst['idle_inside_ns'])} of its span "
                f"(median step: {format_ns(idle)}).",
                fields={
                    "phase": quoted(row["phase"]),
                    "times": f"{row['max_ns'] / row['p50_ns']:.1f}",
                    "step": worst["step"],
                },
                rank=int(worst["rank"]),
                name=row["phase"],
                window_ns=(int(worst["start_ns"]), int(worst["end_ns"])),
                impact_ns=int(row["max_ns"] - row["p50_ns"]),
            )
        )
    return found


def _median_of(stats: pd.DataFrame, phase: str, measure: str) -> float | None:
    rows = stats[(stats["phase"] == phase) & (stats["measure"] == measure)]
    return float(rows["p50_ns"].iloc[0]) if len(rows) else None


def _warmup(tables: Tables) -> list[Finding]:
    steps = tables["steps"]
    warm = steps[steps["warmup"]]
    if warm.empty:
        return []
    first = warm.sort_values("wall_ns", ascending=False, kind="stable").iloc[0]
    by_rank = warm.groupby("rank", sort=True)["wall_ns"].sum()
    share = 100.0 * warm["wall_ns"].sum() / steps["wall_ns"].sum()
    return [
        RULES["warm_up_steps"].finding(
            severity="note",
            details=f"They take more than twice the median of their phase: up to "
            f"{format_ns(first['wall_ns'])}, {format_ns(by_rank.max())} on rank "
            f"{by_rank.idxmax()}, {format_percent(share)} of the host time of all steps. The GPU "
            "time of phases includes them.",
            fields={
                "steps": counted(len(warm), "first step"),
                "are": "is" if len(warm) == 1 else "are",
            },
            rank=int(first["rank"]),
            window_ns=(int(first["start_ns"]), int(first["end_ns"])),
            impact_ns=int(warm["wall_ns"].sum()),
        )
    ]

"""Findings about phases: which dominates, where ranks differ, where the host or a wait costs."""

from __future__ import annotations

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, Tables, records, severity_of
from nsys_llm.view.text import counted, format_ns, format_percent, quoted, shortened

from .texts import (
    DOMINANT_PCT,
    EXPOSED_OF_PHASE_PCT,
    EXPOSED_PCT,
    HOST_BOUND_PCT,
    IMBALANCE_PCT,
    IMBALANCE_SHARE_PCT,
    RULES,
    WALL_TIMES,
)


def phase_findings(tables: Tables) -> list[Finding]:
    """Return what the tables of phases tell."""
    return [
        *_dominant(tables),
        *_imbalance(tables),
        *_host_bound(tables),
        *_exposed(tables),
    ]


def _dominant(tables: Tables) -> list[Finding]:
    phases = tables["phases"]
    top = phases[phases["mapped"] & (phases["gpu_pct"] >= DOMINANT_PCT)]
    if top.empty:
        return []
    row = top.iloc[0]
    name = str(row["phase"])
    inside = tables["phase_categories"]
    parts = inside[inside["phase"] == name].head(3)
    made_of = ", ".join(
        f"{quoted(one['category'])} {format_percent(one['phase_pct'])}" for one in records(parts)
    )
    kernels, rule = tables["phase_kernels"], RULES["dominant_phase"]
    kernel = kernels[kernels["phase"] == name].iloc[0]
    return [
        rule.finding(
            severity="medium",
            details=f"{format_ns(row['gpu_ns'])} in {counted(int(row['instances_n']), 'range')}, "
            f"the median {format_ns(row['instance_p50_ns'])}. It is made of {made_of}; most time "
            f"has {quoted(shortened(str(kernel['name'])))} with "
            f"{format_percent(kernel['phase_pct'])} of it.",
            fields={"phase": quoted(name), "share": format_percent(row["gpu_pct"])},
            name=name,
            case=name if name in rule.cases else None,
            impact_ns=int(row["gpu_ns"]),
        )
    ]


def _imbalance(tables: Tables) -> list[Finding]:
    """Tell which rank does more in a phase than the others; waiting for it is no work."""
    ranks, found = tables["rank_phases"], []
    if ranks["rank"].nunique() < 2:
        return []
    for row in records(tables["phases"]):
        own = ranks[ranks["phase"] == row["phase"]]
        if row["phase"] in ("no_api", "no_range") or own.empty:
            continue
        worst = own.loc[own["above_median_ns"].idxmax()]
        above_ns, usual_ns = (
            int(worst["above_median_ns"]),
            int(worst["work_ns"] - worst["above_median_ns"]),
        )
        if usual_ns <= 0:
            continue
        whole = int(ranks.loc[ranks["rank"] == worst["rank"], "gpu_ns"].sum())
        severity = severity_of(100.0 * above_ns / usual_ns, IMBALANCE_PCT)
        if severity is None or 100.0 * above_ns < IMBALANCE_SHARE_PCT * whole:
            continue
        found.append(_imbalance_finding(tables, row, worst, severity))
    return found


def _imbalance_finding(tables: Tables, row: Record, worst: pd.Series, severity: str) -> Finding:
    rank, phase = int(worst["rank"]), str(row["phase"])
    usual_ns = int(worst["work_ns"] - worst["above_median_ns"])
    more = format_percent(100.0 * worst["above_median_ns"] / usual_ns)
    ranks_n = tables["rank_phases"]["rank"].nunique()
    usual = "median rank" if ranks_n > 2 else "other rank"
    own = tables["rank_phases"]
    own = own[own["phase"] == phase]
    waits = own.loc[own["communication_ns"].idxmin()]
    words = ""
    if int(own["communication_ns"].max()) > 0 and int(waits["rank"]) == rank:
        words = (
            f" It spends least time in communication ({format_ns(waits['communication_ns'])}, "
            f"against up to {format_ns(own['communication_ns'].max())}): the others wait for it."
        )
    return RULES["phase_imbalance"].finding(
        severity=severity,
        details=f"{format_ns(worst['work_ns'])} without communication, against "
        f"{format_ns(usual_ns)}, in {counted(int(worst['ops_n']), 'operation')}.{words}",
        fields={"rank": rank, "more": more, "phase": quoted(phase), "usual": usual},
        rank=rank,
        name=phase,
        window_ns=_slowest_window(tables, rank, phase),
        impact_ns=int(worst["above_median_ns"]),
    )


def _slowest_window(tables: Tables, rank: int, phase: str) -> tuple[int, int] | None:
    """Return when the GPU ran the range of a phase with most GPU time on a rank."""
    rows = tables["phase_instances"]
    rows = rows[(rows["rank"] == rank) & (rows["phase"] == phase)]
    if rows.empty:
        return None
    return int(rows["gpu_start_ns"].iloc[0]), int(rows["gpu_end_ns"].iloc[0])


def _host_bound(tables: Tables) -> list[Finding]:
    window_ns = int(tables["devices"]["window_ns"].sum())
    phases, found = tables["phases"].set_index("phase"), []
    for row in records(tables["phase_idle"]):
        idle_ns, gpu_ns = int(row["idle_ns"]), int(row["gpu_ns"])
        whole = phases.loc[row["phase"]]
        if idle_ns <= gpu_ns or not whole["mapped"]:
            continue
        if int(whole["wall_ns"]) <= WALL_TIMES * int(whole["gpu_ns"]):
            continue
        share = 100.0 * idle_ns / window_ns if window_ns else 0.0
        if (severity := severity_of(share, HOST_BOUND_PCT)) is not None:
            found.append(_host_bound_finding(tables, row, whole, severity, share))
    return found


def _host_bound_finding(
    tables: Tables, row: Record, whole: pd.Series, severity: str, share: float
) -> Finding:
    phase = str(row["phase"])
    own = tables["rank_phases"]
    own = own[own["phase"] == phase].dropna(subset=["idle_ns"])
    worst = own.loc[own["idle_ns"].astype("int64").idxmax()]
    return RULES["host_bound_phase"].finding(
        severity=severity,
        details=f"{format_ns(row['idle_ns'])} idle before its operations "
        f"({format_percent(share)} of the windows; {format_ns(row['within_ns'])} of it between two "
        f"of them), for {format_ns(row['gpu_ns'])} of GPU time. The host is in the phase for "
        f"{format_ns(whole['wall_ns'])}.",
        fields={"phase": quoted(phase)},
        rank=int(worst["rank"]),
        name=phase,
        window_ns=_slowest_window(tables, int(worst["rank"]), phase),
        impact_ns=int(row["idle_ns"]),
    )


def _exposed(tables: Tables) -> list[Finding]:
    rows, phases = tables["phase_collectives"], tables["phases"].set_index("phase")
    found = []
    for phase, exposed_ns in rows.groupby("phase", sort=False)["exposed_ns"].sum().items():
        whole = phases.loc[phase]
        gpu_ns = int(whole["gpu_ns"])
        share = 100.0 * int(exposed_ns) / gpu_ns if gpu_ns else 0.0
        severity = severity_of(share * float(whole["gpu_pct"]) / 100.0, EXPOSED_PCT)
        if severity is None or share < EXPOSED_OF_PHASE_PCT:
            continue
        top = rows[rows["phase"] == phase].iloc[0]
        found.append(
            RULES["exposed_communication"].finding(
                severity=severity,
                details=f"{format_ns(exposed_ns)} of {format_ns(gpu_ns)} GPU time, while no "
                f"kernel computes on the device; most in {quoted(top['operation'])} "
                f"({format_ns(top['total_ns'])}). Rank {top['most_rank']} spends most time in it "
                f"({format_ns(top['most_ns'])}), rank {top['least_rank']} least "
                f"({format_ns(top['least_ns'])}): the others seem to wait for the latter.",
                fields={"share": format_percent(share), "phase": quoted(phase)},
                name=str(phase),
                impact_ns=int(exposed_ns),
            )
        )
    return found

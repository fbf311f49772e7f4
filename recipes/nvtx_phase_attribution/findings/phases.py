"""Findings about phases: before whose work a GPU is idle, and which rank works longest in them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.gains import Gain, Walls
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.taxonomy.wall_classes import COMPUTE, COPIES, IDLE
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

from .texts import RULES, STEPS_HOLD_PCT

_WORK = (COMPUTE, COPIES)


def phase_findings(tables: Tables) -> list[Finding]:
    """Return the findings of the tables of phases."""
    return [*rank_findings(tables), *_idle(tables)]


def busiest_gpu(walls: Walls, rank: int, *wall_classes: str) -> tuple[int, int] | None:
    """Return the GPU of a rank with most time in some classes; None for a rank without any."""
    gpus = [gpu for gpu in walls.gpus if gpu[0] == rank]
    return max(gpus, key=lambda gpu: walls.class_ns(*gpu, *wall_classes), default=None)


def per_step(gain: Gain, tables: Tables, rank: int) -> Gain:
    """Return a gain with the steps of its rank, where these hold nearly all of its GPU time.

    As many as its span has of the mean full step: a share of the span is as large a share of that.
    """
    steps = tables["rank_steps"]
    row = steps[steps["counted"] & (steps["rank"] == rank) & (steps["gpu_pct"] >= STEPS_HOLD_PCT)]
    step_ns = None if row.empty else _mean_step_ns(tables["steps"], rank)
    if not step_ns:
        return gain
    return replace(gain, steps_n=gain.span_ns / step_ns, step_unit=row["unit"].iloc[0])


def _mean_step_ns(steps: pd.DataFrame, rank: int) -> float | None:
    """Return the mean time of the full steps of a rank; None where there are none.

    A step ends with the last operation of it or an earlier one, where the next one begins.
    """
    rank_steps = steps[steps["rank"] == rank].sort_values("step", kind="stable")
    ends = rank_steps["gpu_end_ns"].astype("float64").cummax().ffill()
    begins = ends.shift(1).fillna(rank_steps["start_ns"].astype("float64"))
    whole = (ends - begins)[rank_steps["full"] & ~rank_steps["warmup"]].dropna()
    return float(whole.mean()) if len(whole) else None


def _of_gpu(
    tables: Tables,
    rank: int,
    part_ns: int,
    whole_ns: int,
    wall_classes: tuple[str, ...],
    *,
    bound: bool,
) -> tuple[int, Gain] | None:
    """Return the busiest GPU of a rank, and what a part of the rank's time is on its clock.

    What GPUs of a rank do, and operations of a GPU side by side, is taken to shrink alike.

    Args:
        tables: wall and rank_steps.
        rank: The rank.
        part_ns: Time of its operations, or idle time of its GPUs.
        whole_ns: All of such time that it has.
        wall_classes: The classes that it is in.
        bound: Whether the gain is a bound.
    """
    walls = Walls(tables)
    gpu = busiest_gpu(walls, rank, *wall_classes)
    if gpu is None or not whole_ns:
        return None
    gain_ns = part_ns * min(walls.class_ns(*gpu, *wall_classes), whole_ns) // whole_ns
    basis = "device" if bound else "idle"
    gain = walls.gain(*gpu, gain_ns, wall_classes, basis=basis, is_bound=bound)
    return gpu[1], per_step(gain, tables, rank)


def _slowest_window(tables: Tables, rank: int, phase: str) -> tuple[int, int] | None:
    rows = tables["phase_instances"]
    rows = rows[(rows["rank"] == rank) & (rows["phase"] == phase)]
    if rows.empty:
        return None
    return int(rows["gpu_start_ns"].iloc[0]), int(rows["gpu_end_ns"].iloc[0])


def _idle(tables: Tables) -> list[Finding]:
    """Return a finding for each phase before whose work a GPU is idle for long."""
    phases, ranks = tables["phases"], tables["rank_phases"]
    whole = tables["devices"].groupby("rank", sort=True)["idle_ns"].sum()
    findings = []
    for phase in phases.loc[phases["mapped"], "phase"].tolist():
        rows = ranks[(ranks["phase"] == phase) & ranks["idle_ns"].notna()]
        worth: list[tuple[Record, int, Gain]] = []
        for row in records(rows):
            loss = _idle_gain(tables, row, int(whole.get(row["rank"], 0)))
            if loss is not None and loss[1].severity is not None:
                worth.append((row, *loss))
        if worth:
            row, device, gain = max(worth, key=lambda item: item[2].gain_ns)
            affected = tuple(int(item[0]["rank"]) for item in worth)
            findings.append(_idle_finding(tables, row, device, gain, affected))
    return findings or _idle_in_range(tables)


def _idle_gain(tables: Tables, row: Record, whole_ns: int) -> tuple[int, Gain] | None:
    return _of_gpu(tables, int(row["rank"]), int(row["idle_ns"]), whole_ns, (IDLE,), bound=False)


def _idle_finding(
    tables: Tables, row: Record, device: int, gain: Gain, affected: tuple[int, ...]
) -> Finding:
    rank, phase = int(row["rank"]), str(row["phase"])
    idle = tables["phase_idle"]
    gaps = records(idle[idle["phase"] == phase])[0]
    before_pct = percent(gaps["before_ns"], gaps["idle_ns"])
    several = tables["rank_phases"]["rank"].nunique() > 1
    others = f" {len(affected)} ranks affected; rank {rank} is the worst."
    others = others if len(affected) > 1 else " No other rank loses as much." * several
    return RULES["idle_before_phase"].finding(
        gain=gain,
        details=f"{format_ns(gain.gain_ns)} idle before its operations, which take "
        f"{format_ns(row['gpu_ns'])} there. {format_percent(before_pct)} of such idle time comes "
        f"before the first operation after another phase, the rest between operations of the "
        f"phase.{others}",
        fields={"phase": quoted(phase), "rank": rank},
        evidence=(
            *cells("rank_phases", row, ("rank", "phase"), ("idle_ns", "gpu_ns")),
            *cells("phase_idle", gaps, ("phase",), ("before_ns", "idle_ns")),
        ),
        numbers={"before_pct": before_pct},
        culprit=f"phase:{phase}",
        ranks=affected,
        rank=rank,
        device_id=device,
        name=phase,
        window_ns=_slowest_window(tables, rank, phase),
        impact_ns=gain.gain_ns,
    )


def _idle_in_range(tables: Tables) -> list[Finding]:
    """Return the finding on the outermost range in which a GPU is idle longest, without phases."""
    phases, tree = tables["phases"], tables["range_tree"]
    if phases.loc[phases["mapped"], "gpu_ns"].sum():
        return []
    outer = set(tree.loc[tree["depth"] == 0, "label"])
    names = tables["ranges"][["kind", "domain", "name", "label"]]
    rows = tables["rank_ranges"].merge(names, on=["kind", "domain", "name"])
    rows = rows[rows["label"].isin(outer) & (rows["idle_inside_ns"].fillna(0) > 0)]
    if rows.empty:
        return []
    row = records(rows.loc[[rows["idle_inside_ns"].idxmax()]])[0]
    walls, rank = Walls(tables), int(row["rank"])
    gpu = busiest_gpu(walls, rank, IDLE)
    if gpu is None:
        return []
    gain = walls.gain(*gpu, row["idle_inside_ns"], (IDLE,), basis="idle", is_bound=False)
    if gain.severity is None:
        return []
    where = ("rank", "kind", "domain", "name")
    return [
        RULES["idle_before_phase"].finding(
            case="range",
            gain=per_step(gain, tables, rank),
            details=f"{format_ns(gain.gain_ns)} of {format_ns(row['span_ns'])} from the first to "
            f"the last operation of {counted(int(row['instances_n']), 'range')} of this name.",
            fields={"phase": quoted(row["label"]), "rank": rank},
            evidence=cells("rank_ranges", row, where, ("idle_inside_ns", "span_ns", "instances_n")),
            culprit=f"phase:{row['label']}",
            ranks=(rank,),
            rank=rank,
            device_id=gpu[1],
            name=str(row["label"]),
            impact_ns=gain.gain_ns,
        )
    ]

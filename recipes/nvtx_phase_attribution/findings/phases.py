"""Findings about phases: before whose work a GPU is idle, and which rank works longest in them."""

from __future__ import annotations

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.wall_classes import COMPUTE, COPIES, IDLE

from .texts import RULES

_WORK = (COMPUTE, COPIES)


def phase_findings(tables: Tables) -> list[Finding]:
    """Return the findings of the tables of phases."""
    return [*rank_findings(tables), *_idle(tables)]


def busiest_gpu(walls: Walls, rank: int, *wall_classes: str) -> tuple[int, int] | None:
    """Return the GPU of a rank with most time in some classes; None for a rank without any."""
    gpus = [gpu for gpu in walls.gpus if gpu[0] == rank]
    return max(gpus, key=lambda gpu: walls.class_ns(*gpu, *wall_classes), default=None)


def _idlest_step(tables: Tables, rank: int, phase: str) -> tuple[int, int] | None:
    """Return when a rank's step ran in which it was idle longest, of those of a phase if any."""
    steps = tables["steps"]
    rows = steps[(steps["rank"] == rank) & steps["idle_inside_ns"].notna()]
    of_phase = rows[rows["phase"] == phase]
    rows = rows if of_phase.empty else of_phase
    if rows.empty:
        return None
    longest = rows.loc[rows["idle_inside_ns"].idxmax()]
    return int(longest["gpu_start_ns"]), int(longest["gpu_end_ns"])


def _idle(tables: Tables) -> list[Finding]:
    """Return a finding for each phase before whose work a GPU is idle."""
    phases, ranks = tables["phases"], tables["rank_phases"]
    reported = []
    for phase in phases.loc[phases["mapped"], "phase"].tolist():
        rows = records(ranks[(ranks["phase"] == phase) & (ranks["idle_ns"].fillna(0) > 0)])
        if rows:
            row = max(rows, key=lambda row: row["idle_ns"])
            reported.append(_idle_finding(tables, row, tuple(row["rank"] for row in rows)))
    return reported


def _idle_ns(tables: Tables, walls: Walls, gpu: Gpu, idle_ns: int) -> int:
    """Return a rank's idle time on its GPU that idles most; all of its GPUs are taken alike."""
    ranks = tables["rank_phases"]
    whole_ns = int(ranks.loc[ranks["rank"] == gpu[0], "idle_ns"].sum())
    return int(idle_ns) * min(walls.class_ns(*gpu, IDLE), whole_ns) // max(whole_ns, 1)


def _idle_finding(tables: Tables, row: Record, affected: tuple[int, ...]) -> Finding:
    walls = Walls(tables)
    gpu = busiest_gpu(walls, int(row["rank"]), IDLE) or (int(row["rank"]), 0)
    device, idle_ns = gpu[1], _idle_ns(tables, walls, gpu, row["idle_ns"])
    rank, phase = int(row["rank"]), str(row["phase"])
    idle = tables["phase_idle"]
    gaps = records(idle[idle["phase"] == phase])[0]
    return RULES["idle_before_phase"].finding(
        cause=Cause("place", rank=rank, detail=phase),
        change=Change("unknown", time_ns=idle_ns, wall_classes=(IDLE,)),
        fields={
            "before_pct": percent(gaps["before_ns"], gaps["idle_ns"]),
        },
        evidence=(
            *cells("rank_phases", row, ("rank", "phase"), ("idle_ns", "gpu_ns")),
            *cells("phase_idle", gaps, ("phase",), ("before_ns",)),
        ),
        ranks=affected,
        rank=rank,
        device_id=device,
        name=phase,
        window_ns=_idlest_step(tables, rank, phase),
        impact_ns=idle_ns,
    )

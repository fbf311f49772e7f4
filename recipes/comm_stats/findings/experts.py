"""The finding on experts that get uneven numbers of tokens, by how the slowest rank moves."""

from __future__ import annotations

from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.job.collectives.experts import UNEVEN
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, claim
from nsys_llm.report.records import Tables, percent
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, EXPERTS, WAITING

from .texts import RULES

_CASES: Final = {"one rank": "one_rank", "by layer": "by_layer"}


def uneven_experts(tables: Tables) -> pd.DataFrame:
    """Return the rows of experts that are uneven; none where they are even."""
    rows = tables["experts"]
    rows = rows[(rows["pattern"] != "even") | rows["pattern"].isna()]
    is_uneven = rows["max_ns"].sum() >= UNEVEN * rows["mean_ns"].sum()
    return rows if is_uneven and rows["late_ns"].sum() else rows[:0]


def late_experts(rows: pd.DataFrame, tables: Tables) -> tuple[Evidence, Evidence]:
    """Return what even experts gain, `late_ns`, and the share of all waiting, `waiting_pct`.

    Ranks wait beside each other, so that counts whose experts cost most, in all of their groups.
    How much later the last rank comes than the mean one is what the mean one waits.
    """
    ranks = rows["group"].map(tables["groups"].set_index("group")["ranks"])
    groups = rows.loc[ranks == rows.groupby(ranks)["late_ns"].sum().idxmax(), "group"]
    patterns = tuple(rows["pattern"].unique().tolist())
    of = partial(claim, tables)
    of_wall = partial(of, wall_class=COMMUNICATION, **_whose(tables, groups))
    whole = of_wall("waiting_ns", "wall", "time_ns", detail=(EXPERTS, WAITING))
    return (
        of(
            *("late_ns", "experts", "late_ns"),
            group=tuple(groups.unique().tolist()),
            pattern=patterns,
        ),
        of_wall("waiting_pct", "wall", "time_ns", "sum", whole, detail=EXPERTS),
    )


def _whose(tables: Tables, groups: pd.Series[int]) -> dict[str, tuple[int, ...]]:
    """Return what chooses the ranks of the job's group that communicators are of, if not all."""
    walls, rows = Walls(tables), tables["groups"]
    group = walls.group(int(rows.loc[rows["group"] == groups.iloc[0], "rank"].iloc[0]))
    every = sorted({rank for rank, _ in walls.gpus})
    ranks = tuple(rank for rank in every if walls.group(rank) == group)
    return {"rank": ranks} if len(ranks) < len(every) else {}


def expert_findings(tables: Tables) -> list[Finding]:
    """Return the finding on uneven experts; on the GPU that waits most: it has least to compute."""
    rows = uneven_experts(tables)
    if rows.empty:
        return []
    patterns = set(rows["pattern"].dropna())
    pattern = patterns.pop() if len(patterns) == 1 else None
    late, waited = late_experts(rows, tables)
    walls, late_ns = Walls(tables), int(late.value)
    hot = int(rows["hot_rank"].mode().iloc[0])
    of_experts = partial(claim, tables, pattern=tuple(rows["pattern"].unique().tolist()))
    if pattern == "one rank":
        of_experts = partial(of_experts, hot_rank=hot)
    its = dict(waited.where).get("rank", ())
    if its:
        groups = tables["groups"]
        of_experts = partial(of_experts, group=tuple(groups.loc[groups["rank"].isin(its), "group"]))
    mean = of_experts("mean_ns", "experts", "mean_ns")
    gpus = [gpu for gpu in walls.gpus if gpu[0] in its or not its]
    rank, device_id = max(gpus, key=lambda gpu: walls.class_ns(*gpu, COMMUNICATION))
    return [
        RULES["experts"].finding(
            cause=Cause("experts"),
            change=Change("experts", time_ns=late_ns),
            case=_CASES.get(str(pattern)),
            fields={"hot": str(hot)},
            evidence=(
                late,
                *(waited, of_experts("longer_pct", "experts", "max_ns-mean_ns", "sum", mean)),
                of_experts("instances_n", "experts", "max_ns", "count"),
            ),
            rank=rank,
            device_id=device_id,
            impact_ns=late_ns,
        )
    ]


def longer_experts(rows: pd.DataFrame) -> float:
    """Return by how much the slowest rank computes longer than the mean one, in percent."""
    mean_ns = float(rows["mean_ns"].sum())
    return percent(float(rows["max_ns"].sum()) - mean_ns, mean_ns)

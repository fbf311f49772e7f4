"""Pipelines as the tables have them: stages, and the bubble of the schedule.

Which ranks are stages is decided in `nsys_llm.analyses.collectives.stages`. A stage is a set of
devices; its times are means over them. Reads finished tables only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.report.records import Tables, grouped, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.wall_classes import BUBBLE, COMMUNICATION, IDLE

from .members import gpu_of

#: Rank and device of each of its GPUs.
Stage = tuple[Gpu, ...]

LEAST_STAGES: Final = 3


@dataclass(frozen=True)
class Pipeline:
    """One pipeline.

    Attributes:
        stages: In the order of the chain.
        pairs: Names of its communicators.
        transfers_n: Matched sends with their receives.
        window_ns: The longest window of its devices.
        compute_ns: Of each stage, kernels but communication.
        bubbles_ns: Of each stage, time in which it waits for another one and computes nothing, and
            in which its GPU ran nothing.
        idle_ns: Of each stage, time in which its GPU ran nothing at all.
        turns_pct: Of two stages, kernels that they launch in turn; None for more stages.
    """

    stages: tuple[Stage, ...]
    pairs: frozenset[str]
    transfers_n: int
    window_ns: int
    compute_ns: tuple[int, ...]
    bubbles_ns: tuple[int, ...]
    idle_ns: tuple[int, ...]
    turns_pct: float | None = None

    @property
    def bubble_pct(self) -> float:
        """Share of the stages' windows, 0 to 100."""
        return 100.0 * sum(self.bubbles_ns) / max(self.window_ns * len(self.stages), 1)

    @property
    def ranks(self) -> str:
        """Its ranks in the order of the chain, those of a stage with +, for sentences."""
        return ", ".join("+".join(str(rank) for rank, _ in stage) for stage in self.stages)


def find_pipelines(tables: Tables, walls: Walls) -> list[Pipeline]:
    """Return all pipelines, in the order of their first ranks."""
    sequences = tables["communicators"]
    staged = sequences[sequences["pipeline"].notna()]
    return [_pipeline(some, tables, walls) for _, some in staged.groupby("pipeline", sort=True)]


def _pipeline(transfers: pd.DataFrame, tables: Tables, walls: Walls) -> Pipeline:
    names = frozenset(transfers["communicator"])
    members = tables["stragglers"]
    inside = {gpu_of(row) for row in records(members[members["communicator"].isin(names)])}
    verdicts = records(tables["rank_verdicts"].sort_values("stage", kind="stable"))
    by_stage = grouped((row for row in verdicts if gpu_of(row) in inside), "stage")
    stages = tuple(tuple(map(gpu_of, rows)) for rows in by_stage.values())
    devices = {gpu_of(row): row for row in records(tables["tail_ranks"])}
    every = [gpu for stage in stages for gpu in stage]
    window_ns = max(int(devices[gpu]["window_ns"]) for gpu in every)
    # What is outside of its span it waited for, too.
    bubble_ns = {
        gpu: walls.detail_ns(gpu, COMMUNICATION, BUBBLE)
        + walls.class_ns(*gpu, IDLE)
        + max(window_ns - walls.span_ns(*gpu), 0)
        for gpu in every
    }

    def means(values: Mapping[Gpu, int]) -> tuple[int, ...]:
        return tuple(sum(values[gpu] for gpu in stage) // len(stage) for stage in stages)

    turns = transfers["turns_pct"].max()
    return Pipeline(
        stages,
        names,
        int(transfers["collectives_n"].sum()),
        window_ns,
        means({gpu: int(devices[gpu]["total_ns"]) for gpu in every}),
        means(bubble_ns),
        means({gpu: int(devices[gpu]["idle_ns"]) for gpu in every}),
        None if pd.isna(turns) else float(turns),
    )

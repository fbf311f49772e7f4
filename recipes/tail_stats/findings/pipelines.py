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
from nsys_llm.report.walls import Gpu
from nsys_llm.taxonomy.communication import SEND_RECV

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
        bubbles_ns: Of each stage, what of the window is neither that nor other communication nor
            transfer. Of kernels that send or receive while the stage computes, transfer and
            waiting are taken to be hidden alike.
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


def find_pipelines(tables: Tables) -> list[Pipeline]:
    """Return all pipelines, in the order of their first ranks."""
    sequences = tables["communicators"]
    staged = sequences[sequences["pipeline"].notna()]
    return [_pipeline(some, tables) for _, some in staged.groupby("pipeline", sort=True)]


def _pipeline(transfers: pd.DataFrame, tables: Tables) -> Pipeline:
    names = frozenset(transfers["communicator"])
    members = tables["stragglers"]
    inside = {gpu_of(row) for row in records(members[members["communicator"].isin(names)])}
    verdicts = records(tables["rank_verdicts"].sort_values("stage", kind="stable"))
    by_stage = grouped((row for row in verdicts if gpu_of(row) in inside), "stage")
    stages = tuple(tuple(map(gpu_of, rows)) for rows in by_stage.values())
    devices = {gpu_of(row): row for row in records(tables["tail_ranks"])}
    every = [gpu for stage in stages for gpu in stage]
    window_ns = max(int(devices[gpu]["window_ns"]) for gpu in every)
    transfer_ns: dict[Gpu, int] = dict.fromkeys(every, 0)
    for row in records(transfers):
        ends = members[members["communicator"] == row["communicator"]]
        for gpu in map(gpu_of, records(ends)):
            transfer_ns[gpu] += int(row["transfer_ns"])
    other_ns, p2p_ns = _communication(tables)
    bubble_ns = {}
    for gpu in every:
        left_ns = max(window_ns - int(devices[gpu]["total_ns"]) - other_ns.get(gpu, 0), 0)
        # Where kernels that wait run beside computation, as much of the transfers does.
        exposed_ns = transfer_ns[gpu] * min(left_ns, p2p_ns[gpu]) // max(p2p_ns[gpu], 1)
        bubble_ns[gpu] = max(left_ns - exposed_ns, 0)

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


def _communication(tables: Tables) -> tuple[dict[Gpu, int], dict[Gpu, int]]:
    """Return the time of each device in collectives, and in sends and receives."""
    other_ns: dict[Gpu, int] = {}
    p2p_ns: dict[Gpu, int] = {}
    for row in records(tables["collective_coverage"]):
        own_ns = p2p_ns if row["operation"] == SEND_RECV else other_ns
        stage = row["rank"], row["device_id"]
        own_ns[stage] = own_ns.get(stage, 0) + int(row["total_ns"])
    return other_ns, p2p_ns

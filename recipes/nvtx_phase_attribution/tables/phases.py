"""Sums of ranks as data frames, and the tables of phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.facts.phases.rank import RankPhases
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, percent, rank_columns
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED, phase_map
from nsys_llm.trace.identity import Rank

#: Ranks in order, each with what it was reduced to.
Parts = Sequence[tuple[Rank, RankPhases]]

#: GPU time of no phase.
REST: Final = {
    UNMAPPED: "launched in ranges of which none is a phase",
    NO_RANGE: "launched in no range",
    NO_API: "launched by no recorded API call",
}
_COUNTS: Final = (
    "ops_n",
    "kernels_n",
    "gpu_ns",
    "kernel_ns",
    "memop_ns",
    "whole_graph_ns",
    "communication_ns",
)
_SUMS: Final = (*_COUNTS, "exclusive_ns", "host_ns", "instances_n")


def sums_frame(
    parts: Parts,
    of: Callable[[RankPhases], ByKey],
    keys: Sequence[str],
    sums: Sequence[str],
) -> pd.DataFrame:
    """Return sums of all ranks, one row a rank and key.

    Returns:
        Columns at (position of the rank), rank, file, the keys, and the sums.
    """
    rank_sums = [of(part) for _, part in parts]
    sizes = [len(some.keys) for some in rank_sums]
    columns: Columns = {
        "at": np.repeat(np.arange(len(parts)), sizes),
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, sizes, strict=True)]),
    }
    for index, name in enumerate(keys):
        columns[name] = [key[index] for some in rank_sums for key in some.keys]
    for name in sums:
        columns[name] = joined([some[name] for some in rank_sums])
    return pd.DataFrame(columns)


class PhaseFrames:
    """The phases of a run, and of each of its ranks, in the order of its tables.

    Attributes:
        names: Phases with ranges or GPU time, most GPU time first, then the rows without a phase.
        ranks: One row a rank and phase with any; columns of `sums_frame`, phase and idle_ns, null
            where it is not known; by rank and the order of phases.
    """

    def __init__(self, parts: Parts, options: Mapping[str, Any]) -> None:
        frame = sums_frame(parts, lambda part: part.phases, ["phase"], _SUMS)
        known = phase_map(options["phase_map"]).phases
        sums = frame.groupby("phase", sort=True)[["gpu_ns", "instances_n"]].sum()
        # With a filter, work of a phase that it leaves out may end a gap.
        gaps = sums_frame(parts, lambda part: part.idle, ["phase"], ["gaps_n", "idle_ns"])
        ended = set(gaps.loc[gaps["gaps_n"] > 0, "phase"])
        time_ns = {name: int(sums.loc[name, "gpu_ns"]) for name in sums.index}
        used = [
            name for name in known if name in ended or (name in time_ns and sums.loc[name].any())
        ]
        used.sort(key=lambda name: (-time_ns.get(name, 0), name))
        self.names = (*used, *REST)
        self.place = {name: index for index, name in enumerate(self.names)}
        frame = frame[frame["phase"].isin(self.names)]
        frame = frame[(frame["ops_n"] > 0) | (frame["gpu_ns"] > 0) | (frame["instances_n"] > 0)]
        frame = frame.assign(code=[self.place[name] for name in frame["phase"]])
        frame = frame.sort_values(["at", "code"], kind="stable", ignore_index=True)
        idle_ns = gaps.set_index(["at", "phase"])["idle_ns"]
        rows = pd.MultiIndex.from_frame(frame[["at", "phase"]])
        self.ranks = frame.assign(
            idle_ns=idle_ns.reindex(rows, fill_value=0).to_numpy(dtype=np.int64),
            work_ns=frame["gpu_ns"] - frame["communication_ns"],
        )

    def order(self, phases: Sequence[str]) -> IntArray:
        """Return the place of each phase in the order of tables."""
        return np.array([self.place[name] for name in phases], dtype=np.int64)


def phase_columns(frames: PhaseFrames) -> dict[str, Columns]:
    """Return the tables phases and rank_phases."""
    rows = frames.ranks
    whole = rows.groupby("at")["gpu_ns"].transform("sum").to_numpy(dtype=np.int64)
    return {
        "phases": _phases(frames),
        "rank_phases": {
            **{name: rows[name] for name in ("rank", "file", "phase", *_SUMS, "work_ns")},
            "gpu_pct": percent(rows["gpu_ns"].to_numpy(dtype=np.int64), whole),
            "idle_ns": nullable(rows["idle_ns"].to_numpy(dtype=np.int64)),
        },
    }


def _phases(frames: PhaseFrames) -> Columns:
    names, rows = frames.names, frames.ranks
    n = len(names)
    code = rows["code"].to_numpy(dtype=np.int64)
    of = (*_SUMS, "idle_ns", "work_ns")
    sums = {name: summed(code, rows[name].to_numpy(dtype=np.int64), n) for name in of}
    return {
        "phase": names,
        "mapped": [name not in REST for name in names],
        "meaning": [REST.get(name, "in a range of this phase") for name in names],
        "ranks_n": np.bincount(code, minlength=n),
        **sums,
        "gpu_pct": percent(sums["gpu_ns"], int(sums["gpu_ns"].sum())),
    }

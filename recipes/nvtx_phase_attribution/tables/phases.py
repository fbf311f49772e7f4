"""The tables of phases, made of merged facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, percent
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED, phase_map

from .rank_frames import Parts, sums_frame

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


class PhaseFrames:
    """The phases of a run, and of each of its ranks, in the order of its tables.

    Attributes:
        names: Phases with ranges or GPU time, most GPU time first, then the rows without a phase.
        ranks: One row a rank and phase with any; columns of `sums_frame`, phase and idle_ns, null
            where it is not known; by rank and the order of phases.
    """

    def __init__(self, parts: Parts, options: Mapping[str, Any]) -> None:
        frame = sums_frame(parts, lambda part: part.phases, ["phase"])
        for name in _SUMS:
            if name not in frame:
                frame[name] = np.empty(0, dtype=np.int64)
        known = phase_map(options["phase_map"]).phases
        sums = frame.groupby("phase", sort=True)[["gpu_ns", "instances_n"]].sum()
        # With a filter, work of a phase that it leaves out may end a gap.
        gaps = sums_frame(parts, lambda part: part.idle, ["phase"])
        ended = set(gaps.loc[gaps["gaps_n"] > 0, "phase"]) if len(gaps) else set()
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
        self.ranks = frame.assign(
            idle_ns=_idle_ns(frame, parts), work_ns=frame["gpu_ns"] - frame["communication_ns"]
        )

    def order(self, phases: Sequence[str]) -> IntArray:
        """Return the place of each phase in the order of tables."""
        return np.array([self.place[name] for name in phases], dtype=np.int64)


def phase_columns(frames: PhaseFrames) -> dict[str, Columns]:
    """Return the tables phases and rank_phases."""
    return {"phases": _phases(frames), "rank_phases": _rank_phases(frames)}


def _idle_ns(frame: pd.DataFrame, parts: Parts) -> IntArray:
    idle_of = {
        (at, phase): int(ns)
        for at, (_, part) in enumerate(parts)
        for (phase,), ns in zip(part.idle.keys, part.idle.sums["idle_ns"], strict=True)
    }
    rows = zip(frame["at"].tolist(), frame["phase"].tolist(), strict=True)
    return np.array([idle_of.get(key, 0) for key in rows], dtype=np.int64)


def _phases(frames: PhaseFrames) -> Columns:
    names, rows = frames.names, frames.ranks
    n = len(names)
    code = rows["code"].to_numpy(dtype=np.int64)
    sums = {name: summed(code, rows[name].to_numpy(dtype=np.int64), n) for name in _SUMS}
    idle_ns = rows["idle_ns"].to_numpy(dtype=np.int64)
    mapped = np.array([name not in REST for name in names], dtype=bool)
    return {
        "phase": names,
        "mapped": mapped,
        "meaning": [REST.get(name, "in a range of this phase") for name in names],
        "ranks_n": np.bincount(code, minlength=n),
        **sums,
        "work_ns": sums["gpu_ns"] - sums["communication_ns"],
        "gpu_pct": percent(sums["gpu_ns"], int(sums["gpu_ns"].sum())),
        "idle_ns": summed(code, idle_ns, n),
    }


def _rank_phases(frames: PhaseFrames) -> Columns:
    rows = frames.ranks
    whole = rows.groupby("at")["gpu_ns"].transform("sum").to_numpy(dtype=np.int64)
    return {
        **{name: rows[name] for name in ("rank", "file", "phase", *_SUMS, "work_ns")},
        "gpu_pct": percent(rows["gpu_ns"].to_numpy(dtype=np.int64), whole),
        "idle_ns": nullable(rows["idle_ns"].to_numpy(dtype=np.int64)),
    }

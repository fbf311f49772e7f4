"""The tables of phases, made out of the merged partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.distributions import MEDIAN, PERCENTS, interpolate
from nsys_llm.numeric.grouping import summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, percent
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED, phase_map
from nsys_llm.trace.identity import Rank

from ..partials import PhasePartial
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
        gaps = sums_frame(parts, lambda part: part.idle.phases, ["phase"])
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


def phase_columns(
    partial: PhasePartial, frames: PhaseFrames, ranks: Sequence[Rank]
) -> dict[str, Columns]:
    """Return the tables phases and rank_phases."""
    return {"phases": _phases(partial, frames, ranks), "rank_phases": _rank_phases(frames, ranks)}


def _idle_ns(frame: pd.DataFrame, parts: Parts) -> IntArray:
    idle_of = {
        (at, key[0]): int(ns)
        for at, (_, part) in enumerate(parts)
        for key, ns in zip(
            part.idle.phases.keys, part.idle.phases.sums.get("idle_ns", ()), strict=False
        )
    }
    known = [part.idle.known for _, part in parts]
    rows = zip(frame["at"].tolist(), frame["phase"].tolist(), strict=True)
    return np.array(
        [idle_of.get(key, 0) if known[key[0]] else NULL_INT for key in rows], dtype=np.int64
    )


def _phases(partial: PhasePartial, frames: PhaseFrames, ranks: Sequence[Rank]) -> Columns:
    names, rows = frames.names, frames.ranks
    n = len(names)
    code = rows["code"].to_numpy(dtype=np.int64)
    sums = {name: summed(code, rows[name].to_numpy(dtype=np.int64), n) for name in _SUMS}
    idle_ns = rows["idle_ns"].to_numpy(dtype=np.int64)
    unknown = bool((idle_ns == NULL_INT).any())
    mapped = np.array([name not in REST for name in names], dtype=bool)
    work_ns = np.zeros((n, len(ranks)), dtype=np.int64)
    work_ns[code, rows["at"].to_numpy(dtype=np.int64)] = rows["work_ns"]
    return {
        "phase": names,
        "mapped": mapped,
        "meaning": [REST.get(name, "in a range of this phase") for name in names],
        "ranks_n": np.bincount(code, minlength=n),
        **sums,
        "work_ns": sums["gpu_ns"] - sums["communication_ns"],
        "gpu_pct": percent(sums["gpu_ns"], int(sums["gpu_ns"].sum())),
        "idle_ns": [None] * n if unknown else summed(code, idle_ns, n),
        **_instances(partial, names),
        **_extremes(work_ns, ranks),
    }


def _extremes(work_ns: IntArray, ranks: Sequence[Rank]) -> Columns:
    """Return the ranks with most and with least; `work_ns` has shape (phases, ranks)."""
    names = ("most_rank", "most_ns", "least_rank", "least_ns", "median_ns")
    if not ranks:
        return {name: [None] * len(work_ns) for name in names}
    numbers = np.array([rank.number for rank in ranks], dtype=np.int64)
    most_ns, least_ns = work_ns.max(axis=1), work_ns.min(axis=1)
    # Where no rank has anything, none has most.
    most, least = (
        pd.arrays.IntegerArray(numbers[place], most_ns == 0)
        for place in (work_ns.argmax(axis=1), work_ns.argmin(axis=1))
    )
    return dict(
        zip(names, (most, most_ns, least, least_ns, np.median(work_ns, axis=1)), strict=True)
    )


def _instances(partial: PhasePartial, names: Sequence[str]) -> Columns:
    """Return how much GPU time a range of each phase has; null where they were not all counted."""
    counts = partial.instances
    place = {name: index for index, name in enumerate(counts.names)}
    row = np.array([place.get(name, -1) for name in names], dtype=np.int64)
    moments = counts.counts.moments(len(counts.names) + 1).take(row)
    order = counts.counts.order_statistics(len(counts.names) + 1).take(row)
    none = (moments.n == 0) | np.array([name in partial.uncounted for name in names], dtype=bool)
    percentiles = np.where(none[:, None], np.nan, interpolate(order))
    return {
        "self_gpu_instances_n": moments.n,
        "instance_p50_ns": percentiles[:, MEDIAN],
        "instance_p99_ns": percentiles[:, PERCENTS.index(99)],
        "instance_max_ns": pd.arrays.IntegerArray(moments.maximum.copy(), none),
    }


def _rank_phases(frames: PhaseFrames, ranks: Sequence[Rank]) -> Columns:
    rows = frames.ranks
    whole = rows.groupby("at")["gpu_ns"].transform("sum").to_numpy(dtype=np.int64)
    wide = rows.pivot_table(index="code", columns="at", values="work_ns", aggfunc="sum")
    wide = wide.reindex(columns=range(len(ranks))).fillna(0)
    # Of two ranks, the other one is what to compare with.
    usual = wide.median(axis=1) if len(ranks) != 2 else None
    gpu_ns, work_ns = (rows[name].to_numpy(dtype=np.int64) for name in ("gpu_ns", "work_ns"))
    if usual is not None:
        base = usual.reindex(rows["code"]).to_numpy(dtype=np.float64)
    else:
        other = wide.iloc[:, ::-1].set_axis(wide.columns, axis=1).stack()
        base = other.loc[list(zip(rows["code"], rows["at"], strict=True))].to_numpy(np.float64)
    return {
        **{name: rows[name] for name in ("rank", "file", "phase", *_SUMS, "work_ns")},
        "gpu_pct": percent(gpu_ns, whole),
        "idle_ns": nullable(rows["idle_ns"].to_numpy(dtype=np.int64)),
        "above_median_ns": np.rint(work_ns - base).astype(np.int64),
    }

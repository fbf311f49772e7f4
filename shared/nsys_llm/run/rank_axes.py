"""How the times of each rank get onto the axis of a timeline.

By the collectives of the job where a recipe keeps them, which also put right a clock that runs
fast; else by the clocks that the profiles record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.job.job_clock import JobClock
from nsys_llm.numeric.clock_lines import ClockLine, own_times_ns
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.records import records
from nsys_llm.trace.identity import Rank
from nsys_llm.view.text import format_ns

#: Sources that say nothing.
_NO_CLOCK: Final = ("none", "off")
_ONLY_NTP: Final = "utcEpochNs"
_AS_RECORDED: Final = ClockLine(0)

Window = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """How the times of one rank get onto an axis.

    Attributes:
        name: Ranks of one axis can be compared.
        says: How exact that is; "" where there is nothing to say.
        shift_ns: What is added to a time of the profile.
        line: How far the shifted clock is ahead of the axis.
        zero_ns: Where the axis begins.
    """

    name: str
    says: str
    shift_ns: int
    line: ClockLine
    zero_ns: int = 0

    def on_axis(self, at_ns: IntArray) -> IntArray:
        """Return times of the profile on the axis; their order stays."""
        shifted_ns = at_ns + self.shift_ns
        return shifted_ns - self.line.ahead_ns(shifted_ns) - self.zero_ns

    def window(self, window: Window) -> Window:
        """Return a window of the profile on the axis."""
        start_ns, end_ns = self.on_axis(np.array(window)).tolist()
        return start_ns, end_ns

    def own_window(self, window: Window) -> Window:
        """Return a window of the axis in the clock of the profile."""
        start_ns, end_ns = own_times_ns(self.on_axis, np.array(window)).tolist()
        return start_ns, end_ns


def rank_axes(
    clock: JobClock | None, tables: Mapping[str, pd.DataFrame], ranks: Sequence[Rank]
) -> dict[str, Axis]:
    """Return the axis of each rank, by its file; each axis begins where the first capture does.

    Args:
        clock: Of the job; None where a recipe matches no collectives.
        tables: `files` of the run.
    """
    files = {row["File"]: row for row in records(tables["files"].reset_index())}
    axes = {
        rank.file: _recorded(rank, files[rank.file])
        if clock is None
        else _aligned(clock, rank, ranks[0], files[rank.file])
        for rank in ranks
    }
    if len(ranks) == 1:
        # There is nothing to compare it with.
        axes = {file: replace(axis, says="") for file, axis in axes.items()}
    begins: dict[str, int] = {}
    for axis in axes.values():
        begin_ns, _ = axis.window((0, 0))
        begins[axis.name] = min(begin_ns, begins.get(axis.name, begin_ns))
    return {file: replace(axis, zero_ns=begins[axis.name]) for file, axis in axes.items()}


def _recorded(rank: Rank, row: Mapping[str, Any]) -> Axis:
    """Return the axis by the clock that the profile itself records."""
    if row["clock_offset_ns"] is None:
        return Axis(f"{rank.key.side}:{rank.key.path}", "clock of its own", 0, _AS_RECORDED)
    return Axis(rank.key.side, _recorded_says(row), int(row["clock_offset_ns"]), _AS_RECORDED)


def _recorded_says(row: Mapping[str, Any]) -> str:
    return "clock as exact as NTP" if row["clock_source"] == _ONLY_NTP else ""


def _aligned(clock: JobClock, rank: Rank, first: Rank, row: Mapping[str, Any]) -> Axis:
    """Return the axis by the collectives that the rank takes part in, if it does."""
    matched = clock.collectives
    place = matched.clock_of[rank.key.path]
    fit, source = matched.clocks[place], matched.sources[place]
    if source in _NO_CLOCK:
        return Axis(f"{rank.key.side}:{rank.key.path}", "clock of its own", 0, _AS_RECORDED)
    says = f"clock within {format_ns(fit.residual_ns)}" if fit.residual_ns else ""
    if fit.root != matched.clocks[matched.clock_of[first.key.path]].root:
        # No collective links it with the first rank.
        says = _recorded_says(row)
    name = "" if row["clock_offset_ns"] is not None else f"{fit.root}"
    return Axis(name, says, matched.coarse_ns[place], fit.line)

"""A second look at some ranks, once the tables say where: what they did in a few windows.

The ranks are read again where they were read before, and what comes back is joined to what can be
seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pandas as pd

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.timeline.step_lanes import (
    FULL_NAMES,
    LaneInputs,
    LaneWindow,
    StepLane,
    rank_lanes,
)
from nsys_llm.core.console import Console
from nsys_llm.manifest.manifest import timeline_reads
from nsys_llm.report.run import Run
from nsys_llm.run.executors import Executor, chunked
from nsys_llm.run.read_again import RankAgain, ranks_again, read_again
from nsys_llm.trace.filters import FILTERS, unfiltered
from nsys_llm.trace.identity import RankKey

#: What a lane shows nothing of.
_NOT_READ: Final = ("nvtx_events", "memory_events")
#: Operations of several profiles that are kept, some 100 MB; ours.
MOST_KEPT_OPS: Final = 1_000_000


@dataclass(frozen=True)
class Looked:
    """What was read: integers and strings.

    Attributes:
        failed: Why ranks could not be read again.
    """

    lanes: Mapping[RankKey, tuple[StepLane, ...]] = field(default_factory=dict)
    failed: tuple[str, ...] = ()


class FirstRead:
    """What the second look needs of ranks that this process has read: those are not read again.

    Of many ranks only some are kept, so that the memory of a run does not grow with them. An only
    rank is: mapping it took more memory than what comes after.
    """

    def __init__(self, profiles_n: int) -> None:
        self._only, self._room_n = profiles_n == 1, MOST_KEPT_OPS
        self._kept: dict[RankKey, LaneInputs] = {}

    def keep(self, view: RankView) -> None:
        """Keep a rank that was mapped, if there is room and it is seen as lanes show it."""
        if view.key in self._kept or any(map(view.options.get, (*FILTERS, *FULL_NAMES))):
            return
        ops_n = sum(map(len, view.trace.unfiltered.values()))
        if ops_n <= self._room_n or (self._only and not self._kept):
            self._room_n -= ops_n
            self._kept[view.key] = LaneInputs.of(view)

    def lanes(
        self, windows: Mapping[RankKey, Sequence[LaneWindow]], engine: str
    ) -> dict[RankKey, tuple[StepLane, ...]]:
        """Return the lanes of the ranks that were kept, and keep them no longer."""
        kept, self._kept = self._kept, {}
        return {
            key: rank_lanes(kept[key], asked, engine)
            for key, asked in windows.items()
            if key in kept
        }


def look_again(
    run: Run,
    tables: Mapping[str, pd.DataFrame],
    first: FirstRead | None = None,
    *,
    executor: Executor,
    console: Console,
) -> dict[str, pd.DataFrame]:
    """Return the tables of a recipe's second look.

    Args:
        first: What its first read has left; None where that was elsewhere.
        console: Told which ranks could not be read again.
    """
    look = run.analysis.second_look
    if look is None:
        return {}
    working = {rank.key for profile in run.profiles for rank in profile.ranks}
    ranks = [rank for rank in run.ranks if rank.key in working]
    plan = look.plan(run.parts, ranks, tables, run.options)
    options = {**unfiltered(run.options), **FULL_NAMES}
    mapper = partial(look_at_profiles, engine=plan.engine, options=options)
    known = {} if first is None else first.lanes(plan.windows, plan.engine)
    looked = Looked()
    wanted = {key: windows for key, windows in plan.windows.items() if key not in known}
    if profiles := ranks_again(run, wanted):
        chunks = chunked(profiles, executor.workers_n)
        looked = executor.reduce(mapper, chunks, merge_looks, lambda _: None)
    for reason in looked.failed:
        console.warn(f"timeline: {reason}")
    return look.tabulate(plan, {**known, **looked.lanes})


def look_at_profiles(
    chunk: Sequence[Sequence[RankAgain]], *, engine: str, options: Mapping[str, Any]
) -> Looked:
    """Read some profiles, one after the other, and return what some of their ranks did.

    Args:
        chunk: The ranks of each profile, and in which windows (`LaneWindow`).
        engine: Whose rules tell the categories of kernels.
        options: Of the run without its filters, for full names.
    """

    def lanes_of(rank: RankAgain, view: RankView) -> tuple[StepLane, ...]:
        return rank_lanes(LaneInputs.of(view), rank.wanted, engine)

    reads = [read for read in timeline_reads() if read.table not in _NOT_READ]
    lanes: dict[RankKey, tuple[StepLane, ...]] = {}
    failed: list[str] = []
    for seen in read_again(chunk, reads, options, lanes_of):
        if seen.made is not None:
            lanes[seen.key] = seen.made
        elif seen.reason is not None:
            failed.append(seen.reason)
    return Looked(lanes, (*dict.fromkeys(failed),))


def merge_looks(parts: Sequence[Looked]) -> Looked:
    """Join what was read of distinct profiles. Associative and commutative."""
    lanes = {key: some for part in parts for key, some in part.lanes.items()}
    failed = sorted(reason for part in parts for reason in part.failed)
    return Looked(lanes, tuple(failed))

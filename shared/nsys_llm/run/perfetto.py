"""A second look at some ranks of a run: their timelines, written for Perfetto.

Rows of a rank never travel; what a timeline shows is read in the process that was started, once the
findings are known, one profile at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from nsys_llm.analyses.collectives.job_clock import JobClock
from nsys_llm.analyses.steps.finder import find_steps
from nsys_llm.analyses.timeline.job_tracks import collective_tracks, path_tracks
from nsys_llm.analyses.timeline.rank_timeline import rank_timeline
from nsys_llm.analyses.timeline.states import typical_and_worst
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ReportError
from nsys_llm.manifest.manifest import timeline_reads
from nsys_llm.profile.inputs import open_report
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.tables import Trace
from nsys_llm.report.findings import Finding
from nsys_llm.report.perfetto import TRACE_NAME, TracedRank, findings_track, write_trace
from nsys_llm.report.records import Record, records
from nsys_llm.report.run import Run
from nsys_llm.run.rank_axes import Axis, rank_axes
from nsys_llm.trace.filters import unfiltered
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_sets import INPUT
from nsys_llm.trace.rank_trace import RankTrace
from nsys_llm.trace.selection import select_rank
from nsys_llm.trace.timeline import Track
from nsys_llm.view.text import counted

#: Ranks that are shown where --ranks names none; ours: what fits on a screen.
MOST_RANKS: Final = 8
#: Events of a file; ours: the page of Perfetto opens as many in seconds.
MOST_EVENTS: Final = 400_000
#: Findings whose windows are shown.
MOST_FINDINGS: Final = 5


Window = tuple[int | None, int | None]


@dataclass
class _Looks:
    """What is looked at, and what came of it.

    Attributes:
        windows: Wanted windows by axis, on that axis.
        with_steps: Axes whose windows hold two steps already.
        events_n: Events so far.
        left_out_n: Rows of wanted windows without room.
        failed: Why ranks are missing.
    """

    windows: dict[str, list[tuple[int, int]]]
    with_steps: set[str] = field(default_factory=set)
    events_n: int = 0
    left_out_n: int = 0
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Others:
    """What is known of ranks only beside each other.

    Attributes:
        clock: Of the job; None where a recipe matches no collectives.
        path: Rows of the table `path` of step_budget.
    """

    clock: JobClock | None
    path: Sequence[Record]

    @classmethod
    def of(cls, run: Run, tables: Mapping[str, pd.DataFrame], ranks: Sequence[Rank]) -> _Others:
        """Take it from a recipe that has it, or from those of an overview."""
        parts = getattr(run.partial, "parts", None)
        runs = (
            [(run, tables)]
            if parts is None
            else [(part.run, part.tables) for part in parts.values()]
        )
        # Paths are on the clock of their own recipe.
        runs.sort(key=lambda one: "path" not in one[1])
        for one, own in runs:
            if one.analysis.collectives is not None and ranks:
                kept = one.analysis.collectives(one.partial)
                path = records(own["path"]) if "path" in own else []
                return cls(JobClock.of(kept, ranks, one.options), path)
        return cls(None, ())

    def tracks(self, rank: Rank) -> list[Track]:
        """Return the lines of a rank."""
        if self.clock is None:
            return []
        return [*collective_tracks(self.clock, rank), *path_tracks(self.clock, rank, self.path)]


def write_perfetto(
    folder: Path,
    run: Run,
    tables: Mapping[str, pd.DataFrame],
    findings: Sequence[Finding],
    console: Console,
    nsys: str | None,
) -> dict[str, str]:
    """Write the timeline of a run; return the file with its label.

    Args:
        folder: Of the run.
        run: What was read.
        tables: Of the run.
        findings: In order.
        console: Says in one line what was left out.
        nsys: The `nsys` to export with.
    """
    working = {rank.key for profile in run.profiles for rank in profile.ranks}
    there = [rank for rank in run.ranks if rank.key in working]
    shown = _chosen(there, findings, all_of_them=run.options["ranks"] is not None)
    others = _Others.of(run, tables, there)
    axes = rank_axes(others.clock, tables, shown)
    looks = _Looks(_windows(run, findings, shown, axes))
    remarks: list[str] = []
    traced = _traced(run, shown, axes, findings, others, looks, nsys)

    def all_ranks() -> Iterator[TracedRank]:
        yield from traced
        remarks.extend(_left_out(looks, len(there) - len(shown)))

    write_trace(folder / TRACE_NAME, all_ranks(), remarks)
    for reason in looks.failed:
        console.warn(f"{TRACE_NAME}: {reason}")
    if remarks:
        console.note(f"{TRACE_NAME}: {'; '.join(remarks)}.")
    return {TRACE_NAME: "Timeline"}


def _chosen(ranks: Sequence[Rank], findings: Sequence[Finding], *, all_of_them: bool) -> list[Rank]:
    """Return the ranks to show in their order: those of the findings first, then the others."""
    if all_of_them:
        return list(ranks)
    named = list(dict.fromkeys(finding.rank for finding in findings if finding.rank is not None))
    place: dict[int | None, int] = {number: at for at, number in enumerate(named)}
    wanted = sorted(ranks, key=lambda rank: place.get(_number(rank), len(named)))[:MOST_RANKS]
    return [rank for rank in ranks if rank in wanted]


def _number(rank: Rank) -> int | None:
    """Return the number by which findings name a rank; None of one that they are not about."""
    return rank.number if rank.key.side in ("", INPUT) else None


def _windows(
    run: Run, findings: Sequence[Finding], shown: Sequence[Rank], axes: Mapping[str, Axis]
) -> dict[str, list[tuple[int, int]]]:
    """Return the windows of the first findings on each axis; nothing where others are asked for."""
    windows: dict[str, list[tuple[int, int]]] = {axes[rank.file].name: [] for rank in shown}
    if run.options["perfetto_window"] is None:
        numbered = {_number(rank): axes[rank.file] for rank in shown}
        with_window = [finding for finding in findings if finding.window_ns is not None]
        for finding in with_window[:MOST_FINDINGS]:
            axis = _axis_of(finding, numbered)
            if axis is not None and finding.window_ns is not None:
                windows[axis.name].append(axis.window(finding.window_ns))
    return windows


def _axis_of(finding: Finding, numbered: Mapping[int | None, Axis]) -> Axis | None:
    if finding.rank is None and len(numbered) == 1:
        return next(iter(numbered.values()))
    return None if finding.rank is None else numbered.get(finding.rank)


def _traced(
    run: Run,
    shown: Sequence[Rank],
    axes: Mapping[str, Axis],
    findings: Sequence[Finding],
    others: _Others,
    looks: _Looks,
    nsys: str | None,
) -> Iterator[TracedRank]:
    """Read the ranks one after the other; a profile with several only once."""
    options = unfiltered(run.options)
    path, trace = "", None
    for number, rank in enumerate(shown):
        if rank.key.path != path:
            path, trace = rank.key.path, _read(rank, options, looks, nsys)
        if trace is None:
            continue
        rows, _, _ = select_rank(trace, rank.key.global_pid, options)
        most = (MOST_EVENTS - looks.events_n) // (len(shown) - number)
        about = [
            finding
            for finding in findings
            if finding.rank == _number(rank) or (finding.rank is None and len(shown) == 1)
        ]
        tracks = others.tracks(rank)
        yield _traced_rank(rank, rows, options, axes[rank.file], about, tracks, looks, most)


def _read(rank: Rank, options: Mapping[str, Any], looks: _Looks, nsys: str | None) -> Trace | None:
    reads = timeline_reads()
    tables = needed_tables(reads, options)
    try:
        with open_report(
            rank.key.path, tables, export_dir=options["export_dir"], nsys=nsys
        ) as report:
            return read_trace(report, reads, options)
    except ReportError as error:
        looks.failed.append(error.message)
        return None


def _traced_rank(
    rank: Rank,
    rows: RankTrace,
    options: Mapping[str, Any],
    axis: Axis,
    findings: Sequence[Finding],
    tracks: Sequence[Track],
    looks: _Looks,
    most_events: int,
) -> TracedRank:
    """Return a rank in the windows that are wanted of it; of each axis the first says the steps."""
    steps = find_steps(rows, options)
    wanted: list[Window] = [options["perfetto_window"] or (None, None)]
    if options["perfetto_window"] is None:
        windows = looks.windows[axis.name]
        if axis.name not in looks.with_steps and (some := typical_and_worst(steps)):
            windows += map(axis.window, some)
            looks.with_steps.add(axis.name)
        if windows:
            wanted = [axis.own_window(window) for window in windows]
    timeline = rank_timeline(rows, steps, options, wanted, most_events, tracks)
    looks.events_n += timeline.events_n
    looks.left_out_n += timeline.left_out_n
    about = findings_track(findings)
    if len(about):
        timeline = replace(timeline, tracks=(about, *timeline.tracks))
    side = f"{rank.key.side} " if rank.key.side else ""
    says = f", {axis.says}" if axis.says else ""
    return TracedRank(f"{side}rank {rank.number} ({rank.file}){says}", axis.on_axis, timeline)


def _left_out(looks: _Looks, ranks_n: int) -> list[str]:
    """Return what is not in the file and how to see it."""
    said = []
    if ranks_n:
        said.append(f"{counted(ranks_n, 'rank')} left out (--ranks names those to show)")
    if looks.left_out_n:
        rows = counted(looks.left_out_n, "operation, call or range", "operations, calls and ranges")
        said.append(
            f"{rows} left out, since {MOST_EVENTS:,} events fit (--perfetto-window or --ranks "
            "choose fewer)"
        )
    return said

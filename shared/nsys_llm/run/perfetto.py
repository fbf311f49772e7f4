"""A second look at some ranks of a run: their timelines, written for Perfetto.

Rows of a rank never travel; what a timeline shows is read in the process that was started, once the
findings are known, one profile at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nsys_llm.core.console import Console
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.timeline.rank_timeline import rank_timeline, typical_and_worst
from nsys_llm.job.job_clock import JobClock, collective_tracks, path_tracks
from nsys_llm.manifest.manifest import timeline_reads
from nsys_llm.report.findings import Finding
from nsys_llm.report.part import Part
from nsys_llm.report.perfetto import TRACE_NAME, TracedRank, findings_track, write_trace
from nsys_llm.report.records import Record, records
from nsys_llm.report.run import Run
from nsys_llm.run.rank_axes import Axis, rank_axes
from nsys_llm.run.read_again import read_again
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_sets import INPUT
from nsys_llm.trace.timeline import Track
from nsys_llm.view.text import counted

#: Ranks that are shown where --ranks names none; ours: what fits on a screen.
MOST_RANKS: Final = 8
#: Events of a file; ours: the page of Perfetto opens as many in seconds.
MOST_EVENTS: Final = 400_000
#: Findings whose windows are shown.
MOST_FINDINGS: Final = 5


Window = tuple[int | None, int | None]


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
    def of(cls, results: Part, ranks: Sequence[Rank]) -> _Others:
        """Take it from a recipe that has it, or from those of an overview."""
        # Paths are on the clock of their own recipe.
        parts = sorted(results.parts.values(), key=lambda part: "path" not in part.tables)
        for part in parts or [results]:
            if part.matched is not None and ranks:
                path = records(part.tables["path"]) if "path" in part.tables else []
                return cls(JobClock.of(part.matched, ranks[0]), path)
        return cls(None, ())

    def tracks(self, rank: Rank) -> list[Track]:
        """Return the lines of a rank."""
        if self.clock is None:
            return []
        return [*collective_tracks(self.clock, rank), *path_tracks(self.clock, rank, self.path)]


def write_perfetto(folder: Path, results: Part, console: Console) -> dict[str, str]:
    """Write the timeline of a run; return the file with its label."""
    run, tables, findings = results.run, results.tables, results.report.findings
    working = {rank.key for profile in run.profiles for rank in profile.ranks}
    there = [rank for rank in run.ranks if rank.key in working]
    shown = _chosen(there, findings, all_of_them=run.options["ranks"] is not None)
    others = _Others.of(results, there)
    timelines = _Timelines(run, shown, findings, others, rank_axes(others.clock, tables, shown))
    traced: list[TracedRank] = []
    failed: dict[str | None, None] = {}
    for made, reason in read_again(run, shown, timeline_reads(), timelines.of):
        timelines.left_n -= 1
        if made is not None:
            traced.append(made)
        else:
            failed[reason] = None
    remarks = timelines.remarks(len(there) - len(shown))
    write_trace(folder / TRACE_NAME, traced, remarks)
    for reason in failed:
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


class _Timelines:
    """Makes the timelines of ranks that are read one after the other.

    Attributes:
        left_n: Ranks that are not read yet.
    """

    def __init__(
        self,
        run: Run,
        shown: Sequence[Rank],
        findings: Sequence[Finding],
        others: _Others,
        axes: Mapping[str, Axis],
    ) -> None:
        self._shown, self._others, self._axes = shown, others, axes
        self._options = run.options
        self._findings = {rank.key: _about(rank, findings, len(shown)) for rank in shown}
        self._windows = self._of_findings(findings)
        self._with_steps: set[str] = set()
        self._events_n = self._left_out_n = self._outside_n = 0
        self.left_n = len(shown)

    def _of_findings(self, findings: Sequence[Finding]) -> dict[str, list[tuple[int, int]]]:
        windows: dict[str, list[tuple[int, int]]] = {
            self._axes[rank.file].name: [] for rank in self._shown
        }
        places = [
            (self._axes[rank.file], finding.window_ns)
            for finding in findings
            for rank in self._shown
            if finding in self._findings[rank.key] and finding.window_ns is not None
        ]
        for axis, window in places[:MOST_FINDINGS]:
            windows[axis.name].append(axis.window(window))
        return windows

    def of(self, rank: Rank, view: RankView) -> TracedRank:
        """Return a rank in the windows that are wanted of it."""
        axis = self._axes[rank.file]
        most = (MOST_EVENTS - self._events_n) // self.left_n
        wanted = self._wanted(axis, view.steps)
        tracks = self._others.tracks(rank)
        given = self._options["perfetto_window"] is not None
        timeline = rank_timeline(view, wanted, most, tracks, whole=not given)
        self._events_n += timeline.events_n
        self._left_out_n += timeline.left_out_n
        self._outside_n += given and not (timeline.tracks or timeline.left_out_n)
        about = findings_track(self._findings[rank.key])
        if len(about):
            timeline = replace(timeline, tracks=(about, *timeline.tracks))
        side = f"{rank.key.side} " if rank.key.side else ""
        says = f", {axis.says}" if axis.says else ""
        label = f"{side}rank {rank.number} ({rank.file}){says}"
        return TracedRank(self._shown.index(rank) + 1, label, axis.on_axis, timeline)

    def _wanted(self, axis: Axis, steps: Steps | None) -> list[Window]:
        """Return the windows of a rank in its clock; of each axis the first says the steps."""
        if self._options["perfetto_window"] is not None:
            return [self._options["perfetto_window"]]
        windows = self._windows[axis.name]
        if axis.name not in self._with_steps and (some := typical_and_worst(steps)):
            windows += map(axis.window, some)
            self._with_steps.add(axis.name)
        return [axis.own_window(window) for window in windows] or [(None, None)]

    def remarks(self, not_shown_n: int) -> list[str]:
        """Return what is not in the file and how to see it."""
        said = []
        if not_shown_n:
            ranks = counted(not_shown_n, "rank")
            said.append(f"{ranks} left out (select others with --ranks)")
        if self._outside_n:
            ranks = counted(self._outside_n, "rank")
            said.append(f"--perfetto-window is outside the recording of {ranks}")
        if self._left_out_n:
            rows = counted(
                self._left_out_n, "operation, call or range", "operations, calls and ranges"
            )
            said.append(
                f"{rows} left out: at most {MOST_EVENTS:,} events fit (reduce them with "
                "--perfetto-window or --ranks)"
            )
        return said


def _about(rank: Rank, findings: Sequence[Finding], ranks_n: int) -> list[Finding]:
    """Return the findings on a rank; those on none in particular are on the only one."""
    number = _number(rank)
    if number is None:
        return []
    return [
        finding
        for finding in findings
        if finding.rank == number or (finding.rank is None and ranks_n == 1)
    ]

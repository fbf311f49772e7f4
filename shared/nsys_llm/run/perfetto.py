"""A second look at some ranks of a run: they are read again, their timelines written for Perfetto.

Rows of a rank never travel; what a timeline shows is read in the process that was started, once the
findings are known, one profile at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd

from nsys_llm.core.console import Console
from nsys_llm.core.rooted import EVERYWHERE, ROOTS
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.timeline.rank_timeline import rank_timeline, typical_and_worst
from nsys_llm.job.job_clock import JobClock, collective_tracks, path_tracks
from nsys_llm.manifest.declared import TableRead
from nsys_llm.manifest.manifest import timeline_reads
from nsys_llm.numeric.clock_lines import ClockLine, own_times_ns
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.file_state import refuse_changed
from nsys_llm.profile.inputs import ProfileInput, open_profile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.segments import with_segments
from nsys_llm.report.findings import Finding
from nsys_llm.report.part import Part
from nsys_llm.report.perfetto import TRACE_NAME, TracedRank, findings_track, write_trace
from nsys_llm.report.records import Record, records
from nsys_llm.report.run import Run
from nsys_llm.run.boundary import Boundary
from nsys_llm.trace.filters import unfiltered
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.rank_sets import INPUT
from nsys_llm.trace.selection import select_rank
from nsys_llm.trace.timeline import Track
from nsys_llm.view.text import counted, format_ns

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


T = TypeVar("T")


def read_again(
    run: Run,
    wanted: Sequence[Rank],
    reads: Sequence[TableRead],
    look: Callable[[Rank, RankView], T],
) -> Iterator[tuple[T | None, str | None]]:
    """Read ranks without filters, each profile once; what goes wrong costs one rank only.

    Args:
        look: What to make of a rank.

    Yields:
        What was made of each rank, those of a profile together; or why it could not be read.
    """
    options = unfiltered(run.options)
    tables = needed_tables(reads, options)
    where = {"export_dir": options["export_dir"], "roots": options.get(ROOTS, EVERYWHERE)}
    known = {
        rank.key: profile.fingerprint
        for profile in run.profiles
        for rank in profile.ranks
        if profile.fingerprint is not None
    }
    by_path: dict[str, list[Rank]] = {}
    for rank in wanted:
        by_path.setdefault(rank.key.path, []).append(rank)
    for path, ranks in by_path.items():
        more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
        trace = None
        with (
            Boundary(ProfileInput(path, f"{ranks[0].file}{more}")) as opening,
            open_profile(path, tables, again=True, **where) as opened,
        ):
            refuse_changed(opened.path.name, known[ranks[0].key], opened.fingerprint)
            trace = with_segments(read_trace(opened, reads, options), path, reads, options)
        for rank in ranks:
            made, failure = None, opening.failure
            if trace is not None:
                with Boundary(ProfileInput(path, rank.file)) as looking:
                    rows, _, _ = select_rank(trace, rank.key.global_pid, options)
                    made = look(rank, RankView(rows, rank.key, options))
                failure = looking.failure
            yield made, None if failure is None else failure.reason


#: Sources that say nothing.
_NO_CLOCK: Final = ("none", "off")
_ONLY_NTP: Final = "utcEpochNs"
_AS_RECORDED: Final = ClockLine(0)


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

    def window(self, window: tuple[int, int]) -> tuple[int, int]:
        """Return a window of the profile on the axis."""
        start_ns, end_ns = self.on_axis(np.array(window)).tolist()
        return start_ns, end_ns

    def own_window(self, window: tuple[int, int]) -> tuple[int, int]:
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
    axes = {rank.file: _axis(clock, rank, ranks[0], files[rank.file]) for rank in ranks}
    if len(ranks) == 1:
        # There is nothing to compare it with.
        axes = {file: replace(axis, says="") for file, axis in axes.items()}
    begins: dict[str, int] = {}
    for axis in axes.values():
        begin_ns, _ = axis.window((0, 0))
        begins[axis.name] = min(begin_ns, begins.get(axis.name, begin_ns))
    return {file: replace(axis, zero_ns=begins[axis.name]) for file, axis in axes.items()}


def _axis(clock: JobClock | None, rank: Rank, first: Rank, row: Mapping[str, Any]) -> Axis:
    """Return the axis by the collectives that a rank takes part in, else by its profile's clock."""
    offset_ns = row["clock_offset_ns"]
    own = Axis(f"{rank.key.side}:{rank.key.path}", "clock of its own", 0, _AS_RECORDED)
    recorded_says = "clock as exact as NTP" if row["clock_source"] == _ONLY_NTP else ""
    if clock is None:
        shifted = Axis(rank.key.side, recorded_says, int(offset_ns or 0), _AS_RECORDED)
        return own if offset_ns is None else shifted
    matched = clock.collectives
    place = matched.clock_of[rank.key.path]
    fit, source = matched.clocks[place], matched.sources[place]
    if source in _NO_CLOCK:
        return own
    says = f"clock within {format_ns(fit.residual_ns)}" if fit.residual_ns else ""
    if fit.root != matched.clocks[matched.clock_of[first.key.path]].root:
        # No collective links it with the first rank.
        says = recorded_says
    name = "" if offset_ns is not None else f"{fit.root}"
    return Axis(name, says, matched.coarse_ns[place], fit.line)

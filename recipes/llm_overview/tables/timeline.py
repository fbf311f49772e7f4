"""The table `timeline`: what all GPUs did in a typical and in the worst step, and the findings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.facts.timeline.segments import NO_NAME, LaneSegments, Pieces, joined
from nsys_llm.facts.timeline.step_lanes import WAITS, KeptRanks, LaneWindow, StepLane
from nsys_llm.job.job_clock import JobClock
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.numeric.intervals import intersect_intervals
from nsys_llm.report.outputs import declared_frame
from nsys_llm.report.part import OverviewParts
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.trace.identity import RankKey

from .marks import LOST_KEY, Lost, marks_of
from .views import GpuLane, View, chosen_gpus, gpus_of, job_clock, views_of, whole_run
from .whole_run import run_rows

#: Cells of all lanes of a figure together, and of one; stretches shorter than a cell are joined.
#: Ours: so many are drawn within a second.
_MOST_CELLS: Final = 6_000
_MOST_CELLS_OF_LANE: Final = 600

_STEPS: Final = "step_budget"
_TABLE: Final = "timeline"
#: What the timeline shows of a path.
_OF_PATH: Final = [
    *("which", "rank", "file", "device_id", "class"),
    *("activity", "start_ns", "end_ns", "duration_ns"),
]
#: What a row of the table is.
WORK, WAIT, PATH, HOST_PATH, FINDING = "work", "wait", "path", "host path", "finding"
#: What the threads did that a GPU waited for.
HOST: Final = "host"
#: Of a lane whose rank was not kept, and why it was not.
LOST: Final = "not drawn"
BY_WORKER, NO_ROOM = "read by a worker of Dask", "too many operations"


@dataclass(frozen=True)
class _Figures:
    """What all figures are made of.

    Attributes:
        lanes: By rank, in all views; none of a rank that was not kept.
        path: Rows of the critical paths, from the end back.
        lost: Opportunity, rank, device id and step where one that is not steady costs time.
    """

    gpus: Sequence[GpuLane]
    clocks: JobClock
    lanes: Mapping[RankKey, Sequence[StepLane]]
    not_kept: str
    path: Sequence[Record]
    opportunities: Sequence[Record]
    lost: Collection[Lost]


def timeline(results: OverviewParts, tables: Tables, kept: KeptRanks) -> dict[str, pd.DataFrame]:
    """Return the table `timeline`: by view, states of each lane, then paths and findings."""
    parts, ranks, rows = results.parts, results.ranks, list[dict[str, Any]]()
    if gpus := gpus_of(records(tables["ranks"]), ranks):
        clocks = job_clock(results)
        views = views_of(parts, tables, ranks, clocks)
        opportunities = records(tables["opportunities"])
        path = records(parts[_STEPS].tables["path"][_OF_PATH]) if _STEPS in parts else []
        gpus = chosen_gpus(gpus, opportunities, path)
        walls = [
            rank.wall
            for profile in next(iter(parts.values())).run.profiles
            for rank in profile.ranks
        ]
        names = {name for wall in walls for name in wall.kernel_names}
        rules = rules_for(names, results.options.get("engine", "auto"))
        lanes = kept.lanes(_windows(gpus, views, clocks), rules)
        not_kept = NO_ROOM if kept.here else BY_WORKER
        when = records(tables["when_steps"])
        lost = {tuple(row[name] for name in LOST_KEY) for row in when if row["excess_ns"] > 0}
        figures = _Figures(gpus, clocks, lanes, not_kept, path, opportunities, lost)
        if views[0].step is not None and len(parts[_STEPS].tables["job_steps"]) > 1:
            whole = whole_run(tables, ranks, clocks)
            steps = parts[_STEPS].tables["device_steps"]
            rows += run_rows(whole, views, gpus, clocks, steps, tables)
        rows += [row for view in views for row in _view_rows(figures, view)]
    return {_TABLE: declared_frame(load_manifest("llm_overview").table(_TABLE), rows)}


def _windows(
    gpus: Sequence[GpuLane], views: Sequence[View], clocks: JobClock
) -> dict[RankKey, list[LaneWindow]]:
    windows: dict[RankKey, list[LaneWindow]] = {}
    cells_n = max(min(_MOST_CELLS // len(gpus), _MOST_CELLS_OF_LANE), 1)
    for gpu in gpus:
        waits = clocks.communication(gpu.rank.key, gpu.device_id)
        for view in views:
            start_ns = clocks.own_ns(gpu.rank, view.start_ns)
            # As long as the view, whatever clocks drift: all lanes of a figure are.
            here = np.array([[start_ns, start_ns + view.length_ns]])
            split = {name: intersect_intervals(some, here) for name, some in waits.items()}
            cell_ns = max(view.length_ns // cells_n, 1)
            window = (gpu.device_id, start_ns, start_ns + view.length_ns, cell_ns, split)
            windows.setdefault(gpu.rank.key, []).append(LaneWindow(view.number, *window))
    return windows


def _view_rows(figures: _Figures, view: View) -> Iterator[dict[str, Any]]:
    clocks = figures.clocks
    of_gpu = {
        (key, lane.window.device_id): lane
        for key, some in figures.lanes.items()
        for lane in some
        if lane.window.view == view.number
    }
    shown = [(gpu, of_gpu.get((gpu.rank.key, gpu.device_id))) for gpu in figures.gpus]
    for gpu, lane in shown:
        if lane is not None:
            yield from _state_rows(view, gpu, lane)
            if lane.host is not None:
                of_host = replace(gpu, label=f"{gpu.label}, host")
                yield from _state_rows(view, of_host, lane.host, HOST)
        elif gpu.rank.key not in figures.lanes:
            begin_ns = clocks.own_ns(gpu.rank, view.start_ns)
            row = view.row(LOST, gpu, begin_ns, begin_ns + view.length_ns, begin_ns)
            yield {**row, "state": LOST, "name": figures.not_kept, "pieces_n": 1}
    yield from _path_rows(figures, view)
    for mark in marks_of(view, shown, figures.opportunities, clocks, figures.lost):
        begin_ns = clocks.own_ns(mark.gpu.rank, view.start_ns)
        yield {
            **view.row(FINDING, mark.gpu, mark.start_ns, mark.end_ns, begin_ns),
            "state": mark.opportunity["severity"],
            "name": mark.opportunity["title"],
            "opportunity": mark.opportunity["opportunity"],
            "pieces_n": mark.pieces_n,
        }


def _state_rows(
    view: View, gpu: GpuLane, lane: StepLane, part: str | None = None
) -> Iterator[dict[str, Any]]:
    for start_ns, end_ns, _, shows in _segments(lane.segments, lane.states, lane.names):
        of_gpu = WAIT if shows["state"] in WAITS else WORK
        row = view.row(part or of_gpu, gpu, start_ns, end_ns, lane.window.start_ns)
        yield {**row, **shows}


def _segments(
    segments: LaneSegments, states: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
    """Yield begin, end and row of segments, and what each shows: of several states all times."""
    of = ("start_ns", "end_ns", "row", "state", "name", "pieces_n", "time_ns")
    columns = (getattr(segments, name).tolist() for name in of)
    for start_ns, end_ns, row, state, name, pieces_n, time_ns in zip(*columns, strict=True):
        times = {of: ns for of, ns in zip(states, time_ns, strict=True) if ns}
        ordered = dict(sorted(times.items(), key=lambda item: -item[1]))
        shows = {
            "state": states[state],
            "name": None if name == NO_NAME else names[name] or None,
            "pieces_n": pieces_n,
            "mixture": json.dumps(ordered) if len(times) > 1 else None,
        }
        yield start_ns, end_ns, row, shows


def _path_rows(figures: _Figures, view: View) -> Iterator[dict[str, Any]]:
    """Yield the critical path of a view, from its begin on, on the lanes that are shown."""
    lane_of: dict[tuple[str, int | None], int] = {}
    for place, gpu in enumerate(figures.gpus):
        lane_of[gpu.rank.file, gpu.device_id] = place
        # What the host did stands on the first GPU of its rank.
        lane_of.setdefault((gpu.rank.file, None), place)
    steps = [
        (lane_of[row["file"], row["device_id"]], row)
        for row in figures.path[::-1]
        if row["which"] == view.which and (row["file"], row["device_id"]) in lane_of
    ]
    if not steps:
        return
    for start_ns, end_ns, line, shows in _segments(*_path_segments(steps, view)):
        gpu, part = figures.gpus[line // 2], HOST_PATH if line % 2 else PATH
        behind_ns = figures.clocks.own_ns(gpu.rank, start_ns) - start_ns
        times = (time_ns + behind_ns for time_ns in (start_ns, end_ns, view.start_ns))
        yield {**view.row(part, gpu, *times), **shows}


def _path_segments(
    steps: Sequence[tuple[int, Record]], view: View
) -> tuple[LaneSegments, tuple[str, ...], tuple[str, ...]]:
    """Return stretches of a path, short ones joined, with their classes and activities.

    Args:
        steps: Lane and row of each, from the begin on. Twice the lane, and one more on the host, is
            the row of a segment.
    """
    states = (*sorted({row["class"] for _, row in steps}),)
    names = (*sorted({row["activity"] for _, row in steps}),)
    places = {name: place for place, name in enumerate(names)}
    start_ns, end_ns, length_ns, state, name, line = (
        np.array(codes, dtype=np.int64)
        for codes in (
            *([row[of] for _, row in steps] for of in ("start_ns", "end_ns", "duration_ns")),
            [states.index(row["class"]) for _, row in steps],
            [places[row["activity"]] for _, row in steps],
            [2 * lane + (row["device_id"] is None) for lane, row in steps],
        )
    )
    parts = np.column_stack((np.arange(len(steps)), state, length_ns))
    pieces = Pieces(start_ns, end_ns, name, parts, line)
    cell_ns = max(view.length_ns // _MOST_CELLS_OF_LANE, 1)
    return joined(pieces, len(states), view.start_ns, cell_ns), states, names

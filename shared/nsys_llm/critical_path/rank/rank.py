"""Reduces one rank: windows of its steps, what its devices did in them, and the paths to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nsys_llm.critical_path.path.blocks import Blocks
from nsys_llm.critical_path.path.edges import Edges, path_edges
from nsys_llm.critical_path.path.forest import PathForest, kept_whole, path_forest
from nsys_llm.critical_path.path.ops import PathOps
from nsys_llm.critical_path.path.outline import (
    Charges,
    Charging,
    Outline,
    Passages,
    Walk,
    member_ops,
)
from nsys_llm.critical_path.rank.replay import rank_replay
from nsys_llm.critical_path.rank.windows import (
    OpSteps,
    Windows,
    rank_steps,
    step_marks,
    step_windows,
)
from nsys_llm.critical_path.replay.condensed import RankReplay
from nsys_llm.facts.host.pauses import NamedPauses
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.steps import COUNTED, Beside
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import pid_of
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.rank_trace import RankTrace
from nsys_llm.trace.steps import StepKind


@dataclass(frozen=True)
class DevicePaths(Windows):
    """One device of one rank. `tail` is a segment of the rank's paths here.

    Attributes:
        charges: What the path of each step charges inside the rank.
        passages: The time of these paths in communication; walks are steps.
    """

    charges: Charges
    passages: Passages


@dataclass(frozen=True)
class RankPaths:
    """One rank.

    Attributes:
        step: What its steps are; None where none are found, and everything is one.
        mark: Why each step is in no statistic, as far as the rank tells; "" otherwise.
        devices: Sorted by id; those without an operation that the filters leave are left out.
        has_wait_rows: Whether it is recorded what streams waited for.
        has_event_rows: Whether events are recorded, which makes such waits certain.
        clock_error_ns: By how much the clocks of host and GPU disagree at least.
        load: `Batches.load` of its steps.
        beside: Work that its steps launched and that is not of their pace.
    """

    step: StepKind | None
    mark: tuple[str, ...]
    devices: tuple[DevicePaths, ...]
    forest: PathForest
    replay: RankReplay
    has_wait_rows: bool
    has_event_rows: bool
    clock_error_ns: int
    load: IntArray
    beside: Beside | None = None


RankRows = Sequence[tuple[Rank, RankPaths]]


def of(view: RankView) -> Mapping[RankKey, RankPaths]:
    """Reduce one rank."""
    trace, rank, options = view.trace, view.key, view.options
    view.release("device_ops")
    host, kernels = view.host, view.op_names.texts
    ops = PathOps.of(trace, view.op_names, host)
    view.release("op_names")
    steps = rank_steps(view.steps, ops)
    working = np.unique(ops.device_ids[ops.stream[ops.kept]]).tolist()
    pauses = NamedPauses(view)
    windows = [
        step_windows(ops, steps, host, pauses, device, trace.unfiltered["kernels"])
        for device in trace.device_ids
        if device in working
    ]
    edge_ns = windows[0].edge_ns if windows else np.zeros(steps.n + 1, dtype=np.int64)
    first = np.column_stack((edge_ns[:-1], edge_ns[1:]))
    early = ops.of_rows(view.dependents.row)
    edges, clues = path_edges(trace, ops, host, pid_of(rank.global_pid), early)
    marks = step_marks(trace, ops, steps, first, options)
    replay = rank_replay(trace, edges, clues, kernels, member_ops(ops), windows, steps, options)
    del clues  # arrays as long as the rank; paths need none of them
    forest, devices = _paths(trace, edges, kernels, windows, steps, marks)
    paths = RankPaths(
        step=None if view.steps is None else view.steps.kind,
        mark=marks,
        devices=devices,
        forest=forest,
        has_wait_rows=edges.has_wait_rows,
        has_event_rows=edges.has_event_rows,
        clock_error_ns=host.clock_error_ns,
        replay=replay,
        beside=None if view.steps is None else view.steps.beside,
        load=np.full((steps.n, 3), -1) if view.batches is None else view.batches.load,
    )
    return {rank: paths}


def _paths(
    trace: RankTrace,
    edges: Edges,
    kernels: Sequence[str],
    windows: Sequence[Windows],
    steps: OpSteps,
    marks: Sequence[str],
) -> tuple[PathForest, tuple[DevicePaths, ...]]:
    tails = np.concatenate([np.empty(0, dtype=np.int64), *(window.tail for window in windows)])
    outline, segments = Outline.of(trace, edges, tails, steps.of_op)
    bounds = np.cumsum([window.tail.size for window in windows])[:-1]
    ends = np.split(segments, bounds) if windows else []
    # Of all devices at once: their paths go through the same segments of the host.
    walks = [walk for of_device in map(_walks, windows, ends) for walk in of_device]
    charging = Charging(outline, walks)
    blocks = Blocks(trace, edges, kernels, outline.segments)
    whole = kept_whole(outline, blocks, _cuts(outline, windows), _shown(windows, marks))
    forest = path_forest(outline, blocks, whole, charging)
    devices = list[DevicePaths]()
    totals = charging.totals([tail.size for tail in ends])
    for window, tail, (charges, passages) in zip(windows, ends, totals, strict=True):
        parts = vars(replace(window, tail=tail))
        devices.append(DevicePaths(**parts, charges=charges, passages=passages))
    return forest, tuple(devices)


def _cuts(outline: Outline, windows: Sequence[Windows]) -> IntArray:
    """Return when steps of the job may end: from each end here to that of the next collective."""
    ends = np.concatenate([np.empty(0, dtype=np.int64), *(window.edge_ns for window in windows)])
    left_ns = np.sort(outline.members.end_ns)
    after = np.searchsorted(left_ns, ends, side="right")
    # Collectives of other devices and streams end about then, too.
    after = np.minimum(after + max(len(windows), 1), left_ns.size - 1)
    until = left_ns[after] if left_ns.size else ends
    return np.column_stack((ends - 1, np.maximum(until, ends) + 1))


def _shown(windows: Sequence[Windows], marks: Sequence[str]) -> IntArray:
    """Return the windows of a median and of the longest step of each device."""
    counted = np.flatnonzero([mark == COUNTED for mark in marks])
    spans = [np.empty((0, 2), dtype=np.int64)]
    for window in windows:
        order = counted[np.argsort(np.diff(window.edge_ns)[counted], kind="stable")]
        some = order[[(order.size - 1) // 2, -1]] if order.size else order
        spans.append(np.column_stack((window.edge_ns[some], window.edge_ns[some + 1])))
    return np.concatenate(spans)


def _walks(window: Windows, tail: IntArray) -> list[Walk]:
    edge_ns = window.edge_ns.tolist()
    return [Walk(*walk) for walk in zip(tail.tolist(), edge_ns[1:], edge_ns, strict=False)]

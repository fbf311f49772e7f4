"""Steps of one rank: which count, the window of each on each device, and what ran in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.critical_path.path.classes import COMMUNICATION, COMPUTE, COPY
from nsys_llm.critical_path.path.ops import PathOps
from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.host.pauses import NamedPauses, PauseTime
from nsys_llm.facts.steps.steps import (
    COUNTED,
    CUT,
    FILTERED,
    NOT_RECORDED,
    WARMUP,
    Steps,
)
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import (
    IntArray,
    clipped_lengths,
    covered_ns,
    intersect_intervals,
    merged_unions,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.trace.kernel_launches import GEOMETRY
from nsys_llm.trace.rank_trace import RankTrace


@dataclass(frozen=True)
class OpSteps:
    """The steps of one rank; where none are found, everything is one.

    Attributes:
        of_op: Shape (operations,), the step that launched each operation; -1 for none.
        detected: As the finder has them; None where there are none.
    """

    of_op: npt.NDArray[np.int32]
    detected: Steps | None

    @property
    def n(self) -> int:
        """How many there are."""
        return 1 if self.detected is None else len(self.detected)


def rank_steps(steps: Steps | None, ops: PathOps) -> OpSteps:
    """Return the steps of a rank."""
    if steps is None:
        return OpSteps(np.where(ops.kept, np.int32(0), np.int32(-1)), None)
    return OpSteps(steps.step if ops.row is None else steps.step[ops.row], steps)


def step_marks(
    trace: RankTrace,
    ops: PathOps,
    steps: OpSteps,
    windows: IntArray,
    options: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return why each step is in no statistic, as far as its rank tells.

    Args:
        windows: Shape (steps, 2), their windows on the first device.
        options: steps, skip_warmup, and whether other filters are given.
    """
    if steps.detected is None:
        return (COUNTED,)
    chosen = _chosen(trace, ops, steps, windows, options)
    marks = np.full(steps.n, COUNTED, dtype=object)
    marks[steps.detected.warmup] = WARMUP
    marks[~steps.detected.full] = CUT
    marks[steps.detected.unrecorded] = NOT_RECORDED
    marks[~chosen] = FILTERED
    return tuple(marks.tolist())


def _chosen(
    trace: RankTrace,
    ops: PathOps,
    steps: OpSteps,
    windows: IntArray,
    options: Mapping[str, Any],
) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(steps.n, dtype=bool)
    chosen[slice(*options["steps"]) if options["steps"] else slice(None)] = True
    if options["skip_warmup"]:
        chosen[0] = False
    if trace.windows_ns is not None:
        inside = clipped_lengths(windows[:, 0], windows[:, 1], trace.windows_ns)
        chosen &= 2 * inside > windows[:, 1] - windows[:, 0]
    elif not trace.complete and not (options["steps"] or options["skip_warmup"]):
        some = ops.kept & (steps.of_op >= 0)
        chosen &= np.bincount(steps.of_op[some], minlength=steps.n) > 0
    return chosen


_NEVER: Final = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Windows:
    """The windows of the steps of one device; the profile's clock.

    Attributes:
        edge_ns: Shape (steps + 1,), ascending: step k lies from edge k to edge k + 1.
        tail: Shape (steps,), the operation that ends each; -1 for one of no length.
        rungs_ns: Shape (steps, 5), time that is compute, else communication, else copies, else the
            profiler's, else idle; adds up to the window.
        no_work_ns: Shape (steps,), idle time of each in which the server had no request.
        pauses: Other idle time by what its host did that has a name.
        blocks: Shape (steps,), of its kernels that compute, by the steps that launched them; 0
            where grids are not recorded.
    """

    device_id: int
    edge_ns: IntArray
    tail: IntArray
    rungs_ns: IntArray
    no_work_ns: IntArray
    pauses: tuple[PauseTime, ...]
    blocks: IntArray


def step_windows(
    ops: PathOps,
    steps: OpSteps,
    host: HostTimeline,
    pauses: NamedPauses,
    device_id: int,
    kernels: Table,
) -> Windows:
    """Return the windows of one device; `kernels` are those of the rank before any filter."""
    rows = np.flatnonzero(ops.device_ids[ops.stream] == device_id)
    end_ns, tail = _last_of_steps(ops, rows, steps)
    if steps.detected is None:
        kept = rows[ops.kept[rows]]
        edge_ns = np.array([ops.start_ns[kept].min(), end_ns[0]], dtype=np.int64)
    else:
        windows = steps.detected.windows_ns(device_id)
        edge_ns = np.append(windows[:1, 0], windows[:, 1])
    tail = np.where(np.diff(edge_ns) > 0, tail, -1)
    rungs_ns = _rungs(ops, rows, host.profiler, edge_ns)
    no_work_ns = np.diff(edge_ns) * 0
    away = merged_unions([*host.away.values()])
    times: tuple[PauseTime, ...] = ()
    if len(away) or pauses.named:
        busy = union_intervals(ops.start_ns[rows], ops.end_ns[rows])
        no_work_ns = np.diff(covered_ns(edge_ns, subtract_intervals(away, busy)))
        taken = merged_unions([busy, away, host.profiler])
        idle = subtract_intervals(np.array([[edge_ns[0], edge_ns[-1]]]), taken)
        times = pauses.times(edge_ns, _ended_by(ops, rows, host, idle))
    blocks = _blocks(ops, rows, steps, kernels)
    return Windows(device_id, edge_ns, tail, rungs_ns, no_work_ns, times, blocks)


def _ended_by(
    ops: PathOps, rows: IntArray, host: HostTimeline, idle: IntArray
) -> dict[int, IntArray]:
    """Return idle time by the thread (globalTid) that launched the kernel after it."""
    kernels = rows[ops.kind[rows] != COPY]
    kernels = kernels[np.argsort(ops.start_ns[kernels], kind="stable")]
    after = np.searchsorted(ops.start_ns[kernels], idle[:, 1])
    place, calls = np.append(ops.place[kernels], -1)[after], host.calls
    return {
        thread: idle[(place >= 0) & (calls.thread[place] == code)]
        for code, thread in enumerate(calls.threads.tolist())
    }


def _blocks(ops: PathOps, rows: IntArray, steps: OpSteps, kernels: Table) -> IntArray:
    rows = rows[(steps.of_op[rows] >= 0) & (ops.kind[rows] == COMPUTE)]
    if not rows.size or any(name not in kernels for name in GEOMETRY[:3]):
        return np.zeros(steps.n, dtype=np.int64)
    at = rows if ops.row is None else ops.row[rows]
    x, y, z = (kernels[name][at] for name in GEOMETRY[:3])
    return exact_sums(steps.of_op[rows].astype(np.int64), x.astype(np.int64) * y * z, steps.n)


def _last_of_steps(ops: PathOps, rows: IntArray, steps: OpSteps) -> tuple[IntArray, IntArray]:
    """Return the end of the last operation of each step, and which one it is; -1 for none."""
    end_ns, tail = np.full(steps.n, _NEVER), np.full(steps.n, -1, dtype=np.int64)
    launched = rows[steps.of_op[rows] >= 0]
    if not launched.size:
        return end_ns, tail
    step = steps.of_op[launched]
    np.maximum.at(end_ns, step, ops.end_ns[launched])
    last = launched[ops.end_ns[launched] == end_ns[step]][::-1]
    tail[steps.of_op[last]] = last  # of several, the first stays
    return end_ns, tail


def _rungs(ops: PathOps, rows: IntArray, profiler: IntArray, edge_ns: IntArray) -> IntArray:
    rows = rows[np.argsort(ops.start_ns[rows], kind="stable")]
    kind = ops.kind[rows]
    starts, ends = ops.start_ns[rows], ops.end_ns[rows]
    computing = (kind != COMMUNICATION) & (kind != COPY)
    claimed = [np.diff(edge_ns) * 0]
    for chosen in (computing, computing | (kind == COMMUNICATION), np.ones_like(computing)):
        some = slice(None) if chosen.all() else chosen
        claimed.append(np.diff(covered_ns(edge_ns, union_intervals(starts[some], ends[some]))))
    rungs = [after - before for before, after in pairwise(claimed)]
    overhead = np.zeros_like(rungs[0])
    if len(profiler):
        busy = union_intervals(starts, ends)
        free = subtract_intervals(profiler, intersect_intervals(profiler, busy))
        overhead = np.diff(covered_ns(edge_ns, free))
    window = np.diff(edge_ns)
    return np.stack([*rungs, overhead, window - claimed[-1] - overhead], axis=1)

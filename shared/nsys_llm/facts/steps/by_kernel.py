"""Steps without ranges: replays of CUDA graphs, a kernel that runs once a step, a period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.core.patterns import parse_pattern
from nsys_llm.facts.steps.by_range import holds_enough
from nsys_llm.facts.steps.launched_ops import LaunchedOps
from nsys_llm.facts.steps.steps import (
    GRAPH_REPLAYS,
    KERNEL_PERIOD,
    STEP_KERNEL,
    StepSpans,
    between_marks,
)
from nsys_llm.numeric.grouping import distinct, distinct_codes, joined, split_by_code, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.step_names import EAGER, GRAPH, PERIOD, STEP
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.device_ops import shown_name_ids
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import RankTrace

_LEAST_REPLAYS: Final = 3
#: Of the launches of graphs, so many are followed by the same graph a period later; ours.
_LEAST_ALIKE_PCT: Final = 90

#: A forward pass between replays has so many kernels at least, and takes so long, in percent of a
#: usual replay with what follows it; ours.
_LEAST_EAGER: Final = 10
_LEAST_EAGER_PCT: Final = 50

_LEAST_PERIODS: Final = 5
#: Middle 80 % of the numbers of kernels in a period, of their median. Time says less: a run with
#: one and the same sequence over and over has periods that differ by 30 %.
_MOST_SPREAD_PCT: Final = 10
#: Kernels that the median period does not have, of all: up to the first share a period is that of
#: the work, and the shortest such is taken; up to the second one it may be, and the most even is.
#: Ours: a layer of 80 that passes for a step lacks the kernels around the layers, 1 % and more.
_EVEN_PCT: Final = 0.1
_MOST_UNEVEN_PCT: Final = 10.0
#: So many periods in the middle of the run are compared.
_MOST_COMPARED: Final = 256

_Mask = npt.NDArray[np.bool_]


def kernel_steps(
    trace: RankTrace, ops: LaunchedOps, text: str, options: Mapping[str, Any]
) -> StepSpans | None:
    """Return steps that begin at each launch of the kernels that --step-kernel names.

    Args:
        text: A pattern of names, in the full form or the one that base or mangled chooses.
    """
    kernels, pattern = trace.unfiltered["kernels"], parse_pattern(text)
    wanted = np.zeros(len(kernels), dtype=bool)
    names: set[str] = set()
    shown = shown_name_ids(kernels, {"base": False, "mangled": False, **options})
    for ids in (shown, kernels["demangled_name_id"]):
        kernel_names, code = coded_names(ids, trace.strings)
        matched = np.array([pattern.matches(name) for name in kernel_names], dtype=bool)
        wanted |= matched[code]
        names = names or {
            name for name, is_matched in zip(kernel_names, matched, strict=True) if is_matched
        }
    if not wanted.any():
        return None
    return _at_kernels(ops, np.flatnonzero(wanted), min(names), STEP, STEP_KERNEL)


def replay_spans(trace: RankTrace, ops: LaunchedOps) -> StepSpans | None:
    """Return the replays of a CUDA graph, or of several in turn, that hold half of the GPU time.

    None where it is not known of one when it was launched.
    """
    launches = _graph_launches(trace)
    if launches is None or ops.calls is None:
        return None
    rows, graph, gpu_ns = launches
    if rows.size < _LEAST_REPLAYS or not holds_enough(gpu_ns, ops):
        return None
    at_ns = ops.calls["start_ns"][rows]
    if (at_ns == NULL_INT).any():
        return None  # where a mark is missing, a step would be as long as two
    order = np.argsort(at_ns, kind="stable")
    at_ns, graph = at_ns[order], graph[order]
    period = _turn(graph)
    if period is None:
        return None
    if period > 1:
        at_ns = at_ns[graph == graph[0]]
    if at_ns.size < _LEAST_REPLAYS or (np.diff(at_ns) <= 0).any():
        return None
    name = "CUDA graph" if period == 1 else f"turn of {period} CUDA graphs"
    eager_ns = _eager_prefills(trace, ops, at_ns)
    every_ns = np.union1d(at_ns, eager_ns)
    names = np.where(np.isin(every_ns, eager_ns), EAGER, _alike(name, every_ns))
    return between_marks(name, GRAPH, GRAPH_REPLAYS, names, every_ns, ops.last_ns)


def _eager_prefills(trace: RankTrace, ops: LaunchedOps, at_ns: IntArray) -> IntArray:
    """Return where forward passes begin whose kernels are launched one by one, between replays.

    Behind each replay stand the kernels that usually do, such as sampling. What comes behind those
    before the next replay is a step of its own if it is many kernels, and long.

    Args:
        at_ns: Launches of the replays that begin steps, ascending.
    """
    kernels, calls = trace.unfiltered["kernels"], ops.calls
    rows = np.flatnonzero(~is_graph_node(kernels) & (kernels["launch_row"] >= 0))
    if calls is None or not rows.size:
        return at_ns[:0]
    launched_ns = np.sort(calls["start_ns"][kernels["launch_row"][rows]])
    next_ns = np.append(at_ns[1:], ops.last_ns + 1)
    low, high = (np.searchsorted(launched_ns, edges) for edges in (at_ns, next_ns))
    usual_n = int(np.percentile(high - low, 25, method="lower"))
    many = np.flatnonzero(high - low >= usual_n + _LEAST_EAGER)
    eager_ns = launched_ns[low[many] + usual_n]
    usual_ns = np.median(ops.each_held_ns(at_ns, next_ns))
    took_ns = ops.each_held_ns(eager_ns, next_ns[many])
    return np.asarray(eager_ns[100 * took_ns >= _LEAST_EAGER_PCT * usual_ns])


def period_spans(trace: RankTrace, ops: LaunchedOps) -> StepSpans | None:
    """Return the period in which the names of kernels repeat on the device with most of them."""
    sequence = _Sequence.of(trace, ops)
    mark = sequence.best_mark()
    if mark is None:
        return None
    rows, kernels_n = mark
    # By which of its kernels a period begins is chance: its name tells another run's alike.
    spans = _at_kernels(ops, rows, f"period of {kernels_n} kernels", PERIOD, KERNEL_PERIOD)
    if spans.on_gpu:
        return spans
    held_ns = ops.held_ns(spans.start_ns[:1], spans.start_ns[-1:])
    return spans if holds_enough(held_ns, ops) else None


def _at_kernels(ops: LaunchedOps, rows: IntArray, name: str, unit: str, source: str) -> StepSpans:
    """Return steps that begin at the launches of some kernels, else where these begin.

    Args:
        ops: The operations, of which kernels are the first.
    """
    rows = rows[np.argsort(ops.start_ns[rows], kind="stable")]
    known = ops.launched_ns[rows] != NULL_INT
    # What was launched before the capture began marks no step on the host.
    at_ns = np.sort(ops.launched_ns[rows[known.argmax() :]]) if known.any() else rows[:0]
    # Kernels of one graph launch share it, and one that runs several times in a graph marks more.
    on_gpu = not at_ns.size or int(at_ns[0]) == NULL_INT or bool((np.diff(at_ns) <= 0).any())
    if on_gpu:
        at_ns = distinct(ops.start_ns[rows])
    spans = between_marks(name, unit, source, _alike(name, at_ns), at_ns, ops.last_ns)
    return replace(spans, on_gpu=on_gpu)


def _alike(name: str, at_ns: IntArray) -> npt.NDArray[Any]:
    return np.full(at_ns.shape, name, dtype=object)


def _graph_launches(trace: RankTrace) -> tuple[IntArray, IntArray, int] | None:
    """Return the calls that launched graphs, a code of each one's graph, and their GPU time."""
    rows, ids, took_ns = [], [], 0
    for name, op in trace.unfiltered.items():
        selected = op["launch_row"] >= 0
        if name == "graph_traces":
            # Without its id, a graph that is traced as a whole is like any other.
            identity = op.columns.get("graph_id", np.zeros(len(op), dtype=np.int64))
        else:
            selected &= is_graph_node(op)
            identity = op.columns.get("graph_node_id", np.zeros(len(op), dtype=np.int64))
        rows.append(op["launch_row"][selected])
        ids.append(identity[selected])
        took_ns += int((op["end_ns"] - op["start_ns"])[selected].sum())
    used, code = distinct_codes(joined(rows))
    if not used.size:
        return None
    # A node has its own id: the smallest one of a launch stands for the graph.
    least = np.full(used.size, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(least, code, joined(ids))
    return used, distinct_codes(least)[1], took_ns


def _turn(graph: IntArray) -> int | None:
    """Return after how many launches the same graph comes again; None without such a turn."""
    for period in range(1, graph.size // _LEAST_REPLAYS + 1):
        alike = graph[period:] == graph[:-period]
        if 100 * int(alike.sum()) >= _LEAST_ALIKE_PCT * alike.size:
            return period
    return None


@dataclass(frozen=True)
class _Sequence:
    """The kernels of a device in the order of their launches; arrays of shape (kernels,)."""

    row: IntArray
    code: IntArray
    names_n: int

    @classmethod
    def of(cls, trace: RankTrace, ops: LaunchedOps) -> _Sequence:
        kernels = trace.unfiltered["kernels"]
        devices, device = distinct_codes(kernels["device_id"])
        took_ns = summed(device, kernels["end_ns"] - kernels["start_ns"], devices.size)
        row = np.flatnonzero(device == took_ns.argmax()) if devices.size else device
        starts, launched_ns = kernels["start_ns"][row], ops.launched_ns[row]
        if (launched_ns == NULL_INT).any():
            launched_ns = starts
        order = np.lexsort((starts, launched_ns))
        row = row[order]
        used, code = distinct_codes(kernels["demangled_name_id"][row])
        return cls(row, code, used.size)

    def best_mark(self) -> tuple[IntArray, int] | None:
        """Return the rows of the kernel that marks the period, and how many kernels a period has.

        None where nothing repeats.
        """
        places = split_by_code(self.code, self.names_n)
        first_of: dict[int, IntArray] = {}
        for place in sorted(
            (place for place in places if place.size), key=lambda rows: int(rows[0])
        ):
            first_of.setdefault(place.size, place)
        best: tuple[float, IntArray] | None = None
        for marks in sorted(first_of.values(), key=len, reverse=True):  # the shortest period first
            if marks.size <= _LEAST_PERIODS or not self._even_lengths(marks):
                continue
            uneven_pct = self._uneven_pct(marks)
            if uneven_pct <= _EVEN_PCT:
                return self._found(marks)
            if uneven_pct <= _MOST_UNEVEN_PCT and (best is None or uneven_pct < best[0]):
                best = uneven_pct, marks
        return None if best is None else self._found(best[1])

    def _found(self, marks: IntArray) -> tuple[IntArray, int]:
        return self.row[marks], int(np.median(np.diff(marks)))

    def _even_lengths(self, marks: IntArray) -> bool:
        low, middle, high = np.percentile(np.diff(marks), (10, 50, 90))
        return bool(100 * (high - low) < _MOST_SPREAD_PCT * middle)

    def _uneven_pct(self, marks: IntArray) -> float:
        """Return the share of kernels that the median period does not have, or has more of.

        All of them where a period has one name only: that one kernel follows itself is no period.
        """
        skipped_n = max(0, marks.size - 1 - _MOST_COMPARED) // 2
        marks = marks[skipped_n : skipped_n + _MOST_COMPARED + 1]
        sizes = np.diff(marks)
        if int(np.median(sizes)) < 2:
            return 100.0
        period = np.repeat(np.arange(sizes.size), sizes)
        code = period * self.names_n + self.code[marks[0] : marks[-1]]
        counts = np.bincount(code, minlength=sizes.size * self.names_n)
        counts = counts.reshape(sizes.size, self.names_n)
        usual = np.median(counts, axis=0)
        if int((usual > 0).sum()) < 2:
            return 100.0
        return float(100 * np.abs(counts - usual).sum() / counts.sum())

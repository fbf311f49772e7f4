"""Finds the steps of one rank, in one way for all recipes.

In this order, the first that there is: the ranges that --step names; the kernels that --step-kernel
names; the ranges that an engine writes around a step; ranges that repeat and hold half of the
launched GPU time; a framework's numbered ranges; ranges of a warm-up, or in one, that repeat; those
that repeat and hold half of the launched GPU time beside a load (`load_spans`); the same of
start/end ranges; replays of CUDA graphs; the period of the kernels' names. Else there is no step.
What is called a step is decided before any filter. Ranges are checked against the kernels that they
launch (`series.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.steps.beside import without_beside
from nsys_llm.facts.steps.by_kernel import kernel_steps, period_spans, replay_spans
from nsys_llm.facts.steps.by_range import chosen_steps, engine_spans, numbered_spans
from nsys_llm.facts.steps.launched_ops import LaunchedOps
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.facts.steps.series import repeated_spans, warmup_spans
from nsys_llm.facts.steps.steps import Steps, StepSpans, with_operations
from nsys_llm.facts.wall.layers import load_spans
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray, covered_ns, total_length_ns, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import LAUNCH_CLASSES, classify_api
from nsys_llm.taxonomy.phase_maps import PhaseMap, phase_map
from nsys_llm.trace.attribution import launched_before
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.filters import FoundSteps
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.ranges import START_END, Ranges
from nsys_llm.trace.rank_trace import RankTrace

_NEVER: Final = int(np.iinfo(np.int64).max)


def find_steps(
    trace: RankTrace,
    options: Mapping[str, Any],
    marked: MarkedRanges | None = None,
    lost: IntArray | None = None,
) -> Steps | None:
    """Return the steps of one rank; None where there are none.

    Args:
        trace: The rank. It has columns name_id of api_calls and demangled_name_id of kernels.
        options: step and step_kernel name what a step is; phase_map tells kinds of steps apart
            for the warm-up; base, mangled. Absent ones are None.
        lost: Its launches that left no row, see `nsys_llm.capture.unrecorded`.
    """
    ops = LaunchedOps.of(trace)
    if not len(ops):
        return None
    spans = _find_spans(trace, ops, options, marked)
    if spans is None:
        return None
    phase = np.array(phase_map(options.get("phase_map")).codes(spans.names), dtype=np.int64)
    steps = with_operations(spans, ops, _cut_from_ns(trace, ops), phase, lost)
    steps = without_beside(trace, steps)
    return replace(steps, full=steps.full & ~_holding_earlier_work(trace, steps))


def found_steps(trace: RankTrace, options: Mapping[str, Any]) -> FoundSteps | None:
    """Return the steps as the filters --steps and --skip-warmup take them; None without any."""
    steps = find_steps(trace, options)
    if steps is None:
        return None
    steps_n = len(steps)
    nowhere = np.full(steps_n, NULL_INT, dtype=np.int64)
    ranges = Ranges(
        start_ns=nowhere if steps.on_gpu else steps.start_ns,
        end_ns=nowhere if steps.on_gpu else steps.end_ns,
        thread=np.zeros(steps_n, dtype=np.int64),
        any_thread=np.ones(steps_n, dtype=bool),
        name=steps.names,
        domain=np.full(steps_n, "", dtype=object),
    )
    return FoundSteps(ranges, steps.step, int(steps.end_ns[0]))


def nameless_steps(trace: RankTrace) -> Steps | None:
    """Return replays of CUDA graphs, else periods of the kernels' names: what needs no ranges.

    A run that was recorded without ranges has only these.
    """
    ops = LaunchedOps.of(trace)
    spans = _nameless_spans(trace, ops) if len(ops) else None
    if spans is None:
        return None
    return with_operations(
        spans, ops, _cut_from_ns(trace, ops), np.zeros(len(spans), dtype=np.int64)
    )


def _find_spans(
    trace: RankTrace, ops: LaunchedOps, options: Mapping[str, Any], marked: MarkedRanges | None
) -> StepSpans | None:
    if options.get("step"):
        return chosen_steps(trace, options["step"])
    if options.get("step_kernel"):
        return kernel_steps(trace, ops, options["step_kernel"], options)
    events = trace.tables.get("nvtx_events")
    if events is not None and len(events):
        phases = phase_map(options.get("phase_map"))
        spans = _marked_spans(trace, ops, marked or MarkedRanges.of_rank(trace), phases)
        if spans is None and (events["event_type"] == START_END).any():
            spans = _marked_spans(trace, ops, MarkedRanges.of_rank(trace, START_END), phases)
        if spans is not None:
            return spans
    return _nameless_spans(trace, ops)


def _marked_spans(
    trace: RankTrace, ops: LaunchedOps, marked: MarkedRanges, phases: PhaseMap
) -> StepSpans | None:
    spans = (
        engine_spans(marked, ops)
        or repeated_spans(marked, ops, phases)
        or numbered_spans(marked, ops)
        or warmup_spans(marked, ops, phases)
    )
    load_ns = 0
    if spans is None:
        gpus = {gpu for table in ops.tables for gpu in distinct(table["device_id"]).tolist()}
        load_ns = sum(total_length_ns(load_spans(trace, gpu)) for gpu in gpus)
    return repeated_spans(marked, replace(ops, load_ns=load_ns), phases) if load_ns else spans


def _nameless_spans(trace: RankTrace, ops: LaunchedOps) -> StepSpans | None:
    return replay_spans(trace, ops) or period_spans(trace, ops)


def _holding_earlier_work(trace: RankTrace, steps: Steps) -> npt.NDArray[np.bool_]:
    """Return in which steps a device runs what was launched before the capture: it cuts them."""
    cut = np.zeros(len(steps), dtype=bool)
    calls = trace.tables.get("api_calls")
    early = [
        op.take(launched_before(op["start_ns"], op["correlation_id"], op["launch_row"], calls))
        for op in steps.ops.tables
        if len(op) and int(op["launch_row"].min()) < 0
    ]
    for device_id in steps.devices if any(map(len, early)) else ():
        windows = steps.windows_ns(device_id)
        edge_ns = np.append(windows[:1, 0], windows[:, 1])
        for op in early:
            here = op["device_id"] == device_id
            busy = union_intervals(op["start_ns"][here], op["end_ns"][here])
            cut |= np.diff(covered_ns(edge_ns, busy)) > 0
    return cut


def _cut_from_ns(trace: RankTrace, ops: LaunchedOps) -> int:
    """Return the first launch that had not run when the capture ended: after all that had."""
    calls, last_ns = ops.calls, ops.last_launched_ns
    if calls is None or last_ns is None:
        return _NEVER
    if any(_is_partial(op, np.flatnonzero(calls["start_ns"] == last_ns)) for op in ops.tables):
        return last_ns
    ids = [
        key
        for key in distinct(calls["name_id"]).tolist()
        if classify_api(text_of(key, trace.strings)) in LAUNCH_CLASSES
    ]
    rows = np.flatnonzero(calls["start_ns"] > last_ns)
    rows = rows[np.isin(calls["name_id"][rows], ids)]
    return int(calls["start_ns"][rows].min(initial=_NEVER))


def _is_partial(op: Table, calls: IntArray) -> bool:
    """Return whether some calls replayed a CUDA graph of which fewer nodes ran than once before."""
    last = np.flatnonzero(np.isin(op["launch_row"], calls))
    nodes = last[is_graph_node(op, last)]
    if not nodes.size:
        return False
    same = op["graph_node_id"] == op["graph_node_id"][nodes].min()
    before = op["launch_row"][same & (op["launch_row"] >= 0)][0]
    return last.size < int(np.count_nonzero(op["launch_row"] == before))

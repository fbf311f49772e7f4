"""What the trace shows around some launches of one rank: how many came before, what ran beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nvtx.nvtx_tree import innermost_events
from nsys_llm.facts.nvtx.range_names import raw_texts
from nsys_llm.facts.steps.steps import Steps
from nsys_llm.facts.tails.concurrency import Timeline
from nsys_llm.facts.tails.launches import KeyedKernels
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.grouping import distinct_codes, equals_before_n, joined
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, union_intervals
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import copy_kind_name
from nsys_llm.trace.kernel_launches import launch_times, ncu_launches
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Classes of operations that may run beside a launch, in the order of their codes.
_COMPUTE, _COMMUNICATION, _COPY, _GRAPH = range(4)

Numbers = dict[str, IntArray]
Texts = dict[str, npt.NDArray[Any]]


def around(
    trace: RankTrace, every: KeyedKernels, chosen: KeyedKernels, steps: Steps | None
) -> tuple[Numbers, Texts]:
    """Return the columns of `Instances` that say what was around.

    Args:
        trace: One rank; what filters leave out ran beside the rest, so all of it counts.
        chosen: Some of them, with the same keys.
        steps: Its steps; None where there are none.
    """
    at_ns, known = launch_times(trace, chosen.rows)
    early = np.full(at_ns.shape, NULL_INT) if steps is None else at_ns < steps.end_ns[0]
    numbers = {**_before_n(every, chosen), "before_first_step_end": early.astype(np.int64)}
    beside, texts = _beside(trace, every, chosen)
    texts["range"] = _range_texts(trace, chosen.rows, at_ns, known)
    as_ncu = ncu_launches(trace, chosen.rows)
    texts["function"], numbers["ncu_skip_n"] = as_ncu.function, as_ncu.skip_n
    return {**numbers, **beside}, texts


def _before_n(every: KeyedKernels, chosen: KeyedKernels) -> Numbers:
    """Return how many launches of the kernel, and of the configuration, began before each one.

    On the same device; a kernel's launches are those of all its configurations.
    """
    devices, device = distinct_codes(every.rows["device_id"])
    own_device = np.searchsorted(devices, chosen.rows["device_id"])
    # They are in order of their starts.
    until = np.searchsorted(every.rows["start_ns"], chosen.rows["start_ns"])
    keys_n = len(every.keys)

    def before_n(code_of: IntArray) -> IntArray:
        codes = device * keys_n + code_of[every.key]
        return equals_before_n(codes, own_device * keys_n + code_of[chosen.key], until)

    return {"launch": before_n(every.name_codes()), "config_launch": before_n(np.arange(keys_n))}


def _range_texts(
    trace: RankTrace, launched: Table, at_ns: IntArray, known: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Return the text of the innermost NVTX range at each launch, or None."""
    texts = np.full(at_ns.shape, None, dtype=object)
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return texts
    rows = np.flatnonzero(known)
    if not rows.size:
        return texts
    thread = trace.tables["api_calls"]["global_tid"][launched["launch_row"][rows]]
    event_rows = innermost_events(events, at_ns[rows], thread, trace.last_end_ns)
    inside = event_rows >= 0
    distinct, code = raw_texts(events, event_rows[inside], trace.strings)
    texts[rows[inside]] = np.array(distinct, dtype=object)[code]
    return texts


def _beside(trace: RankTrace, every: KeyedKernels, chosen: KeyedKernels) -> tuple[Numbers, Texts]:
    names = ("kernels_ns", "communication_ns", "copies_ns", "beside_ns")
    numbers = {name: np.zeros(len(chosen.rows), dtype=np.int64) for name in names}
    beside = np.full(len(chosen.rows), None, dtype=object)
    for device in np.unique(chosen.rows["device_id"]).tolist():
        selected = np.flatnonzero(chosen.rows["device_id"] == device)
        rows, key = chosen.rows.take(selected), chosen.key[selected]
        starts, ends, lane = rows["start_ns"], rows["end_ns"], rows["stream_id"]
        ops, classes, labels = _labelled(trace, every, device)
        timeline = _timeline(ops, union_intervals(starts, ends + 1))
        place = timeline.places(starts, ends, lane, key)
        if not timeline.overlaps:
            continue
        for name, wanted in _CLASSES.items():
            member = np.isin(classes, wanted)[timeline.label]
            numbers[name][selected] = timeline.others_ns(place, member)
        other, numbers["beside_ns"][selected] = timeline.longest_beside(place)
        beside[selected] = [None if at < 0 else labels[at] for at in timeline.label[other].tolist()]
        beside[selected[other < 0]] = None
    return numbers, {"beside": beside}


#: Columns of what ran beside; the content is unknown of a graph that was traced as a whole.
_CLASSES: Final = {
    "kernels_ns": (_COMPUTE, _GRAPH),
    "communication_ns": (_COMMUNICATION,),
    "copies_ns": (_COPY,),
}


def _labelled(
    trace: RankTrace, every: KeyedKernels, device: int
) -> tuple[list[Table], IntArray, list[str]]:
    """Return the operations of a device with their label, and the class and name of each label.

    The label of a kernel is its key.
    """
    labels = [str(key[0]) for key in every.keys]
    classes = np.where(every.communicates(), _COMMUNICATION, _COMPUTE).tolist()
    kernels = every.rows.plus(label=every.key)
    ops = [kernels.take(kernels["device_id"] == device)]
    for name in OP_TABLES:
        if name == "kernels" or name not in trace.unfiltered:
            continue
        op = trace.unfiltered[name]
        op = op.take(op["device_id"] == device)
        code = np.full(len(op), len(labels), dtype=np.int64)
        kinds = [OP_TABLES[name]]
        if name == "memcpys":
            codes, kind = distinct_codes(op["copy_kind"])
            code, kinds = code + kind, [f"memcpy {copy_kind_name(max(code, 0))}" for code in codes]
        labels += kinds
        classes += [_GRAPH if name == "graph_traces" else _COPY] * len(kinds)
        ops.append(op.plus(label=code))
    return ops, np.array(classes, dtype=np.int64), labels


def _timeline(ops: Sequence[Table], spans: IntArray) -> Timeline:
    """Return the operations that reach into spans or touch them: most others are far away."""
    near = []
    for op in ops:
        starts, ends = op["start_ns"], op["end_ns"]
        rows = [
            block.start + np.flatnonzero(clipped_lengths(starts[block], ends[block] + 1, spans) > 0)
            for block in blocks(len(op))
        ]
        near.append(joined(rows))

    columns = [
        np.concatenate([op[name][rows] for op, rows in zip(ops, near, strict=True)])
        for name in ("start_ns", "end_ns", "stream_id", "label")
    ]
    order = np.argsort(columns[0], kind="stable")
    return Timeline(*(column[order] for column in columns))

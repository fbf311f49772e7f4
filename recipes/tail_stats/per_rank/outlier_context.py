"""What the trace shows around some launches of one rank: how many came before, what ran beside."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.nvtx.launch_ranges import innermost_events
from nsys_llm.analyses.nvtx.range_names import raw_texts
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct_codes, order_by_code, position_in_group
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import copy_kind_name
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

from .concurrency import Timeline
from .launches import Launches

#: Classes of operations that may run beside a launch, in the order of their codes.
_COMPUTE, _COMMUNICATION, _COPY, _GRAPH = range(4)

Numbers = dict[str, IntArray]
Texts = dict[str, npt.NDArray[Any]]


def around(
    trace: RankTrace, every: Launches, chosen: Launches, steps: Steps | None
) -> tuple[Numbers, Texts]:
    """Return the columns of `per_rank.instances` that say what was around.

    Args:
        trace: One rank; what filters leave out ran beside the rest, so all of it counts.
        every: All of its kernels.
        chosen: Some of them, with the same keys.
        steps: Its steps; None where there are none.
    """
    at_ns, known = _launched(trace, chosen.rows)
    numbers = {
        **_before_n(every, chosen),
        "before_first_step_end": _before_first_step_end(at_ns, steps),
    }
    beside, texts = _beside(trace, every, chosen)
    texts["range"] = _range_texts(trace, chosen.rows, at_ns, known)
    return {**numbers, **beside}, texts


def _last_end(trace: RankTrace) -> int:
    return max((int(op["end_ns"].max()) for op in trace.unfiltered.values() if len(op)), default=0)


def _launched(trace: RankTrace, rows: Table) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return when each kernel was launched, and whether that is known.

    Where it is not, the start on the GPU stands for the time.
    """
    calls, row = trace.tables.get("api_calls"), rows["launch_row"]
    if calls is None or not len(calls):
        return rows["start_ns"].copy(), row < -1
    known, at_ns = row >= 0, calls["start_ns"][row]
    if not known.all():
        at_ns[~known] = rows["start_ns"][~known]
    return at_ns, known


def _before_n(every: Launches, chosen: Launches) -> Numbers:
    """Return how many launches of the kernel, and of the configuration, began before each one.

    On the same device; a kernel's launches are those of all its configurations.
    """
    devices, device = distinct_codes(every.rows["device_id"])
    own_device = np.searchsorted(devices, chosen.rows["device_id"])
    # They are in order of their starts.
    until = np.searchsorted(every.rows["start_ns"], chosen.rows["start_ns"])
    keys_n, name = len(every.keys), every.name_codes()
    return {
        "launch": _equals_before_n(
            device * keys_n + name[every.key], own_device * keys_n + name[chosen.key], until
        ),
        "config_launch": _equals_before_n(
            device * keys_n + every.key, own_device * keys_n + chosen.key, until
        ),
    }


def _equals_before_n(codes: IntArray, wanted: IntArray, until: IntArray) -> IntArray:
    """Return how many of the first `until` codes equal the wanted one, for each of shape (k,)."""
    order = order_by_code(codes)
    ordered = codes[order]
    before_n = np.empty(codes.size, dtype=np.int64)
    before_n[order] = position_in_group(ordered)
    equal_n = before_n[until]
    # Where others begin at the same instant, the first of these rows may have another code.
    other = np.flatnonzero(codes[until] != wanted)
    if other.size:
        row, first = ordered * codes.size + order, wanted[other] * codes.size
        low, high = np.searchsorted(row, (first, first + until[other]))
        equal_n[other] = high - low
    return equal_n


def _before_first_step_end(at_ns: IntArray, steps: Steps | None) -> IntArray:
    if steps is None:
        return np.full(at_ns.shape, NULL_INT, dtype=np.int64)
    return (at_ns < steps.span_end_ns[0]).astype(np.int64)


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
    event_rows = innermost_events(events, at_ns[rows], thread, _last_end(trace))
    inside = event_rows >= 0
    distinct, code = raw_texts(events, event_rows[inside], trace.strings)
    texts[rows[inside]] = np.array(distinct, dtype=object)[code]
    return texts


def _beside(trace: RankTrace, every: Launches, chosen: Launches) -> tuple[Numbers, Texts]:
    names = ("gap_before_ns", "kernels_ns", "communication_ns", "copies_ns", "beside_ns")
    numbers = {name: np.zeros(len(chosen.rows), dtype=np.int64) for name in names}
    beside = np.full(len(chosen.rows), None, dtype=object)
    for device in np.unique(chosen.rows["device_id"]).tolist():
        selected = np.flatnonzero(chosen.rows["device_id"] == device)
        rows, key = chosen.rows.take(selected), chosen.key[selected]
        timeline, classes, labels = _timeline(trace, every, device)
        place = timeline.places(rows["start_ns"], rows["end_ns"], rows["stream_id"], key)
        numbers["gap_before_ns"][selected] = timeline.gaps_before_ns(place, NULL_INT)
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


def _timeline(
    trace: RankTrace, every: Launches, device: int
) -> tuple[Timeline, IntArray, list[str]]:
    """Return all operations of a device, and the class and the name of each of their labels.

    The label of a kernel is its key.
    """
    labels = [str(key[0]) for key in every.keys]
    classes = np.where(every.communicates(), _COMMUNICATION, _COMPUTE).tolist()
    selected = every.rows["device_id"] == device
    parts = [(every.rows.take(selected), every.key if selected.all() else every.key[selected])]
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
        parts.append((op, code))

    def column(name: str) -> IntArray:
        return np.concatenate([op[name] for op, _ in parts])

    timeline = Timeline.of(
        column("start_ns"),
        lambda: column("end_ns"),
        lambda: column("stream_id"),
        lambda: np.concatenate([label for _, label in parts]),
    )
    return timeline, np.array(classes, dtype=np.int64), labels

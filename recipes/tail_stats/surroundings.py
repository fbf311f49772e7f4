"""What the trace shows around some launches of one rank: how many came before, what ran beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.concurrency import Timeline
from nsys_llm.cuda_codes import copy_kind_name
from nsys_llm.grouping import distinct_codes, order_by_code
from nsys_llm.intervals import IntArray
from nsys_llm.launch_ranges import event_text, find_steps, innermost_events
from nsys_llm.ranges import Ranges, parse_choice
from nsys_llm.rank_trace import OP_TABLES, RankTrace
from nsys_llm.recipes.tail_stats.launches import Launches
from nsys_llm.tables import NULL_INT, Table

__all__ = ["around", "rank_steps"]

#: Classes of operations that may run beside a launch, in the order of their codes.
_COMPUTE, _COMMUNICATION, _COPY, _GRAPH = range(4)

Numbers = dict[str, IntArray]
Texts = dict[str, npt.NDArray[Any]]


def around(
    trace: RankTrace, every: Launches, chosen: Launches, steps: Ranges | None
) -> tuple[Numbers, Texts]:
    """Return the columns of `nsys_llm.recipes.tail_stats.instances` that say what was around.

    Args:
        trace: One rank; what filters leave out ran beside the rest, so all of it counts.
        every: All of its kernels.
        chosen: Some of them, with the same keys.
        steps: Its steps; None where there are none.
    """
    at_ns, thread, known = _launched(trace, chosen.rows)
    numbers = {
        "launch": _before_n(every, chosen, every.name_codes()),
        "config_launch": _before_n(every, chosen, np.arange(len(every.keys))),
        "before_first_step_end": _before_first_step_end(at_ns, steps),
    }
    beside, texts = _beside(trace, every, chosen)
    texts["range"] = _range_texts(trace, at_ns, thread, known)
    return {**numbers, **beside}, texts


def rank_steps(trace: RankTrace, options: Mapping[str, Any]) -> Ranges | None:
    """Return the steps of a rank, or None where no NVTX range repeats or is named by --step."""
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return None
    choice = parse_choice(options["step"]) if options.get("step") else None
    steps = find_steps(events, trace.strings, _last_end(trace), choice)
    return steps if len(steps.start_ns) else None


def _last_end(trace: RankTrace) -> int:
    return max((int(op["end_ns"].max()) for op in trace.unfiltered.values() if len(op)), default=0)


def _launched(trace: RankTrace, rows: Table) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_]]:
    """Return when and on which thread each kernel was launched, and whether that is known.

    Where it is not, the start on the GPU stands for the time.
    """
    calls, row = trace.tables.get("api_calls"), rows["launch_row"]
    if calls is None or not len(calls):
        return rows["start_ns"], row * 0, row < -1
    known = row >= 0
    at_ns = np.where(known, calls["start_ns"][row], rows["start_ns"])
    return at_ns, calls["global_tid"][row], known


def _before_n(every: Launches, chosen: Launches, group_of_key: IntArray) -> IntArray:
    """Return how many launches of the same group began on the same device before each one."""
    devices, device = distinct_codes(every.rows["device_id"])
    group = device * (int(group_of_key.max(initial=0)) + 1) + group_of_key[every.key]
    own_device = np.searchsorted(devices, chosen.rows["device_id"])
    own = own_device * (int(group_of_key.max(initial=0)) + 1) + group_of_key[chosen.key]
    order = order_by_code(group)
    starts, ordered = every.rows["start_ns"][order], group[order]
    before_n = np.zeros(own.shape, dtype=np.int64)
    for one in np.unique(own).tolist():
        first, last = np.searchsorted(ordered, (one, one + 1))
        mine = np.flatnonzero(own == one)
        before_n[mine] = np.searchsorted(starts[first:last], chosen.rows["start_ns"][mine])
    return before_n


def _before_first_step_end(at_ns: IntArray, steps: Ranges | None) -> IntArray:
    if steps is None:
        return np.full(at_ns.shape, NULL_INT, dtype=np.int64)
    return (at_ns < steps.end_ns[0]).astype(np.int64)


def _range_texts(
    trace: RankTrace, at_ns: IntArray, thread: IntArray, known: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Return the text of the innermost NVTX range at each launch, or None."""
    texts = np.full(at_ns.shape, None, dtype=object)
    events = trace.tables.get("nvtx_events")
    if events is None or not len(events):
        return texts
    rows = np.flatnonzero(known)
    found = innermost_events(events, at_ns[rows], thread[rows], _last_end(trace))
    inside = found >= 0
    texts[rows[inside]] = [event_text(events, row, trace.strings) for row in found[inside].tolist()]
    return texts


def _beside(trace: RankTrace, every: Launches, chosen: Launches) -> tuple[Numbers, Texts]:
    names = ("gap_before_ns", "kernels_ns", "communication_ns", "copies_ns", "beside_ns")
    numbers = {name: np.zeros(len(chosen.rows), dtype=np.int64) for name in names}
    beside = np.full(len(chosen.rows), None, dtype=object)
    for device in np.unique(chosen.rows["device_id"]).tolist():
        mine = np.flatnonzero(chosen.rows["device_id"] == device)
        rows, key = chosen.rows.take(mine), chosen.key[mine]
        timeline, kinds, labels = _timeline(trace, every, device)
        place = timeline.places(rows["start_ns"], rows["end_ns"], rows["stream_id"], key)
        numbers["gap_before_ns"][mine] = timeline.gaps_before_ns(place, NULL_INT)
        if not timeline.overlaps:
            continue
        for name, classes in _CLASSES.items():
            numbers[name][mine] = timeline.others_ns(place, np.isin(kinds, classes))
        other, numbers["beside_ns"][mine] = timeline.longest_beside(place)
        beside[mine] = [None if at < 0 else labels[at] for at in timeline.label[other].tolist()]
        beside[mine[other < 0]] = None
    return numbers, {"beside": beside}


#: Columns of what ran beside; nobody knows what runs in a graph that was traced as a whole.
_CLASSES: Final = {
    "kernels_ns": (_COMPUTE, _GRAPH),
    "communication_ns": (_COMMUNICATION,),
    "copies_ns": (_COPY,),
}


def _timeline(
    trace: RankTrace, every: Launches, device: int
) -> tuple[Timeline, IntArray, list[str]]:
    """Return all operations of a device, the class of each, and what the codes of labels say.

    The label of a kernel is its key.
    """
    labels = [str(key[0]) for key in every.keys]
    parts: list[tuple[Table, IntArray, IntArray]] = []
    mine = every.rows["device_id"] == device
    kernels = every.rows.take(mine)
    key = every.key[mine]
    talks = every.communicates()[key]
    parts.append((kernels, key, np.where(talks, _COMMUNICATION, _COMPUTE)))
    for name in OP_TABLES:
        if name == "kernels" or name not in trace.unfiltered:
            continue
        op = trace.unfiltered[name]
        op = op.take(op["device_id"] == device)
        code = np.full(len(op), len(labels), dtype=np.int64)
        if name == "memcpys":
            kinds, kind = distinct_codes(op["copy_kind"])
            code = code + kind
            labels += [f"memcpy {copy_kind_name(max(one, 0))}" for one in kinds.tolist()]
        else:
            labels.append(OP_TABLES[name])
        parts.append((op, code, np.full(len(op), _GRAPH if name == "graph_traces" else _COPY)))
    starts, ends, lanes = (
        np.concatenate([op[name] for op, _, _ in parts])
        for name in ("start_ns", "end_ns", "stream_id")
    )
    label = np.concatenate([label for _, label, _ in parts])
    timeline, order = Timeline.of(starts, ends, lanes, label)
    return timeline, np.concatenate([kind for _, _, kind in parts])[order], labels

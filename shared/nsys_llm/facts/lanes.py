"""Collectives: what one rank sends of them.

Communication kernels are recognized by the rules that know them for every engine (NCCL, custom and
fused all-reduces, NVSHMEM, DeepEP; see `nsys_llm.taxonomy.communication`). A rank sends when each
of them ran; which belong together can only be told once all ranks are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct_codes
from nsys_llm.numeric.intervals import IntArray, covered_ns, union_intervals
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.communication import SEND_RECV, is_communication, operation_of
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.ranges import PUSH_POP, START_END
from nsys_llm.trace.rank_trace import RankTrace

#: Executions that one rank sends, its earliest; two integers each, so 3.2 MB. A tensor-parallel
#: model of 80 layers reaches them after 1,250 steps; ours.
MOST_COLLECTIVES: Final = 200_000

#: Operations that carry tokens to experts and back; NCCL's all-to-all sends and receives.
EXCHANGES: Final = ("dispatch", "combine", "all_to_all", SEND_RECV)
_EXPERTS: Final = "moe"


@dataclass(frozen=True)
class LaneRows:
    """Executions of one communication kernel on one stream of one device of one rank.

    Attributes:
        kernel: Demangled name.
        start_ns: Of those that start in the window; shape (n,), the report's clock, ascending.
        cut_n: Executions that reach into the window and start before it.
        over_limit_n: Executions left out because the rank has more than `MOST_COLLECTIVES`.
        before_n: Of sends and receives, shape (n,): kernels other than communication that the
            process launched on the device before each; empty for the rest.
        comm: Shape (n,): the id of the communicator that each call names; empty where a call names
            none.
        sizes: Ids and numbers of ranks of communicators that the process made in the capture.
        recorded_ns: The rank's first recorded operation, CUDA call or NVTX range, the report's
            clock.
        work_ns: Of exchanges of tokens on a rank that runs experts, shape (2, 2, n): time of all
            computation and of expert kernels, on the device before its begin and its end; empty
            for the rest.
    """

    kernel: str
    operation: str
    device_id: int
    stream_id: int
    start_ns: IntArray
    end_ns: IntArray
    cut_n: int
    over_limit_n: int
    before_n: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    comm: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    sizes: tuple[tuple[int, int], ...] = ()
    recorded_ns: int = NULL_INT
    work_ns: IntArray = field(default_factory=lambda: np.empty((2, 2, 0), dtype=np.int64))


#: Communication kernels of many ranks, those without any left out.
RankLanes = Mapping[RankKey, tuple[LaneRows, ...]]


def map_lanes(trace: RankTrace) -> tuple[LaneRows, ...]:
    """Reduce one rank to the times of its communication kernels."""
    kernels = trace.tables["kernels"]
    used, code = distinct_codes(kernels["demangled_name_id"])
    names = [trace.strings.get(key, "") for key in used.tolist()]
    wanted = np.array([is_communication(name) for name in names], dtype=bool)
    rows = np.flatnonzero(wanted[code]) if wanted.any() else np.empty(0, dtype=np.int64)
    if rows.size == 0:
        return ()
    rows = rows[np.argsort(kernels["start_ns"][rows], kind="stable")]
    communication = kernels.take(rows)
    inside = trace.starts_inside(communication)
    sent = inside & (np.cumsum(inside) <= MOST_COLLECTIVES)
    devices, device = distinct_codes(communication["device_id"])
    streams, stream = distinct_codes(communication["stream_id"])
    lane_keys, lane = distinct_codes((code[rows] * devices.size + device) * streams.size + stream)
    ids, recorded_ns = communication["correlation_id"], _first_record_ns(trace)
    lanes = []
    for place, key in enumerate(lane_keys.tolist()):
        selected = lane == place
        key, stream_place = divmod(key, streams.size)
        name_place, device_place = divmod(key, devices.size)
        name, operation = names[name_place], operation_of(names[name_place])
        before_n = np.empty(0, dtype=np.int64)
        if operation == SEND_RECV:
            # The ids of a process ascend in the order of its calls, however late the GPU comes.
            counted = ~wanted[code] & (kernels["device_id"] == devices[device_place])
            launched = np.sort(kernels["correlation_id"][counted])
            before_n = np.searchsorted(launched, ids[selected & sent]).astype(np.int64)
        lanes.append(
            LaneRows(
                kernel=name,
                operation=operation,
                device_id=int(devices[device_place]),
                stream_id=int(streams[stream_place]),
                start_ns=communication["start_ns"][selected & sent],
                end_ns=communication["end_ns"][selected & sent],
                cut_n=int((selected & ~inside).sum()),
                over_limit_n=int((selected & inside & ~sent).sum()),
                before_n=before_n,
                recorded_ns=recorded_ns,
            )
        )
    return _with_work(lanes, trace)


def _with_work(lanes: Sequence[LaneRows], trace: RankTrace) -> tuple[LaneRows, ...]:
    """Return lanes with what was computed before exchanges of tokens, if the rank runs experts."""
    exchanges = {lane.device_id for lane in lanes if lane.operation in EXCHANGES}
    if not exchanges:
        return tuple(lanes)
    kernels = trace.unfiltered["kernels"]
    used, code = distinct_codes(kernels["demangled_name_id"])
    names = [trace.strings.get(key, "") for key in used.tolist()]
    rules = rules_for(set(names))
    kinds = [[not is_communication(name) for name in names]]
    kinds.append([rules.classify(name).category == _EXPERTS for name in names])
    if not any(kinds[1]):
        return tuple(lanes)
    spans: dict[int, list[IntArray]] = {}
    for device in exchanges:
        here = kernels["device_id"] == device
        chosen = [kernels.take(here & np.array(kind)[code]) for kind in kinds]
        spans[device] = [union_intervals(some["start_ns"], some["end_ns"]) for some in chosen]
    return tuple(
        replace(
            lane,
            work_ns=np.stack(
                [
                    [covered_ns(at_ns, some) for at_ns in (lane.start_ns, lane.end_ns)]
                    for some in spans[lane.device_id]
                ]
            ),
        )
        if lane.operation in EXCHANGES
        else lane
        for lane in lanes
    )


def _first_record_ns(trace: RankTrace) -> int:
    """Return the start of the first operation, call or range, before any filter.

    Ranges that are open when a capture begins are not in it.
    """
    tables = [*trace.unfiltered.values(), trace.tables.get("api_calls")]
    events = trace.tables.get("nvtx_events")
    if events is not None:
        is_range = np.isin(events["event_type"], (PUSH_POP, START_END))
        tables.append(events.take(is_range & (events["start_ns"] >= 0)))
    return min(int(rows["start_ns"].min()) for rows in tables if rows is not None and len(rows))

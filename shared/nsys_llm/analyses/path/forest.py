"""All paths of one rank, as they travel: segments of stretches, and where communication begins.

Paths that meet go on together, so each stretch is there once, however many walks visit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.path.classes import (
    BEFORE_CAPTURE,
    COMMUNICATION,
    COMPUTE,
    COPY,
    DEVICE_LATENCY,
    HOST_NO_CUDA,
    LAUNCH_LATENCY,
    PROFILER,
    UNKNOWN,
)
from nsys_llm.analyses.path.edges import Edges
from nsys_llm.analyses.path.host_parts import with_host_parts
from nsys_llm.analyses.path.ops import Bools, PathOps
from nsys_llm.analyses.path.stretches import (
    OPEN_NS,
    REASONS,
    Keys,
    Stretches,
    split_key,
    stretches,
)
from nsys_llm.analyses.path.walk import segments
from nsys_llm.numeric.grouping import distinct, distinct_codes
from nsys_llm.numeric.intervals import IntArray, covered_ns
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace

#: The device of host time.
HOST: Final = -1
#: Communication operations of a rank at which paths may go on in other ranks, its earliest: as many
#: as are matched, see `nsys_llm.analyses.collectives.lanes`.
MOST_MEMBERS: Final = 200_000


@dataclass(frozen=True, order=True)
class Charge:
    """What time is charged to.

    Attributes:
        kind: Code of `CLASS_NAMES`.
        edge: Code of `EDGE_NAMES`: by which the path goes on from there.
        detail: Kernel, copy, API function, NVTX range, or reason; "" for none.
        device_id: CUDA device id; `HOST` for none.
    """

    kind: int
    edge: int
    detail: str
    device_id: int


@dataclass(frozen=True)
class PathForest:
    """The paths of one rank.

    Attributes:
        charges: What codes stand for.
        begin_ns: Shape (stretches,), never later than the one above; `OPEN_NS` at the end of a
            path.
        code: Shape (stretches,), position in `charges`.
        doubtful: Shape (stretches,), whether an edge between it and its segment's top is inferred.
        first: Shape (segments + 1,): stretches of segment s lie at first[s] to first[s + 1].
        top_ns: Shape (segments,), when the first of them ends, the profile's clock.
        next: Shape (segments,), the segment below; -1 for none.
        idle_ns: Shape (segments,), how much of its time no device of the rank ran anything; 0 where
            it ends a path.
        member: Shape (segments,), the communication operation that it is; -1 for none.
        member_segment: Shape (members,), the segment of each communication operation.
        member_start_ns: Shape (members,).
        member_end_ns: Likewise.
        member_device: Shape (members,), CUDA device id.
        member_step: Shape (members,), the step that launched it; -1 for none.
    """

    charges: tuple[Charge, ...]
    begin_ns: IntArray
    code: npt.NDArray[np.int32]
    doubtful: Bools
    first: IntArray
    top_ns: IntArray
    next: IntArray
    idle_ns: IntArray
    member: IntArray
    member_segment: IntArray
    member_start_ns: IntArray
    member_end_ns: IntArray
    member_device: IntArray
    member_step: IntArray

    def __len__(self) -> int:
        return self.top_ns.size

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels: numbers as short as they allow, stretches by their lengths."""
        is_open = self.begin_ns == OPEN_NS
        ends = np.empty_like(self.begin_ns)
        ends[1:] = self.begin_ns[:-1]
        ends[self.first[:-1]] = self.top_ns
        state = {**vars(self), "begin_ns": np.where(is_open, 0, ends - self.begin_ns)}
        state["open"] = np.flatnonzero(is_open)
        return {name: _shortened(value) for name, value in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what travelled."""
        values = dict(state)
        for name, value in values.items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "i" and name != "code":
                values[name] = value.astype(np.int64)
        values["code"] = values["code"].astype(np.int32)
        spent, first = np.cumsum(values["begin_ns"]), values["first"]
        before = np.concatenate(([0], spent))[first[:-1]]
        values["begin_ns"] = np.repeat(values["top_ns"] + before, np.diff(first)) - spent
        values["begin_ns"][values.pop("open")] = OPEN_NS
        vars(self).update(values)


def _shortened(value: Any) -> Any:
    """Return integers in the shortest type that holds them; all else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "i" or not value.size:
        return value
    least, most = int(value.min()), int(value.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return value.astype(kind)
    return value


def path_forest(
    trace: RankTrace,
    edges: Edges,
    names: Sequence[str],
    tails: IntArray,
    op_step: IntArray,
) -> tuple[PathForest, IntArray]:
    """Return the paths of a rank from the ends of its steps and from its communication.

    Args:
        trace: The rank.
        edges: What its operations and calls waited for.
        names: Of its operations.
        tails: Shape (k,), the operations that end windows; -1 for none.
        op_step: Shape (operations,), the step that launched each; -1 for none.

    Returns:
        The paths, and shape (k,): the segment that begins with each of the tails, -1 for none.
    """
    ops = edges.ops
    members = member_ops(ops)
    begins = np.concatenate((members, tails[tails >= 0]))
    path_segments = segments(edges, begins.tolist())
    api_names, api = _apis(trace, edges.host)
    calls_from = int(np.searchsorted(path_segments.top, len(ops)))
    parts, ranges = with_host_parts(
        stretches(edges, path_segments, api), trace, edges.host, calls_from
    )
    keys, code = distinct_codes(parts.key)
    charges, merged = _charges(keys, ops, names, api_names, ranges)
    segment_of = np.searchsorted(path_segments.top, members)
    member = np.full(path_segments.top.size, -1, dtype=np.int64)
    member[segment_of] = np.arange(members.size)
    forest = PathForest(
        charges=charges,
        begin_ns=parts.begin_ns,
        code=merged[code].astype(np.int32),
        doubtful=parts.doubtful,
        first=parts.first,
        top_ns=parts.top_ns,
        next=path_segments.next,
        idle_ns=_idle_ns(trace, parts),
        member=member,
        member_segment=segment_of,
        member_start_ns=ops.start_ns[members],
        member_end_ns=ops.end_ns[members],
        member_device=ops.device_ids[ops.stream[members]],
        member_step=op_step[members],
    )
    at = np.searchsorted(path_segments.top, np.maximum(tails, 0))
    return forest, np.where(tails >= 0, at, -1)


def member_ops(ops: PathOps) -> IntArray:
    """Return the operations at which paths may go on in other ranks, by start."""
    members = np.flatnonzero(ops.kind == COMMUNICATION)
    return members[np.argsort(ops.start_ns[members], kind="stable")][:MOST_MEMBERS]


def _idle_ns(trace: RankTrace, parts: Stretches) -> IntArray:
    """Return for each segment how much of its time no device ran anything."""
    bottom = parts.begin_ns[parts.first[1:] - 1]
    ended = bottom == OPEN_NS
    bottom = np.where(ended, parts.top_ns, bottom)
    busy = trace.gpu_busy
    busy_ns = covered_ns(parts.top_ns, busy) - covered_ns(bottom, busy)
    return parts.top_ns - bottom - busy_ns


def _apis(trace: RankTrace, host: HostTimeline) -> tuple[tuple[str, ...], IntArray]:
    """Return names of API functions, and that of each call."""
    calls = trace.tables.get("api_calls")
    if calls is None or not host.calls.row.size:
        return (), np.empty(0, dtype=np.int64)
    names, code = coded_names(calls["name_id"], trace.strings, strip_api_version)
    return names, code[host.calls.row]


def _charges(
    keys: Keys,
    ops: PathOps,
    names: Sequence[str],
    api_names: Sequence[str],
    ranges: Sequence[str],
) -> tuple[tuple[Charge, ...], IntArray]:
    """Return what keys stand for, each once and sorted, and the place of each key among them."""
    devices = distinct(ops.device_ids).tolist()
    key_charges = []
    for kind, edge, detail in zip(*(item.tolist() for item in split_key(keys)), strict=True):
        text, device = "", HOST
        if kind in (COMPUTE, COPY, COMMUNICATION, UNKNOWN):
            name, place = divmod(detail, len(devices))
            text, device = (REASONS if kind == UNKNOWN else names)[name], devices[place]
        elif kind in (DEVICE_LATENCY, LAUNCH_LATENCY):
            device = devices[detail]
        elif kind == HOST_NO_CUDA:
            text = ranges[detail]
        elif kind != PROFILER:
            text = api_names[detail]
        key_charges.append(Charge(kind, edge, text, device))
    charges = tuple(sorted(set(key_charges)))
    place = {charge: index for index, charge in enumerate(charges)}
    return charges, np.array([place[charge] for charge in key_charges], dtype=np.int64)


def unrecorded(kind: int = UNKNOWN) -> Charge:
    """Return what time before all that is recorded is charged to."""
    return Charge(kind, 0, BEFORE_CAPTURE, HOST)

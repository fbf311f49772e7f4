"""What the GPUs of one rank did in a few windows, as lanes of a figure. Pure numpy.

The states are the classes of the wall split with their details: computation by category,
communication by waiting and transfer, copies, and idle time by cause. A gap has the state of its
largest cause, and tells the others. What is too short to be seen is joined with its neighbors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.device.host_timeline import HostTimeline
from nsys_llm.facts.device.idle_split import situate, split_gaps
from nsys_llm.facts.host.states import DOING, STATES, ThreadStates, has_host_records
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.timeline.segments import NO_NAME, LaneSegments, Pieces, joined
from nsys_llm.facts.wall.layers import WallLayers, wall_layers
from nsys_llm.numeric.gaps import Gaps
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    intersect_intervals,
    subtract_intervals,
)
from nsys_llm.taxonomy.categories import RuleSet
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.taxonomy.wall_classes import (
    BUBBLE,
    COPIES,
    EXPERTS,
    IDLE,
    NOT_MATCHED,
    TRANSFER,
    WAITING,
    WHOLE_GRAPH,
)
from nsys_llm.trace.device_ops import DeviceOps, OpNames, op_names
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.rank_trace import RankTrace

#: States without those of computation, which have the names of its categories.
_OTHERS: Final = (TRANSFER, WAITING, BUBBLE, EXPERTS, NOT_MATCHED, COPIES, *CAUSE_NAMES, IDLE)
#: States in which a device does nothing of use.
WAITS: Final = frozenset({WAITING, BUBBLE, EXPERTS, *CAUSE_NAMES, IDLE})
#: Tables that tell more about operations: when they were launched, and how long was captured.
_BESIDE: Final = ("api_calls", "capture_spans")
_LOWEST: Final = int(np.iinfo(np.int64).min)
_HIGHEST: Final = int(np.iinfo(np.int64).max)
#: Of several profiles: operations that are kept, some 1 GB, and the profiles that share the room.
MOST_KEPT_OPS: Final = 10_000_000
MOST_KEPT_PROFILES: Final = 16
#: Names of kernels as the taxonomy knows them, whatever a run shows.
_FULL_NAMES: Final = {"base": False, "mangled": False}


@dataclass(frozen=True)
class LaneWindow:
    """One window of one device of a rank, to be looked at.

    Attributes:
        start_ns: Its begin, in the profile's clock.
        cell_ns: Stretches shorter than this may be joined.
        communication: By detail of the communication class when the device waited or transferred,
            shape (n, 2), sorted; all of them disjoint.
    """

    view: int
    device_id: int
    start_ns: int
    end_ns: int
    cell_ns: int
    communication: Mapping[str, IntArray]


@dataclass(frozen=True)
class StepLane:
    """What a device did in a window: integers and strings.

    Attributes:
        states: Of these `segments.state` and `segments.time_ns` are positions.
        names: Full names of operations; `segments.name` are positions in them.
        segments: They cover the part of the window that lies between the first and the last
            operation of the device; of a host, when the device waited for it.
        host: What the threads did that the device waited for; None where it is not recorded.
    """

    window: LaneWindow
    states: tuple[str, ...]
    names: tuple[str, ...]
    segments: LaneSegments
    host: StepLane | None = None


@dataclass(frozen=True)
class LaneInputs:
    """What the lanes of a rank are made of: its operations and calls, whatever filters leave.

    Attributes:
        trace: Without other tables.
        threads: What threads did; None where only CUDA calls are recorded of them.
    """

    trace: RankTrace
    host: HostTimeline
    whole_capture: bool
    threads: ThreadStates | None

    @classmethod
    def of(cls, view: RankView) -> LaneInputs:
        """Take it from a rank, whatever its filters leave and however it names kernels."""
        trace, host = view.trace, view.host
        tables = {name: trace.tables[name] for name in _BESIDE if name in trace.tables}
        threads = None
        if has_host_records(trace):
            threads = ThreadStates(trace, host, view.records)
        trace = replace(trace, tables=tables, windows_ns=None, chosen={}, kept={})
        return cls(trace, host, view.whole_capture, threads)

    def near(self, window: LaneWindow) -> RankTrace:
        """Return the operations of a device that reach into a window, and those next to it.

        The last that end before it and the first that begin after it: gaps are as long as with all.
        """
        here: dict[str, npt.NDArray[np.bool_]] = {}
        before_ns, after_ns = _LOWEST, _HIGHEST
        for name, op in self.trace.unfiltered.items():
            here[name] = op["device_id"] == window.device_id
            starts, ends = op["start_ns"], op["end_ns"]
            ended, begin = (ends <= window.start_ns) & here[name], starts >= window.end_ns
            before_ns = int(ends.max(where=ended, initial=before_ns))
            after_ns = int(starts.min(where=begin & here[name], initial=after_ns))
        ops = {}
        for name, op in self.trace.unfiltered.items():
            rows = here[name] & (op["end_ns"] >= before_ns) & (op["start_ns"] <= after_ns)
            ops[name] = op.take(rows)
        return replace(
            self.trace,
            tables={**self.trace.tables, **ops},
            unfiltered=ops,
            device_ids=(window.device_id,),
        )


class KeptRanks:
    """Ranks of which lanes can be made: of those that this process read, as many as there is room.

    Each profile has its share of the room, so that threads keep the same ranks in any order. An
    only rank is always kept: mapping it took more memory than what comes after.

    Attributes:
        here: Whether profiles are read in this process.
    """

    def __init__(self, *, here: bool) -> None:
        self.here = here
        self._kept: dict[RankKey, LaneInputs] = {}
        self._room_n: dict[str, int] = {}

    def expect(self, paths: Sequence[str]) -> None:
        """Forget what was kept; these profiles are about to be read."""
        self._kept, shares_n = {}, min(len(paths), MOST_KEPT_PROFILES)
        self._room_n = {path: MOST_KEPT_OPS // shares_n for path in paths[:shares_n]}

    def keep(self, view: RankView) -> None:
        """Keep a rank that was mapped, if there is room."""
        ops_n = sum(map(len, view.trace.unfiltered.values()))
        room_n = self._room_n.get(view.key.path, 0)
        if ops_n <= room_n or (len(self._room_n) == 1 and not self._kept):
            self._room_n[view.key.path] = room_n - ops_n
            self._kept[view.key] = LaneInputs.of(view)

    def lanes(
        self, windows: Mapping[RankKey, Sequence[LaneWindow]], rules: RuleSet
    ) -> dict[RankKey, tuple[StepLane, ...]]:
        """Return the lanes of the ranks that were kept, and keep them no longer."""
        kept, self._kept = self._kept, {}
        return {
            key: rank_lanes(kept[key], asked, rules)
            for key, asked in windows.items()
            if key in kept
        }


def rank_lanes(
    rows: LaneInputs, windows: Sequence[LaneWindow], rules: RuleSet
) -> tuple[StepLane, ...]:
    """Return the lanes of a rank, in the order of its devices."""
    lanes: list[StepLane] = []
    for device_id in rows.trace.device_ids:
        for window in (window for window in windows if window.device_id == device_id):
            device = _Device.of(rows, window, rules)
            host = device.host_lane(window, rows.threads) if rows.threads else None
            lanes.append(replace(device.lane(window), host=host))
    return tuple(lanes)


@dataclass(frozen=True)
class _Device:
    """One device, near a window.

    Attributes:
        started: For communication and for copies, when operations began, ascending, and names.
    """

    layer: WallLayers
    ops: DeviceOps
    host: HostTimeline
    names: OpNames
    states: tuple[str, ...]
    state_of: IntArray
    name_of: IntArray
    started: Mapping[str, tuple[IntArray, IntArray]]

    @classmethod
    def of(cls, rows: LaneInputs, window: LaneWindow, rules: RuleSet) -> _Device:
        """Line up the device of a window."""
        trace = rows.near(window)
        _, (layer,) = wall_layers(trace, {})
        names = op_names(trace, _FULL_NAMES)
        ops = DeviceOps.of(trace, window.device_id, names, whole_capture=rows.whole_capture)
        categories = [*map(rules.compute_category, layer.names), WHOLE_GRAPH]
        states = (*dict.fromkeys([*sorted(set(categories)), *_OTHERS]),)
        place = {text: code for code, text in enumerate(names.texts)}
        talks = np.array([is_communication(text) for text in names.texts], dtype=bool)
        kinds = {NOT_MATCHED: talks & names.computing, COPIES: ~names.computing}
        return cls(
            layer,
            ops,
            rows.host,
            names,
            states,
            np.array([states.index(category) for category in categories], dtype=np.int64),
            np.array([place.get(name, NO_NAME) for name in (*layer.names, "")], dtype=np.int64),
            {
                kind: (
                    ops.start_ns[of_kind[ops.name]],
                    ops.name[of_kind[ops.name]].astype(np.int64),
                )
                for kind, of_kind in kinds.items()
            },
        )

    def lane(self, window: LaneWindow) -> StepLane:
        """Return what the device did in a window."""
        layers = [*self._working(window), self._idle(window)]
        start_ns, end_ns, name = (
            np.concatenate([getattr(item, column) for item in layers])
            for column in ("start_ns", "end_ns", "name")
        )
        offsets = np.cumsum([0, *(item.start_ns.size for item in layers)]).tolist()
        parts = np.concatenate(
            [
                layer.parts + np.array([offset, 0, 0])
                for layer, offset in zip(layers, offsets, strict=False)
            ]
        )
        order = np.argsort(start_ns, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        parts[:, 0] = place[parts[:, 0]]
        row = np.zeros(order.size, dtype=np.int64)
        pieces = Pieces(start_ns[order], end_ns[order], name[order], parts, row)
        segments = joined(pieces, len(self.states), window.start_ns, window.cell_ns)
        used, code = np.unique(segments.name, return_inverse=True)
        texts = tuple(self.names.texts[value] for value in used.tolist() if value != NO_NAME)
        code = code.astype(np.int64) - int(bool(used.size) and used[0] == NO_NAME)
        return StepLane(window, self.states, texts, replace(segments, name=code))

    def host_lane(self, window: LaneWindow, threads: ThreadStates) -> StepLane:
        """Return what the threads that the device waited for did in a window."""
        parts = [np.empty((3, 0), dtype=np.int64)]
        for _, some in threads.in_gaps(self._gaps(window), self.ops.launch_row):
            times = np.stack((some.start_ns, some.end_ns)).clip(window.start_ns, window.end_ns)
            parts.append(np.vstack((times, some.detail))[:, times[0] < times[1]])
        columns = np.concatenate(parts, axis=1)
        start_ns, end_ns, detail = columns[:, np.argsort(columns[0], kind="stable")]
        name = np.where(detail < len(DOING), NO_NAME, detail)
        pieces = _pieces(np.column_stack((start_ns, end_ns)), name, threads.states[detail])
        segments = joined(pieces, len(STATES), window.start_ns, window.cell_ns)
        return StepLane(window, STATES, threads.functions, segments)

    def _gaps(self, window: LaneWindow) -> Gaps:
        gaps = self.ops.gaps
        low = np.searchsorted(gaps.end_ns, window.start_ns, side="right")
        high = np.searchsorted(gaps.start_ns, window.end_ns, side="left")
        return gaps.take(slice(int(low), int(high)))

    def _working(self, window: LaneWindow) -> Iterator[Pieces]:
        shown = np.array([[window.start_ns, window.end_ns]])
        layer = self.layer
        owner, start_ns, end_ns = clip_to_windows(layer.compute[:, 0], layer.compute[:, 1], shown)
        label = layer.label[owner]
        times = np.column_stack((start_ns, end_ns))
        yield _pieces(times, self.name_of[label], self.state_of[label])
        rest = intersect_intervals(layer.communication, shown)
        for state, spans in window.communication.items():
            yield self._spans(state, intersect_intervals(rest, spans), NOT_MATCHED)
            rest = subtract_intervals(rest, spans)
        yield self._spans(NOT_MATCHED, rest, NOT_MATCHED)
        yield self._spans(COPIES, intersect_intervals(layer.copies, shown), COPIES)

    def _spans(self, state: str, spans: IntArray, kind: str) -> Pieces:
        """Return spans of one state, named after the operation of their kind that began last."""
        start_ns, name = self.started[kind]
        at = np.searchsorted(start_ns, spans[:, 0], side="right") - 1
        code = name[np.maximum(at, 0)] if name.size else np.full(at.shape, NO_NAME)
        return _pieces(spans, code, np.full(len(spans), self.states.index(state)))

    def _idle(self, window: LaneWindow) -> Pieces:
        gaps = self._gaps(window)
        cut = replace(gaps, spans=gaps.spans.clip(window.start_ns, window.end_ns))
        none = np.full(len(cut), NO_NAME, dtype=np.int64)
        where = situate(gaps, self.ops.launch_row, self.host)
        late_ns = np.clip(where.late_ns, cut.start_ns, cut.end_ns)
        where = replace(where, late_ns=late_ns, done_ns=np.clip(where.done_ns, late_ns, cut.end_ns))
        time_ns = split_gaps(cut, where, self.host).time_ns
        cause, gap = np.nonzero(time_ns)
        first = self.states.index(CAUSE_NAMES[0])
        parts = np.column_stack((gap, cause + first, time_ns[cause, gap])).astype(np.int64)
        return Pieces(cut.start_ns, cut.end_ns, none, parts, np.zeros_like(none))


def _pieces(times: IntArray, name: IntArray, state: IntArray) -> Pieces:
    place = np.arange(len(times), dtype=np.int64)
    parts = np.column_stack((place, state, times[:, 1] - times[:, 0])).astype(np.int64)
    return Pieces(times[:, 0], times[:, 1], name, parts, np.zeros_like(place))

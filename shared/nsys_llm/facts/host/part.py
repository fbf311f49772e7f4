"""Reduces one rank's threads to what they did in exposed time: exact sums, and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.host.places import PARTS, Places
from nsys_llm.facts.host.states import (
    DOING,
    STATES,
    THREAD_BITS,
    Exposed,
    StatePieces,
    ThreadStates,
    exposed_stretches,
    has_host_records,
)
from nsys_llm.facts.rank_view import RankView
from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.grouping import distinct_codes, distinct_rows, exact_sums
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.host_modules import collects_garbage, module_class
from nsys_llm.taxonomy.idle_causes import AFTER_LAST, CAUSE_NAMES, NO_API, QUEUED, UNRESOLVED
from nsys_llm.trace.host_part import SAMPLED, HostModule, HostPart, HostState, Where
from nsys_llm.trace.rank_trace import RankTrace

#: Gaps that are named after these were exposed to no thread: most, where a host runs ahead.
_HIDDEN: Final = (QUEUED, NO_API, AFTER_LAST, UNRESOLVED)
_Counted = tuple[Where, int, int, int]
_SAMPLED: Final = [STATES.index(state) for state in SAMPLED]


def host_part(view: RankView) -> HostPart | None:
    """Return what threads of a rank did in the exposed time of its devices.

    None where it is not recorded, or no device was exposed.
    """
    trace = view.trace
    if not has_host_records(trace):
        return None
    steps = view.steps
    places, threads = view.places, ThreadStates(trace, view.host, view.records)
    sums = [
        _Sums(threads, places, ops.device_id, exposed)
        for ops, summed in zip(view.device_ops, view.gap_sums, strict=True)
        for exposed in exposed_stretches(
            ops.gaps.take(~np.isin(summed.named, _HIDDEN)), ops.launch_row, view.host
        )
    ]
    if not sums:
        return None
    group, state, row = np.concatenate([of.samples for of in sums], axis=1)
    owner = np.repeat(np.arange(len(sums)), [of.samples.shape[1] for of in sums])
    counted = _counted(sums, [owner, group, state, *_leaves(trace, row)])
    return HostPart(
        tuple(told for of in sums for told in of.rows()),
        tuple(_modules(counted, trace.strings)),
        threads.records.period_ns({of.thread: of.sample_ns for of in sums}),
        0 if steps is None else int((~steps.warmup).sum()),
    )


class _Sums:
    """What one thread did in the exposed time of one device.

    Attributes:
        sample_ns: When periodic samples of it were taken, ascending.
        samples: Those in CUDA calls and where the thread ran, shape (3, samples): group,
            state, row in the table.
    """

    def __init__(
        self, threads: ThreadStates, places: Places, device_id: int, exposed: Exposed
    ) -> None:
        self._threads, self._places, self._device_id = threads, places, device_id
        self.thread, records = exposed.global_tid, threads.records
        self.sample_ns, self._sample_row = records.samples(self.thread)
        self._has_switches = records.moves(self.thread)[0].size > 0
        self._places_n = len(places.names) * len(PARTS)
        self._time_ns, self._on_core_ns = Counter[int](), Counter[int]()
        self._found = [np.empty((3, 0), dtype=np.int64)]
        spans = np.column_stack((exposed.start_ns, exposed.end_ns))
        moved_ns, place = places.line(self.thread, spans)
        edges = np.sort(np.append(moved_ns, records.edges_ns(self.thread)), kind="stable")
        for rows in small_blocks(exposed.start_ns.size):
            block = exposed.take(rows)
            low, high = np.searchsorted(edges, (block.start_ns[0], block.end_ns[-1]))
            pieces = threads.pieces(block, edges[low:high])
            at = np.searchsorted(moved_ns, pieces.start_ns, side="right") - 1
            self._add(pieces, pieces.cause * self._places_n + place[at])
        self.samples = np.concatenate(self._found, axis=1)

    def _add(self, pieces: StatePieces, group: IntArray) -> None:
        details_n, time_ns = self._threads.states.size, pieces.end_ns - pieces.start_ns
        used, code = distinct_codes((group * details_n + pieces.detail) * details_n + pieces.doing)
        for sums, ns in (self._time_ns, time_ns), (self._on_core_ns, time_ns * pieces.runs):
            added = exact_sums(code, ns, used.size)
            sums.update(dict(zip(used.tolist(), added.tolist(), strict=True)))
        if not group.size:
            return
        span = pieces.start_ns[0], pieces.end_ns[-1]
        some = slice(*np.searchsorted(self.sample_ns, span).tolist())
        at_ns, row = self.sample_ns[some], self._sample_row[some]
        piece = np.searchsorted(pieces.start_ns, at_ns, side="right") - 1
        state = self._threads.states[pieces.detail[piece]]
        kept = (at_ns < pieces.end_ns[piece]) & np.isin(state, _SAMPLED)
        self._found.append(np.stack((group[piece[kept]], state[kept], row[kept])))

    def where(self, group: int) -> tuple[int, int, str, str, str | None]:
        """Return device, thread, cause, part and range of a group."""
        cause, place = divmod(group, self._places_n)
        whose = self._device_id, self.thread & THREAD_BITS
        return *whose, CAUSE_NAMES[cause], *self._places.named(place)

    def rows(self) -> Iterator[HostState]:
        details_n, functions = self._threads.states.size, self._threads.functions
        time_ns, on_core_ns = Counter[int](), Counter[int]()
        longest: dict[int, tuple[str, int]] = {}  # where most of a CUDA call was spent
        for key, ns in sorted(self._time_ns.items(), key=lambda item: (-item[1], item[0])):
            of, doing = divmod(key, details_n)
            time_ns[of] += ns
            on_core_ns[of] += self._on_core_ns[key]
            if doing >= len(DOING) and doing != of % details_n:
                longest.setdefault(of, (functions[doing], ns))
        for of, ns in sorted(time_ns.items()):
            group, detail = divmod(of, details_n)
            where = *self.where(group), *self._threads.state(detail)
            known_ns = on_core_ns[of] if self._has_switches else None
            yield HostState(*where, ns, known_ns, *longest.get(of, (None, 0)))


def _leaves(trace: RankTrace, rows: IntArray) -> IntArray:
    """Return file and function of each sample's innermost frame, by the sample's row.

    Ids, -1 for none, shape (2, samples).
    """
    none = Table.empty(("id", "depth", "symbol_id", "module_id"))
    frames = trace.tables.get("sample_frames", none)
    wanted = trace.tables["cpu_samples"]["id"][rows] if rows.size else rows
    frames = frames.take(np.isin(frames["id"], wanted))
    frames = frames.take(np.lexsort((frames["depth"], frames["id"])))
    at = np.searchsorted(frames["id"], wanted)
    at = np.where(np.append(frames["id"], NULL_INT)[at] == wanted, at, -1)
    return np.stack([np.append(frames[name], -1)[at] for name in ("module_id", "symbol_id")])


def _counted(sums: Sequence[_Sums], columns: Sequence[IntArray]) -> Iterator[_Counted]:
    """Yield what samples have in common, the ids of a frame's file and function, and their number.

    Args:
        columns: Shape (samples,) each: the place among the sums, group, state, and both ids.
    """
    first, code = distinct_rows(columns)
    rows = (*(column[first].tolist() for column in columns), np.bincount(code).tolist())
    for nth, group, state, *frame, n in zip(*rows, strict=True):
        yield (*sums[nth].where(group), STATES[state]), *frame, n


def _modules(samples: Iterator[_Counted], strings: Mapping[int, str]) -> Iterator[HostModule]:
    samples_n, collecting_n = Counter[tuple[Where, str]](), Counter[tuple[Where, str]]()
    for where, path, name, n in samples:
        of = where, module_class(strings.get(path, ""))
        samples_n[of] += n
        collecting_n[of] += n * collects_garbage(strings.get(name, ""))
    for of, n in samples_n.items():
        yield HostModule(*of[0], of[1], n, collecting_n[of])

"""Reduces one rank's threads to what they did in exposed time: exact sums, and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.host.exposed import Exposed
from nsys_llm.analyses.host.places import PARTS, Places
from nsys_llm.analyses.host.states import DOING, STATES, THREAD_BITS, StatePieces, ThreadStates
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.grouping import (
    begins_group,
    distinct_codes,
    distinct_rows,
    exact_sums,
    position_in_group,
    replaced,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.host_modules import (
    UNRESOLVED,
    collects_garbage,
    module_class,
    module_classes,
)
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.host_part import (
    LEAST_SAMPLES,
    SAMPLED,
    HostFrame,
    HostModule,
    HostPart,
    HostState,
)
from nsys_llm.trace.rank_trace import RankTrace

#: Frames that are told, of each kind.
_MOST_FRAMES: Final = 20
#: Frames of these classes are the user's program: the first of them in a stack is told.
_PROGRAM: Final = ("framework", "other")
_SAMPLED: Final = [STATES.index(state) for state in SAMPLED]


def host_part(view: RankView, exposed: Mapping[int, Sequence[Exposed]]) -> HostPart | None:
    """Return what threads of a rank did in the exposed time of devices, stretches by device.

    None where no device was exposed.
    """
    if not any(exposed.values()):
        return None
    trace, steps = view.trace, view.steps
    places, threads = Places(view.marked, steps), ThreadStates(trace, view.host)
    sums = [
        _Sums(threads, places, device_id, some)
        for device_id, stretches in exposed.items()
        for some in stretches
    ]
    sampled = [
        np.empty((4, 0), dtype=np.int64),
        *(_samples(nth, of) for nth, of in enumerate(sums)),
    ]
    owner, group, state, row = np.concatenate(sampled, axis=1)
    stacks = _Stacks.of(trace, row)
    return HostPart(
        tuple(told for of in sums for told in of.rows()),
        tuple(_modules(sums, [owner, group, state], stacks)),
        tuple(_frames(trace, stacks, row, group % len(PARTS) * len(STATES) + state)),
        threads.records.period_ns,
        0 if steps is None else int((~steps.warmup).sum()),
    )


class _Sums:
    """What one thread did in the exposed time of one device.

    Attributes:
        samples: Periodic ones in CUDA calls and where the thread ran, each of shape (3, samples):
            group, state, row in the table.
    """

    def __init__(
        self, threads: ThreadStates, places: Places, device_id: int, exposed: Exposed
    ) -> None:
        self._threads, self._places, self._device_id = threads, places, device_id
        thread, records = threads.thread(exposed), threads.records
        self._tid, self._sample = thread & THREAD_BITS, records.samples(thread)
        self._has_switches = records.moves(thread)[0].size > 0
        self._places_n = len(places.names) * len(PARTS)
        self._time_ns, self._on_core_ns = Counter[int](), Counter[int]()
        self.samples = list[IntArray]()
        spans = np.column_stack((exposed.start_ns, exposed.end_ns))
        moved_ns, place = places.line(thread, spans)
        edges = np.sort(np.append(moved_ns, records.edges_ns(thread)), kind="stable")
        for rows in small_blocks(exposed.start_ns.size):
            block = exposed.take(rows, exposed.thread)
            low, high = np.searchsorted(edges, (block.start_ns[0], block.end_ns[-1]))
            pieces = threads.pieces(block, edges[low:high])
            at = np.searchsorted(moved_ns, pieces.start_ns, side="right") - 1
            self._add(pieces, pieces.cause * self._places_n + place[at])

    def _add(self, pieces: StatePieces, group: IntArray) -> None:
        details_n, time_ns = self._threads.states.size, pieces.end_ns - pieces.start_ns
        used, code = distinct_codes((group * details_n + pieces.detail) * details_n + pieces.doing)
        for sums, ns in (self._time_ns, time_ns), (self._on_core_ns, time_ns * pieces.runs):
            added = exact_sums(code, ns, used.size)
            sums.update(dict(zip(used.tolist(), added.tolist(), strict=True)))
        if not group.size:
            return
        at_ns, row = self._sample
        low, high = np.searchsorted(at_ns, (pieces.start_ns[0], pieces.end_ns[-1]))
        at_ns, row = at_ns[low:high], row[low:high]
        piece = np.searchsorted(pieces.start_ns, at_ns, side="right") - 1
        state = self._threads.states[pieces.detail[piece]]
        kept = (at_ns < pieces.end_ns[piece]) & np.isin(state, _SAMPLED)
        self.samples.append(np.stack((group[piece[kept]], state[kept], row[kept])))

    def where(self, group: int) -> tuple[int, int, str, str, str | None]:
        """Return device, thread, cause, part and range of a group."""
        cause, place = divmod(group, self._places_n)
        return self._device_id, self._tid, CAUSE_NAMES[cause], *self._places.named(place)

    def rows(self) -> Iterator[HostState]:
        """Yield the sums."""
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
            yield HostState(
                *self.where(group),
                *self._threads.state(detail),
                ns,
                on_core_ns[of] if self._has_switches else None,
                *longest.get(of, (None, 0)),
            )


def _samples(nth: int, sums: _Sums) -> IntArray:
    """Return the samples of the nth sums, with this number first."""
    found = np.concatenate([np.empty((3, 0), dtype=np.int64), *sums.samples], axis=1)
    return np.vstack((np.full(found.shape[1], nth), found))


@dataclass(frozen=True)
class _Stacks:
    """The stacks of some samples; arrays of shape (frames,), innermost frame of each first.

    Attributes:
        sample: Position of the sample, ascending; samples without a frame have none.
        first: Whether it is the innermost frame that is recorded of its sample.
        module: Class of its file, position in `module_classes`.
        frames: Their rows.
        collects: Whether the function is one of Python's garbage collection.
    """

    sample: IntArray
    first: npt.NDArray[np.bool_]
    module: IntArray
    frames: Table
    collects: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, trace: RankTrace, rows: IntArray) -> _Stacks:
        """Return the stacks of samples by their rows in the table, shape (samples,)."""
        none = Table.empty(("id", "depth", "module_id", "symbol_id"))
        frames = trace.tables.get("sample_frames", none)
        ids = frames["id"]
        order = np.argsort(ids, kind="stable") if (ids[1:] < ids[:-1]).any() else None
        ids = ids if order is None else ids[order]
        wanted = trace.tables["cpu_samples"]["id"][rows] if rows.size else rows
        first = np.searchsorted(ids, wanted, side="left")
        frames_n = np.searchsorted(ids, wanted, side="right") - first
        sample = np.repeat(np.arange(rows.size), frames_n)
        at = first[sample] + position_in_group(sample)
        frames = frames.take(at if order is None else order[at])
        depth = frames["depth"]
        if ((depth[1:] <= depth[:-1]) & (sample[1:] == sample[:-1])).any():
            frames = frames.take(np.lexsort((depth, sample)))
        names = module_classes()

        def known(column: str, of: Callable[[str], int]) -> IntArray:
            return replaced(
                frames[column],
                lambda used: np.array([of(trace.strings.get(key, "")) for key in used.tolist()]),
            )

        module = known("module_id", lambda path: names.index(module_class(path)))
        collects = known("symbol_id", collects_garbage) > 0
        return cls(sample, begins_group(sample), module, frames, collects)


def _modules(
    sums: Sequence[_Sums], columns: Sequence[IntArray], stacks: _Stacks
) -> Iterator[HostModule]:
    """Count samples by sums, group, state and class of the innermost frame."""
    classes, leaf = module_classes(), stacks.sample[stacks.first]
    module, collects = np.zeros((2, columns[0].size), dtype=np.int64)
    module[:] = classes.index(UNRESOLVED)
    module[leaf], collects[leaf] = stacks.module[stacks.first], stacks.collects[stacks.first]
    columns = [*columns, module]
    first, code = distinct_rows(columns)
    counts = (np.bincount(code, some, first.size).astype(int) for some in (None, collects))
    rows = np.stack((*(column[first] for column in columns), *counts), axis=1)
    for nth, group, state, of, n, collecting_n in rows.tolist():
        yield HostModule(*sums[int(nth)].where(group), STATES[state], classes[of], n, collecting_n)


def _frames(
    trace: RankTrace, stacks: _Stacks, row: IntArray, where: IntArray
) -> Iterator[HostFrame]:
    """Yield the most frequent functions of samples, by their rows, in each part and state.

    Innermost frames, and the first ones of the program in stacks of more than one frame.

    Args:
        where: Shape (samples,), part and state as one number.
    """
    once = np.zeros(row.size, dtype=bool)
    once[np.unique(row, return_index=True)[1]] = True  # a thread may launch on several devices
    kept, where = once[stacks.sample], where[stacks.sample]
    deep = np.bincount(stacks.sample)[stacks.sample] > 1
    classes = module_classes()
    program = deep & np.isin(stacks.module, [classes.index(name) for name in _PROGRAM])
    program[program] = begins_group(stacks.sample[program])
    for kind, told, of in (
        ("leaf", stacks.first, stacks.first),
        ("program", program, deep & stacks.first),
    ):
        stacks_n, at = np.bincount(where[of & kept]), np.flatnonzero(told & kept)
        columns = [where, stacks.frames["symbol_id"], stacks.frames["module_id"], stacks.module]
        columns = [column[at] for column in columns]
        first, code = distinct_rows(columns)
        counts = Counter[tuple[int, str, str, str]]()
        for place, symbol, module, file_class, n in np.stack(
            (*(column[first] for column in columns), np.bincount(code)), axis=1
        ).tolist():
            function = text_of(symbol, trace.strings)
            if not function.startswith(("0x", "[")):  # an address, or no name
                # Folders may hold a user's name.
                file = text_of(module, trace.strings).rpartition("/")[2]
                counts[place, function, file, classes[file_class]] += n
        shown = Counter[int]()
        for (place, *name), n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            shown[place] += 1
            if stacks_n[place] >= LEAST_SAMPLES and shown[place] <= _MOST_FRAMES:
                part, state = divmod(place, len(STATES))
                whole = int(stacks_n[place])
                yield HostFrame(
                    PARTS[part], STATES[state], kind, name[0], name[1], name[2], n, whole
                )

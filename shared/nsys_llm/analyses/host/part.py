"""Reduces one rank's threads to what they did in exposed time: exact sums, and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.host.exposed import Exposed
from nsys_llm.analyses.host.places import PARTS, Places
from nsys_llm.analyses.host.states import NEVER_NS, STATES, THREAD_BITS, StatePieces, ThreadStates
from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.blocks import small_blocks
from nsys_llm.numeric.grouping import (
    begins_group,
    distinct_codes,
    distinct_rows,
    exact_sums,
    replaced,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.host_modules import UNRESOLVED, module_class, module_classes
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
    states, sampled = list[HostState](), [np.empty((6, 0), dtype=np.int64)]
    for device_id, stretches in exposed.items():
        for some in stretches:
            sums = _Sums(threads, places, device_id, some)
            states += sums.rows()
            sampled += sums.samples
    *groups, row = np.concatenate(sampled, axis=1)
    stacks = _Stacks.of(trace, row)
    return HostPart(
        tuple(states),
        tuple(_modules([*groups, stacks.leaf_classes(row.size)], places)),
        tuple(_frames(trace, stacks, row, groups[3] % len(PARTS), groups[4])),
        threads.records.period_ns,
        0 if steps is None else int((~steps.warmup).sum()),
    )


class _Sums:
    """What one thread did in the exposed time of one device.

    Attributes:
        samples: Periodic ones in CUDA calls and where the thread ran, each of shape (6, samples):
            device, thread, cause, place, state, row in the table.
    """

    def __init__(
        self, threads: ThreadStates, places: Places, device_id: int, exposed: Exposed
    ) -> None:
        self._threads, self._places, self._device_id = threads, places, device_id
        thread = threads.thread(exposed)
        self._tid = thread & THREAD_BITS
        self._sample_ns, self._sample = threads.records.samples(thread)
        self._has_switches = threads.records.known_from_ns(thread) != NEVER_NS
        self._places_n = len(places.names) * len(PARTS)
        self._time_ns, self._on_core_ns = Counter[int](), Counter[int]()
        self._waited_ns, self.samples = Counter[int](), list[IntArray]()
        spans = np.column_stack((exposed.start_ns, exposed.end_ns))
        moved_ns, place = places.line(thread, spans)
        for rows in small_blocks(exposed.start_ns.size):
            block = exposed.take(rows, exposed.thread)
            low, high = np.searchsorted(moved_ns, (block.start_ns[0], block.end_ns[-1]))
            pieces = threads.pieces(block, moved_ns[low:high])
            at = np.searchsorted(moved_ns, pieces.start_ns, side="right") - 1
            self._add(pieces, pieces.cause * self._places_n + place[at])

    def _add(self, pieces: StatePieces, group: IntArray) -> None:
        details_n, time_ns = self._threads.states.size, pieces.end_ns - pieces.start_ns
        key = group * details_n + pieces.detail
        _add_up(self._time_ns, key, time_ns)
        _add_up(self._on_core_ns, key[pieces.runs], time_ns[pieces.runs])
        # What a CUDA call waited in; of a call of the C library that is itself.
        held = np.flatnonzero((pieces.os_name >= 0) & (pieces.os_name != pieces.detail))
        _add_up(self._waited_ns, key[held] * details_n + pieces.os_name[held], time_ns[held])
        if not group.size:
            return
        low, high = np.searchsorted(self._sample_ns, (pieces.start_ns[0], pieces.end_ns[-1]))
        at_ns, row = self._sample_ns[low:high], self._sample[low:high]
        piece = np.searchsorted(pieces.start_ns, at_ns, side="right") - 1
        state = self._threads.states[pieces.detail[piece]]
        kept = (at_ns < pieces.end_ns[piece]) & np.isin(state, _SAMPLED)
        place = np.divmod(group[piece[kept]], self._places_n)
        whose = np.broadcast_to([[self._device_id], [self._tid]], (2, row[kept].size))
        self.samples.append(np.stack((*whose, *place, state[kept], row[kept])))

    def rows(self) -> Iterator[HostState]:
        """Yield the sums."""
        details_n = self._threads.states.size
        longest: dict[int, tuple[str, int]] = {}  # where most of a CUDA call was spent
        for pair, ns in sorted(self._waited_ns.items(), key=lambda item: (-item[1], item[0])):
            key, name = divmod(pair, details_n)
            longest.setdefault(key, (self._threads.functions[name], ns))
        for key, time_ns in sorted(self._time_ns.items()):
            group, detail = divmod(key, details_n)
            cause, place = divmod(group, self._places_n)
            yield HostState(
                self._device_id,
                self._tid,
                CAUSE_NAMES[cause],
                *self._places.named(place),
                *self._threads.state(detail),
                time_ns,
                self._on_core_ns[key] if self._has_switches else None,
                *longest.get(key, (None, 0)),
            )


def _add_up(sums: Counter[int], key: IntArray, values: IntArray) -> None:
    used, code = distinct_codes(key)
    added = exact_sums(code, values, used.size)
    sums.update(dict(zip(used.tolist(), added.tolist(), strict=True)))


def _modules(columns: Sequence[IntArray], places: Places) -> Iterator[HostModule]:
    """Count samples by device, thread, cause, place, state and class of the innermost frame."""
    first, code = distinct_rows(columns)
    counts, classes = np.bincount(code, minlength=first.size).tolist(), module_classes()
    groups = np.stack(columns, axis=1)[first].tolist()
    for (device_id, tid, cause, place, state, leaf), n in zip(groups, counts, strict=True):
        where = CAUSE_NAMES[cause], *places.named(place), STATES[state]
        yield HostModule(device_id, tid, *where, classes[leaf], n)


@dataclass(frozen=True)
class _Stacks:
    """The stacks of some samples; arrays of shape (frames,), innermost frame of each first.

    Attributes:
        sample: Position of the sample, ascending; samples without a frame have none.
        first: Whether it is the innermost frame that is recorded of its sample.
        module: Class of its file, position in `module_classes`.
        frames: Their rows.
    """

    sample: IntArray
    first: npt.NDArray[np.bool_]
    module: IntArray
    frames: Table

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
        at = np.arange(sample.size) - np.repeat(np.cumsum(frames_n) - frames_n - first, frames_n)
        frames = frames.take(at if order is None else order[at])
        depth = frames["depth"]
        if ((depth[1:] <= depth[:-1]) & (sample[1:] == sample[:-1])).any():
            frames = frames.take(np.lexsort((depth, sample)))
        names = module_classes()
        module = replaced(
            frames["module_id"],
            lambda used: np.array(
                [names.index(module_class(trace.strings.get(key, ""))) for key in used.tolist()],
                dtype=np.int64,
            ),
        )
        return cls(sample, begins_group(sample), module, frames)

    def leaf_classes(self, samples_n: int) -> IntArray:
        """Return the class of each sample, `unresolved` without a frame; shape (samples,)."""
        leaves = np.full(samples_n, module_classes().index(UNRESOLVED))
        leaves[self.sample[self.first]] = self.module[self.first]
        return leaves


def _frames(
    trace: RankTrace, stacks: _Stacks, row: IntArray, part: IntArray, state: IntArray
) -> Iterator[HostFrame]:
    """Yield the most frequent functions of samples, by their rows, in each part and state.

    Innermost frames, and the first ones of the program in stacks of more than one frame.
    """
    once = np.ones(row.size, dtype=bool)
    if (np.diff(row) <= 0).any():  # a thread may launch on several devices
        once[:] = False
        once[distinct_rows([row, part])[0]] = True
    deep = np.bincount(stacks.sample, minlength=row.size)[stacks.sample] > 1
    classes = [module_classes().index(name) for name in _PROGRAM]
    program = np.flatnonzero(deep & np.isin(stacks.module, classes))
    program = program[begins_group(stacks.sample[program])]
    kinds = {
        "leaf": (np.flatnonzero(stacks.first), stacks.first),
        "program": (program, deep & stacks.first),
    }
    for where in product(PARTS, SAMPLED):
        chosen = (part == PARTS.index(where[0])) & (state == STATES.index(where[1]))
        there = (once & chosen)[stacks.sample]
        for kind, (at, of) in kinds.items():
            if (stacks_n := int(np.count_nonzero(of & there))) < LEAST_SAMPLES:
                continue
            counts = _functions(stacks.frames.take(at[there[at]]), trace.strings)
            most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FRAMES]
            yield from (HostFrame(*where, kind, *names, n, stacks_n) for names, n in most)


def _functions(frames: Table, strings: Mapping[int, str]) -> Counter[tuple[str, str, str]]:
    """Count function, file and class of frames."""
    counts, columns = Counter[tuple[str, str, str]](), [frames["symbol_id"], frames["module_id"]]
    first, group = distinct_rows(columns)
    pairs = np.stack(columns, axis=1)[first].tolist()
    for (symbol, module), n in zip(pairs, np.bincount(group).tolist(), strict=True):
        function, path = text_of(symbol, strings), text_of(module, strings)
        if not function.startswith(("0x", "[")):  # an address, or no name
            # Folders may hold a user's name.
            file = path.rpartition("/")[2]
            counts[function, file, module_class(strings.get(module, ""))] += n
    return counts

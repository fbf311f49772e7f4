"""Reduces one rank's threads to what they did in exposed time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.host.exposed import Exposed
from nsys_llm.analyses.host.places import PARTS, Places
from nsys_llm.analyses.host.states import STATES, HostStates, ThreadStates
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import begins_group, distinct_codes, distinct_rows
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
_THREAD_BITS: Final = 0xFFFFFF
#: Frames of these classes are the user's program: the first of them in a stack is told.
_PROGRAM: Final = ("framework", "other")


def host_part(
    trace: RankTrace,
    host: HostTimeline,
    steps: Steps | None,
    exposed: Mapping[int, Sequence[Exposed]],
) -> HostPart | None:
    """Return what threads did in the exposed time of devices.

    Args:
        trace: The rank.
        host: Its calls.
        steps: Its steps.
        exposed: By device, stretches of each thread.

    Returns:
        None where no device was exposed.
    """
    if not any(exposed.values()):
        return None
    places, threads = Places(trace, steps), ThreadStates(trace, host)
    all_states = HostStates(threads, places)
    states: list[HostState] = []
    modules: list[HostModule] = []
    sampled = []
    for device_id, stretches in exposed.items():
        rows, (*columns, row) = all_states.of(device_id, stretches)
        states += rows
        leaves = Stacks.of(trace, row).leaf_classes(row.size)
        modules += _modules(device_id, [*columns, leaves], places)
        sampled.append(np.stack((row, columns[2] % len(PARTS), columns[3])))
    repeats = None if steps is None else int((~steps.warmup).sum())
    return HostPart(
        tuple(states),
        tuple(modules),
        _frames(trace, *np.unique(np.concatenate(sampled, axis=1), axis=1)),
        threads.records.period_ns,
        repeats or 0,
    )


def _modules(device_id: int, columns: Sequence[IntArray], places: Places) -> list[HostModule]:
    first, code = distinct_rows(columns)
    counts, classes = np.bincount(code, minlength=first.size).tolist(), module_classes()
    return [
        HostModule(
            device_id=device_id,
            tid=thread & _THREAD_BITS,
            cause=CAUSE_NAMES[cause],
            part=places.named(place)[0],
            range=places.named(place)[1],
            state=STATES[state],
            module_class=classes[leaf],
            samples_n=n,
        )
        for (thread, cause, place, state, leaf), n in zip(
            np.stack(columns, axis=1)[first].tolist(), counts, strict=True
        )
    ]


def _frames(
    trace: RankTrace, rows: IntArray, part: IntArray, state: IntArray
) -> tuple[HostFrame, ...]:
    """Return the most frequent functions of samples, by their rows, in each part and state."""
    stacks, classes, frames = Stacks.of(trace, rows), module_classes(), list[HostFrame]()
    for where in product(PARTS, SAMPLED):
        chosen = (part == PARTS.index(where[0])) & (state == STATES.index(where[1]))
        for kind, (at, stacks_n) in stacks.frames(chosen).items():
            if stacks_n < LEAST_SAMPLES:
                continue
            columns = [stacks.symbol_id[at], stacks.module_id[at], stacks.module[at]]
            first, group = distinct_rows(columns)
            counts: Counter[tuple[str, str, str]] = Counter()
            for row, n in zip(at[first].tolist(), np.bincount(group).tolist(), strict=True):
                symbol, module = int(stacks.symbol_id[row]), int(stacks.module_id[row])
                function, path = text_of(symbol, trace.strings), text_of(module, trace.strings)
                if not function.startswith(("0x", "[")):  # an address, or no name
                    # Folders may hold a user's name.
                    file = path.rpartition("/")[2]
                    counts[function, file, classes[stacks.module[row]]] += n
            most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FRAMES]
            frames += [HostFrame(*where, kind, *names, n, stacks_n) for names, n in most]
    return tuple(frames)


@dataclass(frozen=True)
class Stacks:
    """The stacks of some samples; arrays of shape (frames,), innermost frame of each first.

    Attributes:
        sample: Position of the sample, ascending; samples without a frame have none.
        first: Whether it is the innermost frame that is recorded of its sample.
        module: Class of its file, position in `module_classes`.
        symbol_id: Id of the function's name.
        module_id: Id of the file's name.
    """

    sample: IntArray
    first: npt.NDArray[np.bool_]
    module: IntArray
    symbol_id: IntArray
    module_id: IntArray

    @classmethod
    def of(cls, trace: RankTrace, rows: IntArray) -> Stacks:
        """Return the stacks of samples by their rows in the table, shape (samples,)."""
        frames, samples = trace.tables.get("sample_frames"), trace.tables["cpu_samples"]
        if frames is None or not len(frames) or not rows.size:
            none = np.empty(0, dtype=np.int64)
            return cls(none, none.astype(bool), none, none, none)
        ids, order = frames["id"], None
        if (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
        wanted = samples["id"][rows]
        first = np.searchsorted(ids, wanted, side="left")
        frames_n = np.searchsorted(ids, wanted, side="right") - first
        sample = np.repeat(np.arange(rows.size), frames_n)
        nth = np.arange(sample.size) - np.repeat(np.cumsum(frames_n) - frames_n, frames_n)
        at = first[sample] + nth
        at = at if order is None else order[at]
        in_stack = np.lexsort((frames["depth"][at], sample))
        at = at[in_stack]
        return cls(
            sample,
            begins_group(sample),
            _classes(frames, at, trace.strings),
            frames["symbol_id"][at],
            frames["module_id"][at],
        )

    def leaf_classes(self, samples_n: int) -> IntArray:
        """Return the class of each sample, `unresolved` without a frame; shape (samples,)."""
        leaves = np.full(samples_n, module_classes().index(UNRESOLVED))
        leaves[self.sample[self.first]] = self.module[self.first]
        return leaves

    def frames(self, chosen: npt.NDArray[np.bool_]) -> dict[str, tuple[IntArray, int]]:
        """Return the frames that are told of some samples, and of how many samples they are.

        The innermost frames of all, and the first ones of the program in stacks that have more than
        one frame.

        Args:
            chosen: Shape (samples,).
        """
        there = chosen[self.sample] if self.sample.size else self.first
        leaves = np.flatnonzero(self.first & there)
        deep = there & (np.bincount(self.sample, minlength=1)[self.sample] > 1)
        classes = [module_classes().index(name) for name in _PROGRAM]
        program = np.flatnonzero(deep & np.isin(self.module, classes))
        program = program[begins_group(self.sample[program])]
        stacks_n = int(np.count_nonzero(deep & self.first))
        return {"leaf": (leaves, leaves.size), "program": (program, stacks_n)}


def _classes(frames: Table, at: IntArray, strings: Mapping[int, str]) -> IntArray:
    """Return the class of the file of each of some frames."""
    names = module_classes()
    ids, code = distinct_codes(frames["module_id"][at])
    of_id = [
        names.index(UNRESOLVED if key == NULL_INT else module_class(strings.get(key, "")))
        for key in ids.tolist()
    ]
    return np.array(of_id, dtype=np.int64)[code]

"""Reduces one rank's threads to what they did in exposed time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.analyses.device.host_timeline import HostTimeline
from nsys_llm.analyses.host.exposed import Exposed
from nsys_llm.analyses.host.places import PARTS, Places
from nsys_llm.analyses.host.samples import Stacks, file_name, function_name
from nsys_llm.analyses.host.states import (
    STATES,
    HostStates,
    ThreadStates,
)
from nsys_llm.analyses.steps.steps import Steps
from nsys_llm.numeric.grouping import distinct_rows
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.host_modules import module_classes
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES
from nsys_llm.trace.host_part import LEAST_SAMPLES, HostFrame, HostModule, HostPart, HostState
from nsys_llm.trace.rank_trace import RankTrace

#: Frames that are told, of each kind.
_MOST_FRAMES: Final = 20
_THREAD_BITS: Final = 0xFFFFFF


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
        sampled.append(np.stack((row, columns[2] % len(PARTS))))
    repeats = None if steps is None else int((~steps.warmup).sum())
    return HostPart(
        tuple(states),
        tuple(modules),
        _frames(trace, *np.unique(np.concatenate(sampled, axis=1), axis=1)),
        threads.records.period_ns,
        repeats or 0,
        None if steps is None else steps.name,
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


def _frames(trace: RankTrace, rows: IntArray, part: IntArray) -> tuple[HostFrame, ...]:
    """Return the most frequent functions of samples, by their rows in the table, in each part."""
    stacks, classes, frames = Stacks.of(trace, rows), module_classes(), list[HostFrame]()
    for code, name in enumerate(PARTS):
        for kind, (at, stacks_n) in stacks.frames(part == code).items():
            if stacks_n < LEAST_SAMPLES:
                continue
            columns = [stacks.symbol_id[at], stacks.module_id[at], stacks.module[at]]
            first, group = distinct_rows(columns)
            counts: Counter[tuple[str, str, str]] = Counter()
            for row, n in zip(at[first].tolist(), np.bincount(group).tolist(), strict=True):
                function = function_name(int(stacks.symbol_id[row]), trace.strings)
                if function is not None:
                    file = file_name(int(stacks.module_id[row]), trace.strings)
                    counts[function, file, classes[stacks.module[row]]] += n
            most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_FRAMES]
            frames += [HostFrame(name, kind, *names, n, stacks_n) for names, n in most]
    return tuple(frames)

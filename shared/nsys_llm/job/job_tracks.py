"""What is known of a rank only beside others, as lines: collectives, and the critical path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nsys_llm.job.collectives.job_clock import JobClock
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.timeline import Track


def collective_tracks(clock: JobClock, rank: Rank) -> Iterator[Track]:
    """Return a line for each device: when it waits for the last rank, and when it transfers."""
    for device in clock.collectives.devices:
        if device.rank.key != rank.key:
            continue
        spans = clock.communication(rank.key, device.device_id)
        name = np.repeat(np.arange(len(spans)), [len(span) for span in spans.values()])
        times = np.concatenate([*spans.values()])
        texts = (*spans,)
        yield Track.plain(f"GPU {device.device_id} collectives", "collective", times, texts, name)


def path_tracks(clock: JobClock, rank: Rank, path: Sequence[Mapping[str, Any]]) -> Iterator[Track]:
    """Return a line for the host and each device, of the rows `path` of step_budget where any."""
    # A step that is the median and the worst has two paths, which are the same.
    which = {row["step"]: row["which"] for row in path}
    here = [row for row in path if row["file"] == rank.file and row["which"] == which[row["step"]]]
    for device in dict.fromkeys(sorted({row["device_id"] for row in here}, key=str)):
        rows = [row for row in here if row["device_id"] == device]
        # Both edges on the job's clock: however a clock drifts, what follows begins where it ends.
        times = [[clock.own_ns(rank, row[edge]) for edge in ("start_ns", "end_ns")] for row in rows]
        texts = (*sorted({row["class"] for row in rows}),)
        yield Track.plain(
            "critical path, host" if device is None else f"GPU {device} critical path",
            "path",
            np.array(times, dtype=np.int64),
            texts,
            np.array([texts.index(row["class"]) for row in rows], dtype=np.int64),
            {
                "activity": [row["activity"] or None for row in rows],
                "edge": [row["edge"] for row in rows],
                "certain": [str(row["certain"]).lower() for row in rows],
                "step": [row["step"] for row in rows],
                "duration_ns": [row["duration_ns"] for row in rows],
            },
        )

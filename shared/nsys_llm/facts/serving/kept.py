"""Batches of one serving rank, and what their steps take. Integers and strings, which merge exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nsys_llm.facts.steps.batches import Batches
from nsys_llm.facts.steps.step_times import StepTimes
from nsys_llm.numeric.intervals import IntArray


@dataclass(frozen=True)
class ServedSteps:
    """The steps of one rank whose engine's format is known.

    Attributes:
        name: What they share.
        graph: Shape (steps,), the CUDA graph that each replays, of several the one that takes
            longest; -1 for none.
        graph_size: Rows that it was captured for; -1 where that is not known.
        host_idle_ns: Shape (steps,), idle time by host causes in steps with context and without a
            graph; 0 in others.
        draft_busy_ns: Shape (drafts,), how long what each draft launched ran; None without any.
        before_ns: Idle time before first operations of steps, in ns, by range.
    """

    name: str
    batches: Batches
    times: StepTimes
    graph: IntArray
    graph_size: IntArray
    host_idle_ns: IntArray
    draft_busy_ns: IntArray | None
    before_ns: Mapping[str, int]


@dataclass(frozen=True)
class RankServing:
    """One rank.

    Attributes:
        device_id: The first of its CUDA devices.
        served: None without a step of a known format.
    """

    kernels_of: str
    device_id: int
    served: ServedSteps | None = None

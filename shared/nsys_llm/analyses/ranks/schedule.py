"""How long a step of a pipeline takes for what its stages compute: what a change gains. Pure.

A stage computes one microbatch after the other in the order of its schedule: forward once the stage
before it has sent, backward once the one behind it has. Either all go forward first, or each comes
back as soon as it can (1F1B). What a slow stage costs depends on that: with 1F1B the first stage
goes on while the pipeline fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Part of a microbatch's time that goes forward: a matrix product has two backward.
_FORWARD: Final = 1 / 3

#: Microbatch, and whether it goes forward.
_Pass = tuple[int, bool]


@dataclass(frozen=True)
class Schedule:
    """How the stages of a pipeline take turns.

    Attributes:
        microbatches_n: Of a step.
        transfer_ns: From one stage to the next.
        forward_first: Whether all go forward before the first comes back.
    """

    microbatches_n: int
    transfer_ns: float
    forward_first: bool

    def step_ns(self, compute_ns: Sequence[float]) -> float:
        """Return how long a step takes.

        Args:
            compute_ns: Of each stage in a step, the first one first.
        """
        stages_n = len(compute_ns)
        passes = [self._passes(stages_n - 1 - stage) for stage in range(stages_n)]
        each_ns = [time_ns / self.microbatches_n for time_ns in compute_ns]
        done: list[dict[_Pass, float]] = [{} for _ in compute_ns]
        now_ns = [0.0] * stages_n
        while any(len(ends) < len(order) for ends, order in zip(done, passes, strict=True)):
            for stage, order in enumerate(passes):
                while len(done[stage]) < len(order):
                    item = order[len(done[stage])]
                    before = stage + (-1 if item[1] else 1)
                    if 0 <= before < stages_n:
                        if item not in done[before]:
                            break
                        ready_ns = done[before][item] + self.transfer_ns
                        now_ns[stage] = max(now_ns[stage], ready_ns)
                    share = _FORWARD if item[1] else 1 - _FORWARD
                    now_ns[stage] += share * each_ns[stage]
                    done[stage][item] = now_ns[stage]
        return max(now_ns)

    def _passes(self, behind_n: int) -> list[_Pass]:
        """Return what a stage computes in a step, with so many stages behind it."""
        n = self.microbatches_n
        ahead_n = n if self.forward_first else min(behind_n, n)
        passes = [(number, True) for number in range(ahead_n)]
        for number in range(n - ahead_n):
            passes += [(ahead_n + number, True), (number, False)]
        return passes + [(number, False) for number in range(n - ahead_n, n)]


@dataclass(frozen=True)
class Line:
    """The stages of one pipeline, the first one first.

    Attributes:
        stages: GPUs of each, by position.
        schedule: How they take turns; None where nothing tells.
        steps_n: Steps of the run.
    """

    stages: Sequence[Sequence[int]]
    schedule: Schedule | None
    steps_n: float

    def gain_ns(self, now_ns: Sequence[float], then_ns: Sequence[float]) -> float:
        """Return what a run gains where its stages compute for another time each, ns."""
        if self.schedule is None:
            return max(now_ns) - max(then_ns)
        now, then = (
            self.schedule.step_ns([time_ns / self.steps_n for time_ns in some])
            for some in (now_ns, then_ns)
        )
        return self.steps_n * (now - then)

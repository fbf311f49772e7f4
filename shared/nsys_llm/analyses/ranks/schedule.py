"""How long a pipeline takes for what its stages compute: what a change of one gains. Pure.

A stage computes one microbatch after the other, each forward once the stage before it has sent, and
backward once the one behind it has. What a slow stage costs depends on whether all go forward first
or each comes back as soon as it can (1F1B): then the first stage goes on while the pipeline fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.analyses.collectives.chains import GPIPE, INTERLEAVED, Chain

#: Part of a microbatch's time that goes forward: a matrix product has two backward.
_FORWARD: Final = 1 / 3

#: Number of a microbatch, and whether it goes forward.
_Pass = tuple[int, bool]


@dataclass(frozen=True)
class Line(Chain):
    """One pipeline, of positions of GPUs.

    Attributes:
        transfer_ns: From one stage to the next, summed over the steps of the run.
    """

    transfer_ns: float = 0.0

    def run_ns(self, compute_ns: Sequence[float]) -> float:
        """Return how long a run takes in which the stages compute for so long each."""
        n, stages_n = self.messages_n, len(compute_ns)
        if n is None:
            return max(compute_ns)
        behind_n = range(stages_n - 1, -1, -1)
        orders = [_passes(n, self._ahead_n(n, later_n, stages_n)) for later_n in behind_n]
        ends: list[dict[_Pass, float]] = [{} for _ in compute_ns]
        now_ns = [0.0] * stages_n
        while any(orders):
            for stage, order in enumerate(orders):
                while order:
                    _, forward = item = order[0]
                    sender = stage + (-1 if forward else 1)
                    if 0 <= sender < stages_n:
                        if item not in ends[sender]:
                            break
                        now_ns[stage] = max(now_ns[stage], ends[sender][item] + self.transfer_ns)
                    now_ns[stage] += (_FORWARD if forward else 1 - _FORWARD) * compute_ns[stage] / n
                    ends[stage][order.pop(0)] = now_ns[stage]
        return max(now_ns)

    def _ahead_n(self, n: int, later_n: int, stages_n: int) -> int:
        """Return how many go forward on a stage, of so many later ones, before the first is back.

        Of interleaved stages as in Megatron's schedule of two chunks.
        """
        return {GPIPE: n, INTERLEAVED: 2 * later_n + stages_n}.get(str(self.kind), later_n)


def _passes(n: int, ahead_n: int) -> list[_Pass]:
    """Return the order in which a stage computes n microbatches, so many of them ahead."""
    passes = [(number, forward) for number in range(n) for forward in (True, False)]
    return sorted(passes, key=lambda item: (item[0] + (0 if item[1] else ahead_n), not item[1]))

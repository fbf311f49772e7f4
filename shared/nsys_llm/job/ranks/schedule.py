"""How long a pipeline takes for what its stages compute: what a change of one gains. Pure.

A stage computes one microbatch after the other, each forward once the stage before it has sent, and
backward once the one behind it has. What a slow stage costs depends on whether all go forward first
or each comes back as soon as it can (1F1B): then the first stage goes on while the pipeline fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsys_llm.job.collectives.chains import GPIPE, INTERLEAVED

#: Part of a microbatch's time that goes forward: a matrix product has two backward.
_FORWARD: Final = 1 / 3


@dataclass(frozen=True)
class Line:
    """One pipeline, see `Chain`.

    Attributes:
        stages: Positions of the GPUs of each stage.
        transfer_ns: From one stage to the next, summed over the steps of the run.
    """

    stages: tuple[tuple[int, ...], ...]
    messages_n: int | None
    kind: str | None
    transfer_ns: float

    def run_ns(self, compute_ns: Sequence[float]) -> float:
        """Return how long a run takes in which the stages compute for so long each."""
        n, stages_n = self.messages_n, len(compute_ns)
        if n is None:
            return max(compute_ns)
        orders = []
        for later_n in reversed(range(stages_n)):
            # So many go forward before the first is back; of interleaved stages as in Megatron's
            # schedule of two chunks.
            ahead_n = {GPIPE: n, INTERLEAVED: 2 * later_n + stages_n}.get(str(self.kind), later_n)
            passes = [(at + back * ahead_n, back, at) for at in range(n) for back in (False, True)]
            orders.append(sorted(passes))
        ends: list[dict[tuple[bool, int], float]] = [{} for _ in compute_ns]
        now_ns = [0.0] * stages_n
        while any(orders):
            for stage, order in enumerate(orders):
                while order:
                    _, back, number = order[0]
                    sender = stage + (1 if back else -1)
                    if 0 <= sender < stages_n:
                        if (back, number) not in ends[sender]:
                            break
                        sent_ns = ends[sender][back, number] + self.transfer_ns
                        now_ns[stage] = max(now_ns[stage], sent_ns)
                    now_ns[stage] += (1 - _FORWARD if back else _FORWARD) * compute_ns[stage] / n
                    ends[stage][back, number] = now_ns[stage]
                    del order[0]
        return max(now_ns)

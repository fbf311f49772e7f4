"""What one rank computes between the exchanges of tokens: experts, and all else.

With experts on several ranks, tokens go to their experts and come back. The rank whose experts got
most tokens comes last to the exchange after them, another one each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.numeric.grouping import distinct_codes, joined
from nsys_llm.numeric.intervals import IntArray, covered_ns, union_intervals
from nsys_llm.taxonomy.categories import detect_engine, load_rules
from nsys_llm.taxonomy.communication import SEND_RECV

#: Operations that carry tokens to experts and back; NCCL's all-to-all sends and receives.
EXCHANGES: Final = ("dispatch", "combine", "all_to_all", SEND_RECV)
_EXPERTS: Final = "moe"
_TIMES: Final = ("start_ns", "end_ns")


@dataclass(frozen=True)
class ExpertWork:
    """The exchanges of one device, in order of their ends; arrays of shape (exchanges,).

    Attributes:
        device_id: CUDA device id.
        end_ns: The profile's clock.
        since_ns: Time of expert kernels from the begin of the exchange before to its begin.
        compute_ns: Shape (2, exchanges), compute time of the device before its begin and its end.
        expert_ns: Likewise, time of expert kernels.
    """

    device_id: int
    end_ns: IntArray
    since_ns: IntArray
    compute_ns: IntArray
    expert_ns: IntArray

    def rows(self, end_ns: IntArray) -> IntArray:
        """Return the exchanges that end at some instants."""
        return np.minimum(np.searchsorted(self.end_ns, end_ns), self.end_ns.size - 1)


def map_experts(view: RankView) -> tuple[ExpertWork, ...]:
    """Return the exchanges of the devices of one rank that run expert kernels."""
    lanes = [lane for lane in view.collectives if lane.operation in EXCHANGES]
    exchanges = [lane for lane in lanes if lane.start_ns.size]
    if not exchanges:
        return ()
    kernels = view.trace.unfiltered["kernels"]
    used, code = distinct_codes(kernels["demangled_name_id"])
    names = [view.trace.strings.get(key, "") for key in used.tolist()]
    rules = load_rules(detect_engine(set(names)))
    of_experts = np.array([rules.classify(name).category == _EXPERTS for name in names], dtype=bool)
    if not of_experts.any():
        return ()
    layers = {some.device_id: some for some in view.wall_layers[1]}
    work = []
    for device_id in sorted({lane.device_id for lane in exchanges}):
        rows = np.flatnonzero(of_experts[code] & (kernels["device_id"] == device_id))
        here = [lane for lane in exchanges if lane.device_id == device_id]
        start_ns, end_ns = (joined([getattr(lane, name) for lane in here]) for name in _TIMES)
        in_order = np.argsort(start_ns, kind="stable")
        at_ns = np.stack((start_ns[in_order], end_ns[in_order]))
        experts = union_intervals(kernels["start_ns"][rows], kernels["end_ns"][rows])
        expert_ns, compute_ns = (
            np.stack([covered_ns(side, spans) for side in at_ns])
            for spans in (experts, layers[device_id].compute)
        )
        since_ns = np.diff(expert_ns[0], prepend=0)
        order = np.argsort(at_ns[1], kind="stable")
        work.append(
            ExpertWork(
                device_id,
                at_ns[1][order],
                since_ns[order],
                compute_ns[:, order],
                expert_ns[:, order],
            )
        )
    return tuple(work)

"""Expert products of one rank between the exchanges of tokens: what makes a rank come late there.

With experts on several ranks, tokens go to their experts and come back. The rank whose experts got
most tokens comes last to the exchange after them, another one each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.lanes import LaneRows
from nsys_llm.numeric.grouping import distinct_codes, joined
from nsys_llm.numeric.intervals import IntArray, covered_ns, union_intervals
from nsys_llm.taxonomy.categories import detect_engine, load_rules
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.trace.rank_trace import RankTrace

#: Operations that carry tokens to experts and back; NCCL's all-to-all sends and receives.
EXCHANGES: Final = ("dispatch", "combine", "all_to_all", SEND_RECV)
_EXPERTS: Final = "moe"


@dataclass(frozen=True)
class ExpertWork:
    """The exchanges of one device, in order of their starts.

    Attributes:
        start_ns: Shape (exchanges,), distinct, the report's clock.
        moe_ns: Shape (exchanges,), time of expert kernels since the exchange before.
    """

    device_id: int
    start_ns: IntArray
    moe_ns: IntArray

    def at(self, start_ns: IntArray) -> IntArray:
        """Return `moe_ns` of exchanges that begin at some instants."""
        place = np.searchsorted(self.start_ns, start_ns)
        return self.moe_ns[np.minimum(place, self.start_ns.size - 1)]


def map_experts(trace: RankTrace, lanes: Sequence[LaneRows]) -> tuple[ExpertWork, ...]:
    """Return the exchanges of the devices of one rank that run expert kernels."""
    exchanges = [lane for lane in lanes if lane.operation in EXCHANGES and lane.start_ns.size]
    if not exchanges:
        return ()
    kernels = trace.unfiltered["kernels"]
    used, code = distinct_codes(kernels["demangled_name_id"])
    names = [trace.strings.get(key, "") for key in used.tolist()]
    rules = load_rules(detect_engine(set(names)))
    of_experts = np.array([rules.classify(name).category == _EXPERTS for name in names], dtype=bool)
    work = []
    for device_id in sorted({lane.device_id for lane in exchanges}) if of_experts.any() else ():
        rows = np.flatnonzero(of_experts[code] & (kernels["device_id"] == device_id))
        here = [lane.start_ns for lane in exchanges if lane.device_id == device_id]
        at_ns = np.unique(joined(here))
        spans = union_intervals(kernels["start_ns"][rows], kernels["end_ns"][rows])
        work.append(ExpertWork(device_id, at_ns, np.diff(covered_ns(at_ns, spans), prepend=0)))
    return tuple(work)

"""How much earlier exchanges of tokens would begin if each rank's experts had as much to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from nsys_llm.analyses.collectives.matched import MatchedCollectives, Sequenced
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.trace.identity import RankKey

from ..per_rank.experts import EXCHANGES, ExpertWork

#: Where no exchange is known.
NO_EXPERTS: Final[Mapping[str, int | None]] = {"uneven_n": None, "uneven_ns": None}


def uneven_experts(
    sequence: Sequenced,
    collectives: MatchedCollectives,
    experts: Mapping[RankKey, Sequence[ExpertWork]],
) -> Mapping[str, int | None]:
    """Return how many exchanges of a sequence uneven experts delay, and the sum of the delays.

    Evened, a rank comes when the mean one does. Those count before which the expert kernels of the
    last rank, beyond the mean of all, explain half of how late it is beyond the mean arrival.

    Args:
        sequence: Matched collectives.
        collectives: All of them.
        experts: Of each rank, by its devices.
    """
    ranks_n = len(sequence.owners)
    if sequence.operation not in EXCHANGES or (sequence.operation == SEND_RECV and ranks_n < 3):
        return NO_EXPERTS
    work = []
    for owner, start_ns, ahead_ns in zip(
        sequence.owners, sequence.start_ns, sequence.ahead_ns, strict=True
    ):
        device = collectives.devices[owner]
        of_rank = {some.device_id: some for some in experts.get(device.rank.key, ())}
        if device.device_id not in of_rank:
            return NO_EXPERTS
        work.append(of_rank[device.device_id].at(start_ns + ahead_ns))
    met = sequence.waits.met
    moe_ns, start_ns = np.stack(work)[:, met], np.stack(sequence.start_ns)[:, met]
    # Of a collective's own first arrival: sums of instants would outgrow 64 bits.
    since_ns = start_ns - start_ns.min(axis=0) if start_ns.size else start_ns
    last = since_ns.argmax(axis=0)[None]
    late_ns, more_ns = (
        ranks_n * np.take_along_axis(some, last, axis=0)[0] - some.sum(axis=0)
        for some in (since_ns, moe_ns)
    )
    uneven = (late_ns > 0) & (2 * more_ns >= late_ns)
    return {"uneven_n": int(uneven.sum()), "uneven_ns": int(late_ns[uneven].sum()) // ranks_n}

"""Waiting and transfer in collectives, and who made whom wait. Pure numpy, exact integers.

    rank 0  |-----wait-----|-transfer-|end|
    rank 1        |--wait--|-transfer-|
    rank 2  (late)         |-transfer-|--end--|

Nothing moves before the last rank has come, so what the others spend until then is waiting, and the
last one caused all of it. From then until the first one leaves, all of them transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.numeric.intervals import IntArray

#: Who came last is sure beyond so many times the residual of the clocks, and so long.
_RESIDUALS: Final = 3
_LEAST_NS: Final = 1_000

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Waits:
    """Collectives of one communicator; all of shape (collectives,), int64 ns of one clock.

    Attributes:
        total_ns: Time in the kernel, summed over the ranks.
        wait_ns: Summed over the ranks, time until the last one comes; meaningless where not `met`.
        late: Position of the last rank to come; of several, the first of them.
        met: Whether there is an instant at which all ranks are in it.
    """

    first_start_ns: IntArray
    last_start_ns: IntArray
    second_last_start_ns: IntArray
    first_end_ns: IntArray
    last_end_ns: IntArray
    total_ns: IntArray
    wait_ns: IntArray
    late: IntArray
    late_n: IntArray
    met: _Bools

    @property
    def late_by_ns(self) -> IntArray:
        """How much sooner it would have begun without the last rank's delay."""
        return self.last_start_ns - self.second_last_start_ns

    @property
    def transfer_ns(self) -> IntArray:
        """Time in which all ranks are in it, once."""
        return np.maximum(self.first_end_ns - self.last_start_ns, 0)


@dataclass(frozen=True)
class MemberWaits:
    """One rank in the collectives of its communicator, those that are met only.

    Attributes:
        late_n: How often it was last and the clocks can tell.
        unclear_n: How often it was last, but by no more than the clocks can tell.
        caused_ns: Waiting of all the others because of it. Where several ranks come last together,
            they share it; an odd nanosecond goes to the first of them.
        late_by_ns: By how much it was later than the one before it where it was last.
    """

    late_n: int
    unclear_n: int
    caused_ns: int
    late_by_ns: int
    suffered_ns: int


def sure_ns(residual_ns: IntArray | int) -> IntArray:
    """Return by how much one has to be later than another to be the later one for sure.

    Args:
        residual_ns: By how much the clocks may be wrong.
    """
    return np.asarray(np.maximum(_RESIDUALS * np.asarray(residual_ns), _LEAST_NS))


def collective_waits(start_ns: Sequence[IntArray], end_ns: Sequence[IntArray]) -> Waits:
    """Return what the ranks of a communicator spend in each of its collectives on what.

    Args:
        start_ns: For each rank (at least two), when it comes; shape (collectives,), one clock.
    """
    first_start, last_start = start_ns[0].copy(), start_ns[0].copy()
    # Below every start, so that the first comparison replaces it.
    second = np.full_like(last_start, np.iinfo(np.int64).min)
    first_end, last_end = end_ns[0].copy(), end_ns[0].copy()
    late, late_n = np.zeros_like(last_start), np.ones_like(last_start)
    # Sums of differences: instants of a thousand ranks would outgrow 64 bits.
    behind, total = np.zeros_like(last_start), end_ns[0] - start_ns[0]
    for place, (start, end) in enumerate(zip(start_ns[1:], end_ns[1:], strict=True), start=1):
        second = np.maximum(second, np.minimum(last_start, start))
        late[start > last_start] = place
        late_n = np.where(start > last_start, 1, late_n + (start == last_start))
        np.maximum(last_start, start, out=last_start)
        np.minimum(first_start, start, out=first_start)
        np.minimum(first_end, end, out=first_end)
        np.maximum(last_end, end, out=last_end)
        behind += start - start_ns[0]
        total += end - start
    return Waits(
        first_start,
        last_start,
        second,
        first_end,
        last_end,
        total,
        len(start_ns) * (last_start - start_ns[0]) - behind,
        late,
        late_n,
        last_start <= first_end,
    )


def member_waits(
    waits: Waits, start_ns: Sequence[IntArray], residual_ns: IntArray
) -> list[MemberWaits]:
    """Return what each rank caused and suffered.

    Args:
        waits: The collectives, in order of time.
        residual_ns: Shape (collectives,), by how much the clocks may be wrong.
    """
    met = np.flatnonzero(waits.met)
    last = waits.last_start_ns[met]
    each, odd = np.divmod(waits.wait_ns[met], waits.late_n[met])
    late_by = waits.late_by_ns[met]
    clear = late_by > sure_ns(residual_ns[met])
    members = []
    for place, start in enumerate(start_ns):
        start = start[met]
        is_last = start == last
        selected = np.flatnonzero(is_last)
        caused = each[selected] + np.where(waits.late[met][selected] == place, odd[selected], 0)
        members.append(
            MemberWaits(
                late_n=int((is_last & clear).sum()),
                unclear_n=int((is_last & ~clear).sum()),
                caused_ns=int(caused.sum()),
                late_by_ns=int(late_by[selected].sum()),
                suffered_ns=int((last - start).sum()),
            )
        )
    return members

"""Waiting, transfer and blame on collectives, by brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nsys_llm.job.collectives.waits import collective_waits, member_waits


def arrays(*rows):
    return tuple(np.array(row, dtype=np.int64) for row in rows)


RANKS = st.integers(2, 5).flatmap(
    lambda ranks: st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=ranks, max_size=ranks),
        min_size=1,
        max_size=8,
    )
)
#: Ranks come and leave so much apart: clear by the clocks or not, and waiting is shared with rests.
UNIT_NS = 601


@given(RANKS, st.sampled_from((0, 1_000)))
@example([[(0, 9), (4, 5)]], 1_000)  # less late than three times what clocks may be wrong by
def test_what_is_caused_is_what_is_suffered_is_what_is_waited(collectives, residual_ns):
    ranks_n = len(collectives[0])
    collectives = [
        [(UNIT_NS * come, UNIT_NS * (come + length)) for come, length in ranks]
        for ranks in collectives
    ]
    starts, ends = (
        arrays(*([ranks[rank][side] for ranks in collectives] for rank in range(ranks_n)))
        for side in (0, 1)
    )
    waits = collective_waits(starts, ends)
    members = member_waits(waits, starts, np.full(len(collectives), residual_ns))
    expected = np.zeros((ranks_n, 5), dtype=np.int64)
    for number, ranks in enumerate(collectives):
        come, leave = zip(*ranks, strict=True)
        last, late_by = max(come), max(come) - sorted(come)[-2]
        late = [rank for rank in range(ranks_n) if come[rank] == last]
        wait = sum(last - start for start in come)
        assert (waits.first_start_ns[number], waits.last_end_ns[number]) == (min(come), max(leave))
        assert waits.met[number] == (last <= min(leave))
        assert waits.wait_ns[number] == wait
        assert waits.transfer_ns[number] == max(min(leave) - last, 0)
        assert waits.late[number] == late[0]
        assert waits.late_n[number] == len(late)
        assert waits.late_by_ns[number] == late_by
        if not waits.met[number]:
            continue
        rest = sum(end - min(leave) for end in leave)
        whole = wait + ranks_n * waits.transfer_ns[number] + rest
        assert waits.total_ns[number] == whole
        is_clear = late_by > max(3 * residual_ns, 1_000)
        expected[late] += is_clear, not is_clear, wait // len(late), late_by, 0
        expected[late[0], 2] += wait % len(late)  # what is left over is the first one's
        expected[:, 4] += last - np.array(come)
    assert [list(vars(member).values()) for member in members] == expected.tolist()

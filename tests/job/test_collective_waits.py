"""Waiting, transfer and blame on collectives of a few ns, by hand and by brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.job.collectives.waits import collective_waits, member_waits


def arrays(*rows):
    return tuple(np.array(row, dtype=np.int64) for row in rows)


def blamed(starts, ends, residual_ns=0):
    waits = collective_waits(starts, ends)
    return waits, member_waits(waits, starts, np.full(starts[0].size, residual_ns))


def test_three_ranks_wait_for_the_last_and_transfer_until_the_first_leaves():
    # Rank 0 [0, 9), rank 1 [2, 8), rank 2 [5, 10): the last comes at 5, the first leaves at 8.
    waits, members = blamed(arrays([0], [2], [5]), arrays([9], [8], [10]))
    assert waits.wait_ns.tolist() == [5 + 3 + 0]
    assert waits.late.tolist() == [2]
    assert waits.late_by_ns.tolist() == [5 - 2]
    assert waits.transfer_ns.tolist() == [8 - 5]
    assert waits.total_ns.tolist() == [9 + 6 + 5]
    # What is left: 9 - 8 on rank 0 and 10 - 8 on rank 2.
    assert (waits.total_ns - waits.wait_ns - 3 * waits.transfer_ns).tolist() == [1 + 0 + 2]
    assert [member.caused_ns for member in members] == [0, 0, 8]
    assert [member.suffered_ns for member in members] == [5, 3, 0]
    assert [member.late_by_ns for member in members] == [0, 0, 5 - 2]


def test_ranks_that_come_last_together_share_the_blame():
    # Last at 5: ranks 1 and 3. Waiting (5 - 0) + (5 - 2) = 8, and 5 + 2 = 7 in the second.
    starts = arrays([0, 0], [5, 5], [2, 3], [5, 5])
    waits, members = blamed(starts, arrays([6, 6], [6, 6], [6, 6], [6, 6]))
    assert waits.late.tolist() == [1, 1]
    assert waits.late_n.tolist() == [2, 2]
    assert waits.late_by_ns.tolist() == [0, 0]
    # 8 is halved; of 7, the odd nanosecond goes to the first.
    assert [member.caused_ns for member in members] == [0, 4 + 4, 0, 4 + 3]
    assert [member.late_n for member in members] == [0, 0, 0, 0]
    assert [member.unclear_n for member in members] == [0, 2, 0, 2]


def test_a_lateness_within_the_clocks_error_is_not_counted_but_its_waiting_is():
    starts = arrays([0, 10_000, 20_000], [3_000, 14_000, 19_000])
    ends = arrays([9_000, 18_000, 28_000], [9_000, 18_000, 28_000])
    _, members = blamed(starts, ends, residual_ns=1_000)
    # Late by 4 us; 3 and 1 are not more than three times 1.
    assert [member.late_n for member in members] == [0, 1]
    assert [member.unclear_n for member in members] == [1, 1]
    assert [member.caused_ns for member in members] == [1_000, 7_000]


def test_without_a_common_instant_nobody_is_blamed():
    # [0, 4) and [4, 9) touch, so that the first could just have seen the second; [5, 9) is apart.
    starts, ends = arrays([0, 0], [4, 5]), arrays([4, 4], [9, 9])
    waits, members = blamed(starts, ends)
    assert waits.met.tolist() == [True, False]
    assert waits.transfer_ns.tolist() == [0, 0]
    assert [member.caused_ns for member in members] == [0, 4]


RANKS = st.integers(2, 5).flatmap(
    lambda ranks: st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=ranks, max_size=ranks),
        min_size=1,
        max_size=8,
    )
)


@given(RANKS)
def test_what_is_caused_is_what_is_suffered_is_what_is_waited(collectives):
    ranks_n = len(collectives[0])
    starts = arrays(
        *([collective[rank][0] for collective in collectives] for rank in range(ranks_n))
    )
    ends = arrays(
        *([sum(collective[rank]) for collective in collectives] for rank in range(ranks_n))
    )
    waits, members = blamed(starts, ends)
    expected = 0
    for number, ranks in enumerate(collectives):
        come, leave = [start for start, _ in ranks], [start + length for start, length in ranks]
        last = max(come)
        assert waits.met[number] == (last <= min(leave))
        assert waits.wait_ns[number] == sum(last - start for start in come)
        assert waits.late[number] == come.index(last)
        assert waits.late_by_ns[number] == last - sorted(come)[-2]
        if waits.met[number]:
            rest = sum(end - min(leave) for end in leave)
            whole = waits.wait_ns[number] + ranks_n * waits.transfer_ns[number] + rest
            assert waits.total_ns[number] == whole
            expected += int(waits.wait_ns[number])
    assert sum(member.caused_ns for member in members) == expected
    assert sum(member.suffered_ns for member in members) == expected
    assert all(member.caused_ns >= 0 for member in members)

"""Parts side by side: results in order, errors as they are, and no threads for little work."""

from __future__ import annotations

import threading

import pytest

from nsys_llm.core.concurrently import concurrently

LARGE = 1_000_000


@pytest.mark.parametrize("rows_n", [0, LARGE])
def test_results_come_in_the_order_of_the_parts(rows_n):
    assert concurrently(rows_n, lambda: "a", lambda: 1, lambda: None) == ["a", 1, None]


def test_of_many_rows_two_parts_run_at_a_time():
    # Each waits for the other: one after the other, they would never meet.
    meeting = threading.Barrier(2, timeout=10)
    assert sorted(concurrently(LARGE, meeting.wait, meeting.wait)) == [0, 1]


def test_of_few_rows_the_parts_run_in_the_calling_thread():
    here = threading.get_ident()
    assert concurrently(3, threading.get_ident, threading.get_ident) == [here, here]


def test_after_a_failure_what_has_not_begun_never_does():
    begun, ended = [], threading.Event()

    def fails() -> None:
        raise KeyboardInterrupt

    def works() -> None:
        begun.append(threading.current_thread())
        ended.wait(0.3)

    with pytest.raises(KeyboardInterrupt):
        concurrently(LARGE, fails, *[works] * 8)
    assert len(begun) < 8

"""Which steps of devices are one step of the job."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.job.job_steps import JobSteps, ahead_of_first, usual_difference
from nsys_llm.trace.steps import DeviceSteps


def windows(first_ns, steps_n):
    """Return steps of 100 ns each, all of them whole."""
    starts = first_ns + 100 * np.arange(steps_n)
    whole = np.ones(steps_n, dtype=bool)
    return DeviceSteps(np.column_stack((starts, starts + 100)), whole, has_steps=True)


def test_steps_before_the_first_of_the_device_that_numbers_them_are_none_of_the_job():
    ends_ns = np.array([160, 260])
    met = SimpleNamespace(owners=(0, 1), own_end_ns=lambda place: ends_ns)
    steps = JobSteps(SimpleNamespace(sequences=[met]), [windows(100, 2), windows(0, 3)])
    assert steps.of(1, np.array([50, 150, 250])).tolist() == [NULL_INT, 0, 1]
    for owners in ((0,), (1,), (0, 1)):
        assert steps.whole(owners).tolist() == [0, 1]
    assert steps.rows(1, steps.whole((1,))).tolist() == [1, 2]


def test_who_is_linked_is_numbered_by_the_first_of_them():
    random = np.random.default_rng(5)
    for _ in range(50):
        shift, group = random.integers(-9, 9, 12), random.integers(0, 3, 12)
        # A chain in each group, its links in any direction and order.
        agreed = {}
        for number in range(3):
            chain = random.permutation(np.flatnonzero(group == number)).tolist()
            for left, right in pairwise(chain):
                agreed[left, right] = int(shift[right] - shift[left])
        firsts = [int(np.flatnonzero(group == number)[0]) for number in group]
        assert ahead_of_first(agreed, range(12)) == {
            place: (first, shift[place] - shift[first]) for place, first in enumerate(firsts)
        }
    assert usual_difference(np.array([3, 1, 3, 1])) == (1, 0.5)
    assert usual_difference(np.empty(0, dtype=np.int64)) == (0, 0.0)

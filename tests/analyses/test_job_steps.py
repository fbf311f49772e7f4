"""Which steps of devices are one step of the job."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from nsys_llm.analyses.collectives.job_steps import JobSteps
from nsys_llm.core.nulls import NULL_INT
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

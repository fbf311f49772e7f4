"""What the host did while the GPU waited, of a real capture: to the nanosecond, by plain SQL."""

from __future__ import annotations

from collections import Counter

import pytest
from host_truth import HostTruth
from quick_run import quick

from nsys_llm.report.records import records

pytestmark = pytest.mark.traces


@pytest.fixture(scope="module")
def path(traces):
    return traces / "public" / "training_rtx3070ti.sqlite"


@pytest.fixture(scope="module")
def truth(path):
    return HostTruth(path)


@pytest.fixture(scope="module")
def tables(path):
    return quick("idle_gaps", path)


def summed(states, *columns, value="time_ns"):
    sums = Counter()
    for row in records(states):
        sums[tuple(row[name] for name in columns)] += row[value] or 0
    return sums


def test_the_table_says_the_same_to_the_nanosecond(truth, tables):
    states = tables["host_states"]
    sums = Counter()
    for (thread, _, state, detail), time_ns in truth.times().items():
        sums[thread, state, detail] += time_ns
    assert sums.total() == 588_525_812
    assert summed(states, "tid", "state", "detail") == sums
    # What each cause has behind the start-up is part of what it has at all.
    behind = summed(states[states["cause"] != "start_up"], "tid", "cause", "state", "detail")
    assert behind
    assert behind <= truth.times()
    assert +summed(states, "tid", "state", value="on_core_ns") == truth.on_core_ns()


def test_samples_are_counted_apart_by_state(truth, tables):
    modules = tables["host_modules"]
    modules = modules[modules["module_class"] != "not_sampled"]
    counted = summed(modules, "tid", "state", value="samples_n")
    assert counted == Counter((thread, state) for thread, _, state, _ in truth.sampled)
    assert (counted[55072, "running"], counted[55072, "cuda_call"]) == (83, 42)
    files = {"python": "/bin/python3.12", "driver": "libcuda.so"}
    for name, state, n in (("python", "running", 60), ("driver", "cuda_call", 30)):
        rows = modules[(modules["tid"] == 55072) & (modules["state"] == state)]
        assert rows.loc[rows["module_class"] == name, "samples_n"].sum() == n
        inside = [key for tid, key, where, _ in truth.sampled if (tid, where) == (55072, state)]
        assert sum(files[name] in truth.modules[key] for key in inside) == n

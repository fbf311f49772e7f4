"""Paths against simulated jobs that know what everything waited for, to the nanosecond."""

from __future__ import annotations

import random

import pytest
from machine import random_program
from machine.scenarios import SCENARIOS
from path_truth import (
    budget,
    check_identities,
    check_truth,
    device_pairs,
    finds_its_steps,
    job_pairs,
    wrong_ns,
)

from nsys_llm.critical_path.job import meetings
from nsys_llm.critical_path.path import blocks, forest

#: Other jobs in each run; a failure names its seed.
FRESH = 200
#: Jobs whose edges have to be inferred, and how much of the time may have another class, percent:
#: 0.27 of 100 jobs.
INFERRED = 100
LIMIT_PCT = 0.5


@pytest.fixture
def every_meeting(monkeypatch):
    """Believe all matched collectives: jobs of a few steps have too few to be sure of."""
    monkeypatch.setattr(meetings, "LOW_CONFIDENCE", "never")


def graphs_of_several_streams(outcome):
    """Tell whether nodes of a graph may depend on each other across streams, unrecorded."""
    streams = {}
    for op in (op for ops in outcome.operations for op in ops if op.node is not None):
        streams.setdefault(id(op.call), set()).add(op.stream)
    return any(len(used) > 1 for used in streams.values())


def check_seed(folder, seed):
    try:
        outcome, tables = budget(folder / str(seed), random_program(seed, certain=True))
        check_identities(tables)
        check_truth(outcome, tables)
        if not graphs_of_several_streams(outcome):
            assert (tables["job_steps"]["certain_ns"] == tables["job_steps"]["wall_ns"]).all()
    except Exception as error:
        raise AssertionError(f"random_program({seed}, certain=True)") from error


@pytest.mark.nightly
def test_random_jobs_with_certain_edges_are_told_exactly(tmp_path, every_meeting):
    for _ in range(FRESH):
        check_seed(tmp_path, random.SystemRandom().randrange(1 << 30))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_told_exactly(tmp_path, name):
    outcome, tables = budget(tmp_path, SCENARIOS[name]())
    check_identities(tables)
    check_truth(outcome, tables)


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [{"event_rows": False}, {"sync_rows": False, "event_rows": False}])
def test_inferred_edges_are_mostly_right_and_never_called_certain_where_wrong(
    tmp_path, every_meeting, rows
):
    wrong = total = 0
    for seed in range(INFERRED):
        outcome, tables = budget(tmp_path / str(seed), random_program(seed), **rows)
        check_identities(tables)
        if not finds_its_steps(outcome, tables):
            continue
        for row, path in [*device_pairs(outcome, tables), *job_pairs(outcome, tables)]:
            path_wrong_ns, all_ns = wrong_ns(iter([(row, path)]))
            assert not path_wrong_ns or row["certain_ns"] < all_ns, (seed, row["step"])
        path_wrong_ns, all_ns = wrong_ns(device_pairs(outcome, tables))
        wrong, total = wrong + path_wrong_ns, total + all_ns
    assert 0 < 100 * wrong / total < LIMIT_PCT


@pytest.mark.nightly
def test_what_travels_of_many_stretches_gives_the_same_job(tmp_path, every_meeting, monkeypatch):
    monkeypatch.setattr(forest, "MOST_WHOLE", 0)
    monkeypatch.setattr(blocks, "_NODES", 25)
    for seed in range(15):
        check_seed(tmp_path, seed)

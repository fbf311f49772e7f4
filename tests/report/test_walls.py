"""Spans and classes of GPUs as findings and prices ask the table `wall` for them."""

from __future__ import annotations

import random

import pandas as pd
import pytest

from nsys_llm.report.causes import Cause
from nsys_llm.report.walls import Walls, host_cause, host_subject

CLASSES = ("compute", "communication", "copies", "profiler", "idle")


def walls(rows, side=None):
    names = ("run", "rank", "device_id", "wall_class", "detail", "time_ns", "span_ns")
    wall = pd.DataFrame(rows, columns=list(names))
    return Walls({"wall": wall.assign(file="rank" + wall["rank"].astype(str))}, side)


def drawn(rng):
    """Some GPUs of two runs, each with its classes cut into details; and what they add up to."""
    rows, truth = [], {}
    for side in ("baseline", "input"):
        for rank in rng.sample(range(9), rng.randint(1, 4)):
            for device in rng.sample(range(3), rng.randint(1, 2)):
                parts = [
                    (side, rank, device, name, f"part {part}", rng.randint(0, 10**12))
                    for name in CLASSES
                    for part in range(rng.randint(1, 3))
                ]
                span_ns = sum(part[-1] for part in parts)
                rows += [(*part, span_ns) for part in parts]
                truth[side, rank, device] = parts
    return rows, truth


@pytest.mark.parametrize("seed", range(40))
def test_classes_and_details_of_a_gpu_add_up_to_its_span(seed):
    rng = random.Random(seed)
    rows, truth = drawn(rng)
    for side in ("baseline", "input"):
        table = walls(rows, side)
        assert set(table.gpus) == {place[1:] for place in truth if place[0] == side}
        for rank, device in table.gpus:
            parts = truth[side, rank, device]
            assert table.span_ns(rank, device) == sum(part[-1] for part in parts)
            assert table.class_ns(rank, device, *CLASSES) == table.span_ns(rank, device)
            chosen = rng.sample(CLASSES, rng.randint(1, 5))
            most_ns = sum(part[-1] for part in parts if part[3] in chosen)
            assert table.class_ns(rank, device, *chosen) == most_ns
            details = {part[4] for part in parts}
            assert most_ns == sum(
                table.detail_ns((rank, device), name, *details) for name in chosen
            )


def test_a_gpu_that_the_table_has_not_has_no_time():
    table = walls([("", 0, 0, "compute", None, 10, 10)])
    assert (table.span_ns(1, 0), table.class_ns(1, 0, "compute")) == (0, 0)


def test_idle_time_by_host_causes_is_neither_the_devices_nor_start_up_nor_without_work():
    causes = {"host_sync": 1, "launch_api": 2, "queued": 4, "module_load": 8, "alloc": 16}
    causes |= {"unresolved": 32, "host_no_cuda": 64, "no_work": 128}
    table = walls([("", 0, 0, "idle", name, time_ns, 255) for name, time_ns in causes.items()])
    assert table.host_idle_ns((0, 0)) == 1 + 2 + 64


@pytest.mark.parametrize(("others_ns", "rank"), [((), None), ((0, 6), 2), ((5,), None), ((4,), 2)])
def test_a_host_is_one_ranks_where_others_lose_less_than_half_in_the_median(others_ns, rank):
    losses = {(2, 0): 10} | {(5 + at, 0): time_ns for at, time_ns in enumerate(others_ns)}
    assert host_cause(losses, (2, 0)) == Cause("host", rank)


@pytest.mark.parametrize(
    ("losses_ns", "whose"),
    [
        # All alike; one slightly more; two in turn; one that holds 59 and 60 % of what it loses.
        ((100, 103, 98, 101), "On all 4 ranks the host"),
        ((100, 130, 98, 101), "On all 4 ranks the host"),
        ((2, 100, 96, 1), "On ranks 1 and 2 the host"),
        ((0, 100, 0, 50, 50, 0), "On ranks 1, 3 and 4 the host"),
        ((41, 100), "On both ranks the host"),
        ((40, 100), "Rank 1's host"),
        ((1, 100, 24, 0), "Rank 1's host"),
        ((90, 100, 90, 90, 90, 1), "On 5 of 6 ranks the host"),
    ],
)
def test_who_is_named_of_late_hosts(losses_ns, whose):
    losses = {(rank, 0): time_ns for rank, time_ns in enumerate(losses_ns)}
    gpu = max(losses, key=losses.__getitem__)
    wall = {"wall": pd.DataFrame({"rank": [rank for rank, _ in losses]})}
    said, counts = host_subject(wall, losses, gpu)
    assert [cell.value for cell in counts][1:] in ([], [len(losses)])
    assert (said["whose"], said["its"]) == (whose, "its" if whose[0] == "R" else "the worst")
    assert host_cause(losses, gpu) == Cause("host", 1 if whose[0] == "R" else None)


def test_a_gpu_whose_idle_time_is_not_told_by_cause_is_nobodys_measure():
    told = [("", rank, 0, "idle", "host_sync", 10, 20) for rank in (0, 1)]
    table = walls([*told, ("", 2, 0, "idle", None, 20, 20)])
    assert table.host_losses_ns == {(0, 0): 10, (1, 0): 10}

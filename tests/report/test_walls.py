"""Spans and classes of GPUs as findings ask the table `wall` for them, and gains that fit in."""

from __future__ import annotations

import random

import pandas as pd
import pytest

from nsys_llm.report.gains import Gain, Walls

CLASSES = ("compute", "communication", "copies", "profiler", "idle")


def walls(rows, side=None):
    names = ("run", "rank", "device_id", "wall_class", "detail", "time_ns", "span_ns")
    return Walls({"wall": pd.DataFrame(rows, columns=list(names))}, side)


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
def test_classes_of_a_gpu_add_up_to_its_span_and_no_gain_exceeds_its_classes(seed):
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
            asked_ns = rng.randint(-most_ns, 3 * most_ns)
            gain = table.gain(rank, device, asked_ns, chosen)
            assert gain.gain_ns == sorted((0, asked_ns, most_ns))[1]
            assert (gain.span_ns, gain.wall_classes) == (
                table.span_ns(rank, device),
                tuple(chosen),
            )


def test_a_gpu_that_the_table_has_not_can_gain_nothing():
    table = walls([("", 0, 0, "compute", None, 10, 10)])
    assert table.gain(0, 1, 5, ("compute",)).severity is None
    assert (table.span_ns(1, 0), table.class_ns(1, 0, "compute")) == (0, 0)


def test_a_gain_says_what_it_rests_on():
    table = walls([("", 0, 0, "idle", "host_sync", 60, 100), ("", 0, 0, "compute", None, 40, 100)])
    assert table.gain(0, 0, 12, ("idle",), basis="idle", is_bound=False) == Gain(
        12, 100, ("idle",), "idle", is_bound=False
    )

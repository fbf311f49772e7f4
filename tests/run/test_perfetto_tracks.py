"""Lines for Perfetto that need all ranks, and memory: collectives, critical path, memory in use."""

from __future__ import annotations

import numpy as np
import pytest
from clock_world import KERNEL
from perfetto_file import read_file
from results import analyse
from trace_builder import TraceBuilder

ALL = ("--perfetto", "--perfetto-window", "all")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_each_collective_waits_until_the_last_rank_came_and_then_transfers(tmp_path, seed):
    rng = np.random.default_rng(seed)
    ends = 5_000_000 + np.cumsum(rng.integers(150_000, 250_000, 60))
    starts = ends - rng.integers(20_000, 60_000, (2, ends.size))
    for rank in (0, 1):
        builder = TraceBuilder()
        for start_ns, end_ns in zip(starts[rank].tolist(), ends.tolist(), strict=True):
            builder.kernel(KERNEL, start_ns=start_ns, end_ns=end_ns)
        builder.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    reports = [tmp_path / f"rank{rank}.sqlite" for rank in (0, 1)]
    last = starts.max(axis=0).tolist()
    for recipe in ("tail_stats", "step_budget"):
        shown = read_file(analyse(tmp_path / recipe, *reports, options=ALL, recipe=recipe))
        for rank in (0, 1):
            slices = shown.of("collective", process=f"rank {rank} ")
            wanted = {
                *zip(["transfer"] * len(last), last, ends.tolist(), strict=True),
                *(
                    ("waiting", start, late)
                    for start, late in zip(starts[rank].tolist(), last, strict=True)
                    if start < late
                ),
            }
            assert {(slot.name, slot.start_ns, slot.end_ns) for slot in slices} == wanted
            assert {slot.track for slot in slices} == {"GPU 0 collectives"}
    alone = analyse(tmp_path / "alone", reports[0], options=ALL, recipe="tail_stats")
    assert read_file(alone).of("collective") == []


@pytest.mark.slow
def test_memory_in_use_is_told_from_allocation_to_free(tmp_path):
    builder = TraceBuilder()
    for at in range(3):
        builder.kernel("k", start_ns=1_000 + 1_000 * at, duration_ns=100)
    builder.allocate(500, address=1, at_ns=1_010)
    builder.allocate(70, address=2, at_ns=1_500, call=(1_490, 1_510))
    builder.allocate(9_000, address=3, at_ns=1_600, memory="pinned")
    builder.free(500, address=1, at_ns=2_050)
    builder.free(1, address=77, at_ns=2_060)  # allocated before the capture
    path = builder.write_sqlite(tmp_path / "rank0.sqlite")
    shown = read_file(analyse(tmp_path / "out", path, options=ALL, recipe="idle_gaps"))
    (levels,) = (counter for (_, name), counter in shown.counters.items() if name == "GPU 0 memory")
    assert levels[1:] == [(1_010, 500), (1_500, 570), (2_050, 70), (3_101, 0)]
    assert levels[0] == (min(time for time, _ in levels), 0)
    # Nothing is told where nothing is recorded.
    plain = TraceBuilder().kernel("k", start_ns=5, duration_ns=9)
    plain = plain.write_sqlite(tmp_path / "plain.sqlite")
    shown = read_file(analyse(tmp_path / "plain_out", plain, options=ALL, recipe="idle_gaps"))
    assert not [name for _, name in shown.counters if "memory" in name]

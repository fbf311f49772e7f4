"""Durations over time of the worst configurations: by hand, and against all launches."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from results import rows, tables_of

from nsys_llm.recipes.tail_stats.per_rank import times as time_parts
from nsys_llm.recipes.tail_stats.tables import times as time_tables
from nsys_llm.testing.trace_builder import TraceBuilder

NUMBERS = "start_ns end_ns launches_n min_ns p50_ns max_ns"


def tables(output, *inputs, options=()):
    return tables_of(output, *inputs, options=options, recipe="tail_stats")


def test_a_filter_s_window_is_what_is_cut_into_parts(tmp_path):
    builder = TraceBuilder()
    for start_ns in (0, 100, 110, 499):
        builder.kernel("k", start_ns=start_ns, duration_ns=5)
    path = builder.write_sqlite(tmp_path / "t.sqlite")
    times = tables(tmp_path / "o", path, options=["--filter-time", "100/500"])["tail_times"]
    assert rows(times, NUMBERS) == [
        (100, 110, 1, 5, 5.0, 5),
        (110, 120, 1, 5, 5.0, 5),
        (490, 500, 1, 5, 5.0, 5),
    ]


@pytest.fixture(scope="module")
def random_ranks(tmp_path_factory):
    """Three ranks, one of them with two devices, that launch nine kernels in disorder."""
    folder, rng = tmp_path_factory.mktemp("ranks"), np.random.default_rng(2)
    launches = []
    for rank in range(3):
        devices = (0, 1) if rank == 1 else (0,)
        builder = TraceBuilder(system_clock_ns=10**9 + 1000 * rank)
        builder.process(pid=100, gpu_ids=devices)
        for device in devices:
            for start_ns in rng.permutation(4_000)[:300].tolist():
                name, duration = f"k{rng.integers(9)}", int(rng.integers(1, 40))
                builder.kernel(name, start_ns=start_ns, duration_ns=duration, device_id=device)
                launches.append((rank, device, name, start_ns, duration))
        builder.write_sqlite(folder / f"rank{rank}.sqlite")
    names = ["rank", "device_id", "name", "start_ns", "duration_ns"]
    return folder, pd.DataFrame(launches, columns=names)


@pytest.mark.nightly
def test_all_launches_of_the_worst_configurations_are_there(random_ranks, tmp_path):
    folder, launches = random_ranks
    frames = tables(tmp_path / "o", folder)
    labels = frames["tails"]["label"].tolist()[: time_tables.WORST_OVER_TIME]
    times = frames["tail_times"]
    assert list(dict.fromkeys(times["label"])) == labels
    for row in times.itertuples():
        launched = launches[launches["name"] == row.label.split()[0]]
        launched = launched[
            (launched["rank"] == row.rank) & (launched["device_id"] == row.device_id)
        ]
        inside = launched[
            (launched["start_ns"] >= row.start_ns) & (launched["start_ns"] < row.end_ns)
        ]
        lengths = inside["duration_ns"]
        expected = (len(lengths), lengths.min(), lengths.median(), lengths.max())
        assert (row.launches_n, row.min_ns, row.p50_ns, row.max_ns) == expected
        assert row.aligned_start_ns == row.start_ns + 1000 * row.rank
    sums = times.groupby("label")["launches_n"].sum()
    assert sums.to_dict() == dict(
        zip(labels, frames["tails"]["launches_n"].tolist()[: len(labels)], strict=True)
    )


@pytest.mark.nightly
def test_a_rank_sends_the_uneven_and_the_long_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(time_parts, "SENT", 1)
    # Rank 0 is slow throughout in `long`, which is even on each rank; `uneven` has all the spread.
    for rank in range(3):
        builder = TraceBuilder()
        for index in range(8):
            at_ns = 1_000 * index
            builder.kernel("long", start_ns=at_ns, duration_ns=300 - 100 * (rank > 0))
            builder.kernel("uneven", start_ns=at_ns + 400, duration_ns=10 + 20 * (index == 3))
            builder.kernel("even", start_ns=at_ns + 500, duration_ns=20)
        builder.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    times = tables(tmp_path / "o", tmp_path)["tail_times"]
    assert list(dict.fromkeys(times["label"].str.split().str[0])) == ["long", "uneven"]
    slow = times[times["label"].str.startswith("long")]
    assert slow.groupby("rank")["p50_ns"].max().to_dict() == {0: 300.0, 1: 200.0, 2: 200.0}

"""Rows of an export may come in any order: the same rows shuffled give the same tables.

Only of two NVTX ranges of a thread that begin and end in the same nanosecond does their order say
which is the outer one; nothing else does.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from quick_run import quick
from results import plain
from trace_builder import TraceBuilder

from nsys_llm.manifest.manifest import load_manifest, recipe_names


def shuffled(source: Path, target: Path, seed: int) -> Path:
    """Copy an SQLite export with the rows of every table in another order."""
    chance = random.Random(seed)
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (name,) in database.execute(names).fetchall():
            rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
            chance.shuffle(rows)
            database.execute(f'DELETE FROM "{name}"')
            marks = ",".join("?" * len(rows[0])) if rows else ""
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        database.commit()
    return target


def written(path: Path) -> Path:
    """Write a rank with several streams, threads, copies, waits, a graph and nested ranges."""
    report = TraceBuilder(duration_ns=2_000_000).environment(RANK="0")
    report.allocate(2048, address=4096, at_ns=3).free(2048, address=4096, at_ns=1_900_000)
    report.osrt("poll", start_ns=500, end_ns=900).thread_switch(start_ns=10, goes_on=True)
    for step in range(12):
        at_ns = 100_000 * step + 1_000
        report.nvtx("step", at_ns, at_ns + 90_000).nvtx("decode", at_ns, at_ns + 80_000)
        report.nvtx("inner", at_ns, at_ns + 40_000)
        for layer in range(4):
            launch_ns = at_ns + 100 + 10_000 * layer
            for place, name in enumerate(("nvjet_tst_1x1", "vectorized_elementwise_kernel", "k")):
                begin_ns = launch_ns + 2_000 + 1_500 * place + 70 * ((step * 7 + layer) % 5)
                report.kernel(
                    name,
                    start_ns=begin_ns,
                    duration_ns=1_000 + 37 * ((step + place) % 3),
                    launch=(launch_ns + 300 * place, launch_ns + 300 * place + 200),
                    stream_id=7 + place % 2,
                    tid=None if place < 2 else 9,
                )
            report.kernel(
                "ncclDevKernel_AllReduce",
                start_ns=launch_ns + 6_700,
                duration_ns=1_100 + 50 * step,
                launch=(launch_ns + 1_000, launch_ns + 1_200),
                stream_id=20,
            )
        report.memcpy(
            "HtoD",
            start_ns=at_ns + 50_000,
            duration_ns=900,
            size_bytes=4096,
            launch=(at_ns + 45_000, at_ns + 45_500),
        )
        report.memset(
            start_ns=at_ns + 52_000,
            duration_ns=300,
            size_bytes=64,
            launch=(at_ns + 46_000, at_ns + 46_100),
        )
        report.graph_launch(
            [("g1", at_ns + 60_000, at_ns + 61_000), ("g2", at_ns + 61_500, at_ns + 62_000)],
            launch=(at_ns + 55_000, at_ns + 56_000),
        )
        report.api("cudaDeviceSynchronize_v3020", start_ns=at_ns + 57_000, end_ns=at_ns + 63_000)
    times_ns = tuple(range(1_000, 1_200_000, 10_000))
    report.gpu_metrics({"SMs Active [Throughput %]": [n % 97 for n in times_ns]}, times_ns=times_ns)
    return report.write_sqlite(path)


@pytest.fixture(scope="module")
def orders(tmp_path_factory) -> list[Path]:
    """Return the rank, and its rows in two other orders, under one name."""
    folder = tmp_path_factory.mktemp("orders")
    for name in ("a", "b", "c"):
        (folder / name).mkdir()
    source = written(folder / "a" / "rank0.sqlite")
    copies = [
        shuffled(source, folder / name / "rank0.sqlite", seed) for seed, name in enumerate("bc")
    ]
    return [source, *copies]


@pytest.mark.nightly(
    "idle_gaps",
    "llm_hotspots",
    "nvtx_phase_attribution",
    "step_budget",
    "tail_stats",
    "llm_overview",
)
@pytest.mark.parametrize("recipe", recipe_names())
def test_the_order_of_rows_changes_no_bit_of_any_table(orders, recipe):
    sides_n = 2 if load_manifest(recipe).sided else 1
    expected, *others = (quick(recipe, *[path] * sides_n) for path in orders)
    assert len(expected["files"])
    for tables in others:
        assert tables.keys() == expected.keys()
        for name, table in tables.items():
            assert plain(table) == plain(expected[name]), name

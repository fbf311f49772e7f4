"""Launch by launch: watched_kernels; operations."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from results import RECIPE, rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.run.cli import main

WIDE, THIN = {"grid": (4, 2, 1), "block": (64, 1, 1)}, {"dynamic_shared_bytes": 9, "registers": 7}
CONFIG = "grid_x grid_y grid_z block_x block_y block_z dynamic_shared_bytes"
WIDE_CELLS, THIN_CELLS = (4, 2, 1, 64, 1, 1, 0), (1, 1, 1, 32, 1, 1, 9)


@pytest.fixture(scope="module")
def staked(tmp_path_factory):
    """Two ranks that launch k wide, then thin; rank 0 has a graph node and another kernel."""
    folder = tmp_path_factory.mktemp("ranks")
    first = TraceBuilder().kernel("void K<int>(int)", start_ns=10, duration_ns=4, **WIDE)
    first.kernel("void K<int>(int)", start_ns=20, duration_ns=6, **WIDE, stream_id=8)
    first.kernel("void K<int>(int)", start_ns=30, duration_ns=3, **THIN, graph_node_id=5)
    first.kernel("other", start_ns=40, duration_ns=9).write_sqlite(folder / "rank0.sqlite")
    second = TraceBuilder().kernel("void K<int>(int)", start_ns=5, duration_ns=8, **WIDE)
    second.write_sqlite(folder / "rank1.sqlite")
    return tables_of(folder / "out", folder, options=["--kernel", "k<INT>"])


def test_each_launch_of_the_watched_kernel_is_told(staked):
    columns = "rank launch launches_n start_ns duration_ns stream_id graph_node"
    assert rows(staked["watched_kernels"], columns) == [
        (0, 0, 3, 10, 4, 7, False),
        (0, 1, 3, 20, 6, 8, False),
        (0, 2, 3, 30, 3, 7, True),
        (1, 0, 1, 5, 8, 7, False),
    ]
    assert rows(staked["watched_kernels"], f"{CONFIG} registers_per_thread") == [
        (*WIDE_CELLS, 32),
        (*WIDE_CELLS, 32),
        (*THIN_CELLS, 7),
        (*WIDE_CELLS, 32),
    ]
    assert set(staked["watched_kernels"]["name"]) == {"void K<int>(int)"}


@pytest.mark.slow
def test_of_many_launches_those_kept_are_spread_and_have_both_ends(tmp_path):
    trace = TraceBuilder()
    for index in range(10):
        trace.kernel("k", start_ns=10 * index, duration_ns=1 + index)
    trace.write_sqlite(tmp_path / "t.sqlite")
    options = ["--kernel", "re:^k$", "--top", "4"]
    tables = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=options)
    # 0, 1, 2, 3 times 9 thirds.
    expected = [(n, 10, 10 * n, 1 + n) for n in (0, 3, 6, 9)]
    assert rows(tables["watched_kernels"], "launch launches_n start_ns duration_ns") == expected
    options[-1] = "1"
    tables = tables_of(tmp_path / "p", tmp_path / "t.sqlite", options=options)
    assert rows(tables["watched_kernels"], "launch") == [(0,)]


def test_a_window_keeps_whole_launches_that_start_in_it(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=10).kernel("k", start_ns=20, end_ns=30)
    trace.kernel("k", start_ns=8, end_ns=12, **WIDE, stream_id=8)
    trace.write_sqlite(tmp_path / "t.sqlite")
    options = ["--kernel", "k", "--filter-time", "9/25"]
    tables = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=options)
    assert rows(tables["watched_kernels"], "start_ns duration_ns") == [(20, 10)]


def test_a_pattern_that_means_nothing_is_refused_before_anything_is_read(tmp_path, capsys):
    words = ["--kernel", "re:(", "--input", str(tmp_path), "--output", str(tmp_path / "o")]
    assert main([RECIPE, *words]) == 2
    assert "'re:(' is not a regular expression" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_what_is_not_recorded_of_a_launch_is_null(tmp_path):
    path = TraceBuilder().kernel("k", start_ns=10, end_ns=14).write_sqlite(tmp_path / "t.sqlite")
    name = "CUPTI_ACTIVITY_KIND_KERNEL"
    with closing(sqlite3.connect(path)) as database:
        (definition,) = database.execute(
            "SELECT sql FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()
        database.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
        database.execute(definition.replace("NOT NULL", ""))
        database.execute(f"INSERT INTO {name} SELECT * FROM old_{name}")
        database.execute(f"UPDATE {name} SET gridX = NULL, registersPerThread = NULL")
        database.commit()
    tables = tables_of(tmp_path / "o", path, options=["--kernel", "k"])
    columns = "grid_x grid_y registers_per_thread"
    assert rows(tables["watched_kernels"], columns) == [(None, 1, None)]


def test_operations_add_up_and_unknown_ones_have_rows_of_their_own(tmp_path):
    names = ["nvjet_tst_192x192", "nvjet_tst_64x8", "mystery", "void flash_fwd_kernel<int>(int)"]
    trace = TraceBuilder()
    for index, name in enumerate(names):
        trace.kernel(name, start_ns=10 * index, duration_ns=1 << index)
    tables = tables_of(tmp_path / "o", trace.write_sqlite(tmp_path / "t.sqlite"))
    table = tables["operations"]
    by_name = {row[0]: row[1:] for row in rows(table, "operation category kernels_n total_ns")}
    assert by_name["GEMM (cuBLAS nvjet)"] == ("gemm", 2, 1 + 2)
    assert by_name[None] == ("unmatched", 1, 4)
    for name in ("launches_n", "total_ns", "exclusive_ns"):
        assert table[name].sum() == tables["categories"][name].sum()
    assert table["busy_pct"].sum() == pytest.approx(100)

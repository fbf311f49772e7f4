"""Copies and fills of llm_hotspots on planted cases, by hand and instant by instant."""

from __future__ import annotations

import numpy as np
import pytest
from effort import seeds
from quick_run import quick
from results import rows, tables_of
from trace_builder import TraceBuilder

MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PEAK_GB_S = 3350.0  # of the builder's H100


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Rank 0: kernels at 10-20 and, communication, 30-34; rank 1: a kernel at 0-9.

    Rank 0 copies to the device at 4-14 and 12-18 (pinned), 40-43 (pageable); inside it at 32-36;
    and fills at 50-52. Rank 1 copies to the device at 2-5 (pinned).
    """
    folder = tmp_path_factory.mktemp("ranks")
    first = TraceBuilder().kernel("k", start_ns=10, end_ns=20)
    first.kernel(NCCL, start_ns=30, end_ns=34)
    first.memcpy("HtoD", start_ns=4, end_ns=14, size_bytes=50)
    first.memcpy("HtoD", start_ns=12, end_ns=18, size_bytes=30)
    first.memcpy("HtoD", start_ns=40, end_ns=43, size_bytes=9, src_memory="pageable")
    first.memcpy("DtoD", start_ns=32, end_ns=36, size_bytes=6000)
    first.memset(start_ns=50, end_ns=52, size_bytes=6700)
    first.write_sqlite(folder / "rank0.sqlite")
    second = TraceBuilder().kernel("k", start_ns=0, end_ns=9)
    second.memcpy("HtoD", start_ns=2, end_ns=5, size_bytes=7).write_sqlite(folder / "rank1.sqlite")
    return tables_of(folder / "out", folder)


def test_memops_are_kinds_by_memory_on_each_device(tables):
    memops = tables["memops"]
    columns = "rank device_id kind source_memory target_memory pageable ops_n size_bytes"
    assert rows(memops, columns) == [
        (0, 0, "HtoD", "pinned", "device", False, 2, 80),
        (0, 0, "DtoD", "device", "device", False, 1, 6000),
        (0, 0, "HtoD", "pageable", "device", True, 1, 9),
        (0, 0, "memset", None, "device", False, 1, 6700),
        (1, 0, "HtoD", "pinned", "device", False, 1, 7),
    ]
    assert rows(memops, "median_bytes min_ns p50_ns max_ns")[0] == (40, 6, 8.0, 10)


def test_a_copy_is_exposed_while_no_kernel_runs(tables):
    # Pinned: 4-18 is 14 long, 10-18 beside k. DtoD: 32-34 beside the collective. Rank 1: inside k.
    columns = "total_ns union_ns exposed_ns exposed_start_ns exposed_end_ns"
    assert rows(tables["memops"], columns) == [
        (16, 14, 6, 4, 10),
        (4, 4, 2, 34, 36),
        (3, 3, 3, 40, 43),
        (2, 2, 2, 50, 52),
        (3, 3, 0, None, None),
    ]


def test_rates_are_held_against_the_memory_where_it_is_the_limit(tables):
    # DtoD reads and writes 6000 bytes in 4 ns; the fill writes 6700 in 2 ns.
    assert rows(tables["memops"], "rate_gb_s peak_gb_s peak_pct") == [
        (80 / 16, None, None),
        (1500.0, PEAK_GB_S, pytest.approx(100 * 3000 / PEAK_GB_S, rel=1e-14)),
        (3.0, None, None),
        (3350.0, PEAK_GB_S, 100.0),
        (7 / 3, None, None),
    ]


def test_a_window_clips_times_and_counts_whole_operations_that_start_in_it(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=10, end_ns=20)
    trace.memcpy("HtoD", start_ns=4, end_ns=14, size_bytes=50)
    trace.memcpy("HtoD", start_ns=12, end_ns=24, size_bytes=30, stream_id=8)
    trace.write_sqlite(tmp_path / "t.sqlite")
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite", options=["--filter-time", "6/22"])
    # 6-14 and 12-22 are 8 + 10, their union 16; 10-20 is beside k. Only the second starts inside:
    # 30 bytes in its whole 12 ns.
    columns = "ops_n size_bytes total_ns union_ns exposed_ns max_ns rate_gb_s"
    assert rows(frames["memops"], columns) == [(1, 30, 18, 16, 6, 12, 30 / 12)]


@pytest.mark.slow
def test_a_whole_graph_hides_copies_too_since_nobody_knows_what_runs_in_it(tmp_path):
    trace = TraceBuilder().kernel("k", start_ns=0, end_ns=2)
    trace.graph_launch([("g", 10, 20)], launch=(3, 4), mode="graph")
    trace.memcpy("HtoD", start_ns=8, end_ns=12, size_bytes=1).write_sqlite(tmp_path / "t.sqlite")
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite")
    assert rows(frames["memops"], "union_ns exposed_ns") == [(4, 2)]


def test_what_an_export_does_not_record_is_null(tmp_path):
    trace = TraceBuilder(gpu_name="A GPU").kernel("k", start_ns=0, end_ns=2)
    trace.raw(MEMCPY, start=10, end=14, bytes=8, copyKind=1, srcKind=None, dstKind=None)
    trace.raw(MEMSET, start=20, end=20, bytes=8, memKind=None)
    trace.write_sqlite(tmp_path / "t.sqlite")
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite")
    columns = "kind source_memory target_memory pageable rate_gb_s peak_gb_s"
    assert rows(frames["memops"], columns) == [
        ("HtoD", None, None, None, 2.0, None),
        ("memset", None, None, None, None, None),
    ]


@pytest.mark.slow
def test_an_impossible_size_makes_bytes_and_rates_unknown_and_nothing_else(tmp_path):
    paths = []
    for rank, size in enumerate((-1, -(2**63), 2**53)):
        trace = TraceBuilder().kernel("k", start_ns=0, end_ns=2)
        trace.memcpy("HtoD", start_ns=10, end_ns=14, size_bytes=size)
        trace.memcpy("HtoD", start_ns=20, end_ns=24, size_bytes=7)
        paths.append(trace.write_sqlite(tmp_path / f"rank{rank}.sqlite"))
    frames = tables_of(tmp_path / "o", *paths)
    columns = "ops_n total_ns size_bytes median_bytes rate_gb_s"
    assert rows(frames["memops"], columns) == [(2, 8, None, None, None)] * 3


def test_a_rank_without_copies_has_no_rows_and_says_why(tmp_path):
    TraceBuilder().kernel("k", start_ns=0, end_ns=2).write_sqlite(tmp_path / "t.sqlite")
    frames = tables_of(tmp_path / "o", tmp_path / "t.sqlite")
    assert frames["memops"].empty
    assert rows(frames["coverage"], "op table_present")[1] == ("memcpy", False)


HORIZON_NS = 400
COLUMNS = "exposed_htod_ns exposed_dtoh_ns exposed_both_ways_ns"


def drawn(seed):
    """Return a device with kernels and copies, and what it does in each nanosecond."""
    random = np.random.default_rng(seed)
    trace = TraceBuilder(duration_ns=HORIZON_NS)
    does = {name: np.zeros(HORIZON_NS, dtype=bool) for name in ("kernel", "copy", "HtoD", "DtoH")}
    trace.kernel("nvjet_a", start_ns=0, duration_ns=5)  # before all copies: none is a load
    does["kernel"][:5] = True
    for nth in range(40):
        start_ns, length_ns = int(random.integers(5, 350)), int(random.integers(1, 20))
        run = slice(start_ns, start_ns + length_ns)
        if nth % 3 == 0:
            trace.kernel("nvjet_a", start_ns=start_ns, duration_ns=length_ns)
            does["kernel"][run] = True
            continue
        kind = str(random.choice(["HtoD", "DtoH", "DtoD"]))
        trace.memcpy(kind, start_ns=start_ns, end_ns=start_ns + length_ns, size_bytes=8)
        for name in ("copy", kind):
            if name in does:
                does[name][run] = True
    return trace, does


@pytest.mark.parametrize("seed", seeds(20, 3))
def test_each_part_is_the_time_in_which_nothing_else_runs(seed, tmp_path):
    trace, does = drawn(seed)
    path = trace.write_sqlite(tmp_path / "rank0.sqlite")
    tables = quick("llm_hotspots", path)
    exposed = does["copy"] & ~does["kernel"]
    both = does["HtoD"] & does["DtoH"]
    truth = [
        exposed & does["HtoD"] & ~both,
        exposed & does["DtoH"] & ~both,
        exposed & both,
    ]
    assert rows(tables["overlap"], COLUMNS) == [tuple(int(part.sum()) for part in truth)]
    wall = rows(tables["wall"], "wall_class time_ns")
    assert ("copies", int(exposed.sum())) in wall


def test_a_load_is_no_exposed_copy(tmp_path):
    trace = TraceBuilder().memcpy("HtoD", start_ns=0, end_ns=90, size_bytes=9_000)
    trace.kernel("nvjet_a", start_ns=100, end_ns=200)
    trace.memcpy("HtoD", start_ns=200, end_ns=210, size_bytes=8)
    path = trace.write_sqlite(tmp_path / "rank0.sqlite")
    tables = quick("llm_hotspots", path)
    assert rows(tables["overlap"], COLUMNS) == [(10, 0, 0)]
    assert ("load", 90) in rows(tables["wall"], "wall_class time_ns")

"""Overheads of a rank, and what is said of model load, cold start and the profiler."""

from __future__ import annotations

import pytest
from quick_run import quick
from results import read_report, rows, tables_of
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_hotspots.findings.answer import caveats

COLUMNS = "owner kind events_n union_ns gpu_idle_ns first_start_ns"


def overhead_caveats(out):
    caveats = read_report(out)["report"]["caveats"]
    return [text for text in caveats if "inside the window" in text or "profiler" in text]


@pytest.fixture
def trace(tmp_path):
    """Kernels 10-20 and 40-50; flushes 18-26 and 22-30, one before all; a module load 44-48."""
    report = TraceBuilder().kernel("a", start_ns=10, end_ns=20).kernel("a", start_ns=40, end_ns=50)
    report.overhead("CUPTI Buffer flush", start_ns=18, end_ns=26, overhead_type=3)
    report.overhead("CUPTI Buffer flush", start_ns=22, end_ns=30, overhead_type=3, tid=7)
    report.overhead("CUPTI Buffer flush", start_ns=1, end_ns=9, overhead_type=3)
    report.overhead("Module loading", start_ns=44, end_ns=48, overhead_type=6)
    return report.write_sqlite(tmp_path / "rank0.sqlite")


@pytest.mark.slow
def test_overhead_is_summed_by_owner_and_kind_inside_the_window(trace, tmp_path):
    tables = tables_of(tmp_path / "out", trace, whole=True)
    # 18-26 and 22-30 cover 12; the GPU is busy until 20: 10 of them idle. The
    # flush that ended before the first kernel is outside. The module load hides behind a kernel.
    assert rows(tables["overheads"], COLUMNS) == [
        ("application", None, 1, 4, 0, 44),
        ("application", "module loading", 1, 4, 0, 44),
        ("profiler", None, 2, 12, 10, 18),
        ("profiler", "buffer flush", 2, 12, 10, 18),
    ]
    cold, profiler = overhead_caveats(tmp_path / "out")
    assert cold.startswith(
        "Code ran for the first time inside the window (module loading): up to 4 ns"
    )
    # 12 ns of a window of 40.
    assert "up to 12 ns of the window (30.0 %, rank 0); the GPU was idle for 10 ns" in profiler


def test_a_filter_cuts_overhead_too(trace, tmp_path):
    tables = tables_of(tmp_path / "out", trace, options=["--filter-time", "25/45"])
    # 25-26 and 25-30 cover 5; 44-45 of the module load.
    assert rows(tables["overheads"], COLUMNS)[::2] == [
        ("application", None, 1, 1, 0, 44),
        ("profiler", None, 2, 5, 5, 25),
    ]


def caveats_of(folder, *ranks):
    for number, trace in enumerate(ranks):
        trace.kernel("k", start_ns=0, end_ns=10_000).write_sqlite(folder / f"rank{number}.sqlite")
    return caveats(quick("llm_hotspots", folder))


def test_a_gigabyte_to_the_gpu_looks_like_a_model(tmp_path):
    sizes = 999_999_999, 1_000_000_000, 1_500_000_000
    ranks = [TraceBuilder().memcpy("HtoD", start_ns=1, end_ns=5, size_bytes=size) for size in sizes]
    (caveat,) = caveats_of(tmp_path, *ranks)
    assert caveat.startswith("Up to 1.5 GB were copied from the host to the GPUs of a rank")
    assert "(rank 2; 2 ranks above 1 GB)" in caveat


@pytest.mark.parametrize(("profiler_ns", "said"), [(9, []), (10, ["(0.10 %, rank 0)"])])
def test_the_profiler_is_spoken_of_from_a_thousandth_of_the_window(tmp_path, profiler_ns, said):
    trace = TraceBuilder()
    trace.overhead("CUPTI Buffer flush", start_ns=5, duration_ns=profiler_ns, overhead_type=3)
    for caveat, words in zip(caveats_of(tmp_path, trace), said, strict=True):
        assert words in caveat

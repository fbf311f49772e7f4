"""Exposed copies by direction, against a count of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from effort import seeds
from quick_run import quick
from results import rows
from trace_builder import TraceBuilder

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

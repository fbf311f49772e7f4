"""Ranges with times that no capture can have are none: tables are those of a run without them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.core.nulls import NULL_INT

RECIPES = ("nvtx_phase_attribution", "step_budget", "trace_diff")
#: Of files: their size. Where ranges are counted, a damaged one is an empty one.
EXCEPT = ("files", "marks")


def server() -> TraceBuilder:
    """Return six steps of two kernels, a range around one launch and one around none."""
    trace = TraceBuilder(duration_ns=10_000)
    for begin in range(0, 6_000, 1_000):
        trace.nvtx("forward", begin + 10, begin + 95).nvtx("host work", begin + 700, begin + 800)
        trace.kernel("a", start_ns=begin + 100, duration_ns=90, launch=(begin + 50, begin + 60))
        trace.kernel("b", start_ns=begin + 200, duration_ns=90, launch=(begin + 100, begin + 160))
    return trace


@pytest.fixture(scope="module", params=RECIPES)
def run(request, tmp_path_factory):
    """Return a function that runs a recipe over a trace, and its tables of a sound one."""
    folder = tmp_path_factory.mktemp(request.param)
    words = []
    if request.param == "trace_diff":
        words = ["--baseline", str(server().write_sqlite(folder / "baseline.sqlite"))]

    def tables(trace: TraceBuilder) -> dict[str, Any]:
        path = folder / "rank0.sqlite"
        path.unlink(missing_ok=True)
        return quick(request.param, trace.write_sqlite(path), *words)

    return tables, tables(server())


@pytest.mark.parametrize("kind", ["push_pop", "start_end"])
@pytest.mark.parametrize(
    "times",
    [
        (NULL_INT, 5_060),
        (NULL_INT, 0),
        (-(2**62), 5_060),
        (1_050, 2**63 - 1),
        (-(2**63) + 1, 2**63 - 1),
    ],
)
def test_a_range_without_times_that_a_capture_can_have_changes_nothing(run, times, kind):
    tables, sound = run
    damaged = tables(server().nvtx("decode", *times, kind=kind))
    assert damaged.keys() == sound.keys()
    for name in sound.keys() - set(EXCEPT):
        pd.testing.assert_frame_equal(damaged[name], sound[name], obj=name)
    if "marks" in sound:
        empty_n = [int(some["marks"]["empty_n"].sum()) for some in (sound, damaged)]
        assert empty_n == [0, 1]

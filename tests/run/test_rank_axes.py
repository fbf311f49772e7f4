"""On which axis the times of a rank stand, and where that begins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nsys_llm.numeric.clock_lines import ClockLine
from nsys_llm.run.perfetto import Axis, rank_axes
from nsys_llm.trace.identity import Rank, RankKey


def axes_of(*clocks):
    """Return the axes of ranks of which files tell (offset, source)."""
    ranks = [
        Rank(RankKey(f"/in/rank{number}", 1), number, f"rank{number}", "file_name", None)
        for number in range(len(clocks))
    ]
    offset_ns, source = zip(*clocks, strict=True)
    columns = {"File": [rank.file for rank in ranks], "clock_source": source}
    files = pd.DataFrame({**columns, "clock_offset_ns": pd.array(offset_ns, dtype="Int64")})
    axes = rank_axes(None, {"files": files}, ranks)
    return [axes[rank.file] for rank in ranks]


def test_an_axis_begins_where_the_first_capture_that_is_shown_does():
    axes = axes_of((700, "systemClockNs"), (200, "systemClockNs"), (900, "systemClockNs"))
    assert [axis.window((0, 10)) for axis in axes] == [(500, 510), (0, 10), (700, 710)]
    assert [axis.own_window((500, 510)) for axis in axes] == [(0, 10), (500, 510), (-200, -190)]
    assert {axis.name for axis in axes} == {""}
    assert {axis.says for axis in axes} == {""}


def test_ranks_without_a_clock_have_an_axis_each():
    axes = axes_of((None, None), (None, None))
    assert len({axis.name for axis in axes}) == 2
    assert [axis.window((5, 7)) for axis in axes] == [(5, 7)] * 2
    assert [axis.says for axis in axes] == ["clock of its own"] * 2


@pytest.mark.parametrize(("ranks_n", "says"), [(1, ""), (2, "clock as exact as NTP")])
def test_how_exact_a_clock_is_stands_where_there_are_others(ranks_n, says):
    axes = axes_of(*[(0, "utcEpochNs")] * ranks_n)
    assert [axis.says for axis in axes] == [says] * ranks_n


@pytest.mark.parametrize("rate", [-150e-6, 0.0, 20e-6])
def test_windows_come_back_to_the_nanosecond_and_times_keep_their_order(rate):
    axis = Axis("", "", 1_310_000, ClockLine(-77_000, rate, 5_000_000_000), 40_000)
    times_ns = np.sort(np.random.default_rng(1).integers(0, 60_000_000_000, 1_000))
    on_axis = axis.on_axis(times_ns)
    assert (np.diff(on_axis) >= 0).all()
    for window_ns in zip(times_ns[:-1].tolist(), times_ns[1:].tolist(), strict=True):
        back = axis.own_window(axis.window(window_ns))
        assert max(abs(back[0] - window_ns[0]), abs(back[1] - window_ns[1])) <= 1

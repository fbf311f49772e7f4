"""What an overview says of its profiles, its comparison does not say again."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run
from trace_builder import TraceBuilder

from nsys_llm.run import runner

pytestmark = pytest.mark.slow


def folder(place: Path, *damaged: int) -> Path:
    """Return a folder of two ranks, of which some are no profiles."""
    place.mkdir()
    for rank in range(2):
        path = place / f"rank{rank}.sqlite"
        if rank in damaged:
            path.write_bytes(b"no database" * 99)
        else:
            report = TraceBuilder()
            for begun in range(9):
                report.kernel("k", start_ns=100 * begun, duration_ns=60)
            report.write_sqlite(path)
    return place


@pytest.mark.nightly("before")
@pytest.mark.parametrize("damaged", ["after", "before"])
def test_a_damaged_profile_is_said_once_by_an_overview_with_a_baseline(tmp_path, damaged):
    sides = {
        side: folder(tmp_path / side, *[1] * (side == damaged)) for side in ("before", "after")
    }
    words = ("--input", sides["after"], "--baseline", sides["before"], "--output", tmp_path / "out")
    ended = run(*words, recipe="overview")
    assert ended.code == 3
    assert [sum(word in line for line in ended.errors) for word in ("rank1", "incomplete")] == [
        1,
        1,
    ]


def test_a_rank_map_that_leaves_out_the_baseline_is_refused_before_anything_is_read(
    tmp_path, monkeypatch
):
    sides = [folder(tmp_path / side) for side in ("before", "after")]
    (tmp_path / "map.csv").write_text("file,rank\nrank0,0\nrank1,1\n")
    monkeypatch.setattr(runner, "map_run", None)
    words = ("--input", sides[1], "--baseline", sides[0], "--rank-map", tmp_path / "map.csv")
    ended = run(*words, "--output", tmp_path / "out", recipe="overview")
    assert ended.code == 2
    assert "gives no rank to" in ended.errors[0]

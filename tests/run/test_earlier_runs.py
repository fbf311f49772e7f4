"""Profiles of several runs: the newest is analyzed, the others are named, and never are one job."""

from __future__ import annotations

import pytest
from results import read_frames
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ExitCode
from nsys_llm.run.cli import main

S, MS = 1_000_000_000, 1_000_000


def capture(path, *, minute=0, pid=1, gpu=0, kernels_n=10, **variables):
    trace = TraceBuilder(
        utc_epoch_ns=10**18 + minute * 60 * S, system_clock_ns=(60 * minute + 9) * S
    )
    trace.process(pid=pid, gpu_ids=(gpu,)).environment(**variables)
    for nth in range(kernels_n):
        trace.kernel(
            "gemm", start_ns=nth * MS + 1, duration_ns=MS // 2, launch=(nth * MS, nth * MS + 1)
        )
    path.parent.mkdir(exist_ok=True)
    return trace.write_sqlite(path)


def run(output, *words):
    given = ["--quiet", "--mode", "none", "--output", output, "--input", *words]
    return main(["llm_hotspots", *map(str, given)])


def checked(capsys, *paths):
    code = main(["check", *map(str, paths)])
    return code, " ".join(capsys.readouterr().out.split())


@pytest.fixture
def runs(tmp_path):
    """Two runs of two ranks in folders of their own."""
    for minute, name in enumerate(("before", "after")):
        for rank in range(2):
            path = tmp_path / "runs" / name / f"rank{rank}.sqlite"
            path.parent.parent.mkdir(exist_ok=True)
            known = {"minute": minute, "pid": 10 * minute + rank, "gpu": rank}
            capture(path, **known, kernels_n=20 + 10 * minute)
    return tmp_path / "runs"


@pytest.mark.slow
def test_the_newest_run_is_analyzed_and_the_others_are_named(runs, tmp_path, capsys):
    assert run(tmp_path / "out", runs) == ExitCode.INCOMPLETE
    assert "trace_diff --baseline before --input after" in capsys.readouterr().err
    tables = read_frames(tmp_path / "out")
    statuses = tables["files"]["status"].tolist()
    assert statuses == ["ok", "ok", "earlier_run", "earlier_run"]
    assert tables["coverage"]["total_n"].loc[lambda counts: counts > 0].tolist() == [30, 30]
    said = tables["capture"]
    assert said["file"].tolist() == ["before/rank0", "before/rank1"]
    assert set(said["name"]) == {"nsys-llm trace_diff --baseline before --input after"}


@pytest.mark.slow
@pytest.mark.nightly
def test_ranks_are_those_of_the_newest_run(runs, tmp_path):
    run(tmp_path / "out", runs, "--ranks", "1")
    files = read_frames(tmp_path / "out")["files"]
    assert files["File"].tolist() == ["after/rank1", "before/rank0", "before/rank1"]


def test_a_check_names_earlier_runs(runs, capsys):
    code, shown = checked(capsys, runs)
    assert code == ExitCode.INCOMPLETE
    assert "2 earlier profiles are left out" in shown
    assert "2 with GPU work in 2 profiles" in shown
    assert "nsys-llm trace_diff --baseline before --input after." in shown


@pytest.mark.parametrize(
    ("first", "second", "twice"),
    [
        (("a", "0"), ("b", "0"), True),
        (("rank0", "0"), ("rank1", "0"), True),
        (("rank0", "0"), ("rank1", "1"), False),
        (("read_rank0", "0"), ("write_rank0", "0"), True),  # nothing tells that these are groups
    ],
)
def test_a_check_says_that_a_rank_is_there_twice(tmp_path, capsys, first, second, twice):
    for pid, (name, rank) in enumerate((first, second), start=1):
        capture(tmp_path / f"{name}.sqlite", pid=pid, gpu=pid, RANK=rank)
    code, shown = checked(capsys, tmp_path)
    assert (code == ExitCode.INCOMPLETE) is twice
    assert ("2 profiles claim the rank of another profile" in shown) is twice


def test_two_servers_whose_ranks_have_the_same_numbers_are_fit(tmp_path, capsys):
    for pid, name in enumerate(("read_rank0", "read_rank1", "write_rank0", "write_rank1")):
        capture(tmp_path / f"{name}.sqlite", pid=pid, gpu=pid, RANK=name[-1])
    assert checked(capsys, tmp_path)[0] == ExitCode.DONE


def test_two_jobs_of_one_rank_are_fit(tmp_path, capsys):
    for pid, name in enumerate(("read", "write")):
        capture(tmp_path / f"{name}.sqlite", pid=pid, gpu=pid, RANK="0", WORLD_SIZE="1")
    assert checked(capsys, tmp_path)[0] == ExitCode.DONE

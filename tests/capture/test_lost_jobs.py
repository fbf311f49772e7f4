"""What a user reads of a capture that lacks work: first, with count, when and why."""

import sqlite3

import pytest
from capture.lost_jobs import MS, OLD_BUILD, say, steps
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.run.cli import main


def processes(path, *, silent=(101, 102, 103)):
    """Return a file of four processes, of which some have calls and no rows."""
    trace = TraceBuilder()
    for pid in (100, 101, 102, 103):
        trace.process(pid=pid, name="Worker")
        steps(trace, 12, pid=pid, lost=range(12) if pid in silent else ())
    return trace.write_sqlite(path)


def shown(capsys, *words):
    """Return how a command ends, and what it prints in one line."""
    code = main([*map(str, words)])
    return code, " ".join(capsys.readouterr().out.split())


def overview(capsys, tmp_path, *paths):
    return shown(
        *(capsys, "overview", "--input", *paths, "--output", tmp_path / "out", "--mode", "none")
    )


@pytest.mark.slow
def test_lost_buffers_are_said_first_and_no_cause_is_told_of_them(tmp_path, capsys):
    trace = steps(TraceBuilder(), 30, lost=range(10, 18))
    path = trace.write_sqlite(tmp_path / "rank0.sqlite")
    code, text = overview(capsys, tmp_path, path)
    assert code == 0
    assert text.startswith("160 kernels were launched and not recorded, between 9.1 ms and 15.6 ms")
    assert "8 of 30 steps not recorded" in text
    assert "not recorded 26.6 %" in text
    assert "22 steps of" not in text  # nor is a step of nine times the usual one
    assert "Synchronize" not in text  # no wait of the host is to be blamed
    code, text = shown(capsys, "check", path)
    assert code == 3
    assert "160 kernels were launched and not recorded" in text


def test_a_process_without_rows_is_counted_beside_the_others(tmp_path, capsys):
    path = processes(tmp_path / "job.sqlite")
    code, text = shown(capsys, "check", path)
    assert code == 3
    assert "3 of 4 processes launched 720 kernels that were not recorded" in text
    assert "Ranks cannot be compared" in text
    tables = quick("llm_hotspots", path)
    first = tables["findings"]["rule"].tolist()
    assert "silent_processes" in first
    assert not {"slow_rank", "late_rank"} & set(first)
    kinds = tables["capture"].groupby("kind")["count_n"].sum().to_dict()
    assert kinds == {"silent_processes": 3, "silent_work": 720}


@pytest.mark.slow
def test_steps_of_lost_work_are_in_no_statistic(tmp_path):
    path = steps(TraceBuilder(), 30, lost=range(10, 18)).write_sqlite(tmp_path / "rank0.sqlite")
    (rank,) = quick("llm_overview", path)["ranks"].to_dict("records")
    assert [rank[name] for name in ("steps_n", "every_step_n", "unrecorded_n")] == [22, 30, 8]
    # 20 kernels of 40 us, and what the host takes before and behind them.
    assert 800_000 < rank["step_ns"] < 825_000
    assert rank["idle_ns"] < 0.02 * rank["span_ns"] < rank["not_recorded_ns"]


@pytest.mark.parametrize(
    ("lost", "rule", "title"),
    [
        (
            range(12),
            "silent_processes",
            "1 of 2 processes launched 240 kernels that were not recorded",
        ),
        (
            range(3, 6),
            "lost_work",
            "60 kernels of rank 1 were launched and not recorded, between 3.43 ms and 5.86 ms",
        ),
    ],
)
def test_ranks_in_files_of_their_own_are_counted_or_named(tmp_path, lost, rule, title):
    paths = [
        steps(TraceBuilder(), 12, lost=some).write_sqlite(tmp_path / f"rank{rank}.sqlite")
        for rank, some in enumerate(((), lost))
    ]
    findings = quick("llm_hotspots", *paths)["findings"]
    titles = dict(zip(findings["rule"], findings["title"], strict=True))
    assert titles[rule] == title
    assert "no_gpu_work" not in titles


@pytest.mark.slow
def test_what_nsight_systems_said_is_the_reason_of_missing_work(tmp_path, capsys):
    path = steps(TraceBuilder(), 12, lost=range(12)).write_sqlite(tmp_path / "rank0.sqlite")
    say(path, OLD_BUILD, "Not all CUDA events might have been collected.", "Cannot read /home/me")
    text = overview(capsys, tmp_path, path)[1]
    assert "240 kernels were launched, and none was recorded" in text
    assert "CUDA driver 13.1 is not supported by this build of Nsight Systems" in text
    assert "Record again with a newer Nsight Systems" in text
    assert "Nothing ran" not in text
    assert "/home/me" not in text
    unknown = quick("llm_hotspots", path)["capture"].set_index("kind").loc["unknown_messages"]
    assert (unknown["count_n"], bool(unknown["limits"])) == (1, False)


@pytest.mark.parametrize(
    "message",
    [
        OLD_BUILD,
        "CUDA profiling might have not been started correctly.",
        "Not all CUDA events might have been collected.",
        "CUDA device 0: Unified Memory cannot be traced on devices that don't support "
        "peer-to-peer transfers.",
        "Event buffers overflowed.",
    ],
)
def test_alarming_messages_of_a_whole_capture_change_nothing(tmp_path, capsys, message):
    path = steps(TraceBuilder(), 12).write_sqlite(tmp_path / "rank0.sqlite")
    say(path, message, severity=3)
    code, text = shown(capsys, "check", path)
    assert code == 0
    assert "no missing work" in text


def test_a_message_of_another_process_is_no_reason(tmp_path, capsys):
    path = processes(tmp_path / "job.sqlite", silent=(101,))
    with sqlite3.connect(path) as db:
        query = "SELECT globalPid FROM PROCESSES WHERE pid = ?"
        (whole,), (lacking,) = (db.execute(query, (pid,)).fetchone() for pid in (100, 101))
    db.close()
    say(path, OLD_BUILD, process=whole)
    assert "13.1" not in shown(capsys, "check", path)[1]
    say(path, OLD_BUILD, process=lacking)
    assert "13.1" in shown(capsys, "check", path)[1]


def test_work_that_nobody_waits_for_may_have_run_later(tmp_path, capsys):
    trace = steps(TraceBuilder(), 12)
    for number in range(5):
        at = 50 * MS + number
        trace.api("cudaLaunchKernel_v7000", start_ns=at, end_ns=at + 1)
        trace.api("cudaLaunchKernel_v7000", start_ns=at, end_ns=at + 1, pid=200)
    code, text = shown(capsys, "check", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    assert code == 0
    assert "5 launches may have run only after the end of the capture" in text
    assert "5 launches of 1 process without any row" in text


def test_graphs_without_rows_are_no_idle_gpu(tmp_path, capsys):
    trace, at = TraceBuilder(), MS
    for _ in range(64):
        trace.kernel("nvjet_tst_a", start_ns=at + 8_000, duration_ns=5_000, launch=(at, at + 4_000))
        trace.api("cudaGraphLaunch_v10000", start_ns=at + 5_000, duration_ns=20_000)
        trace.api("cudaStreamSynchronize_v3020", start_ns=at + 26_000, end_ns=at + MS)
        at += MS + 5_000
    tables = quick("idle_gaps", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    titles = dict(zip(tables["findings"]["rule"], tables["findings"]["title"], strict=True))
    assert titles["lost_work"].startswith("64 CUDA graphs were launched and not recorded, between")
    assert tables["findings"]["record"].tolist() == ["--cuda-graph-trace=node"]
    wall = tables["wall"].set_index("wall_class")["share_pct"]
    assert wall["not_recorded"] > 95
    assert wall["idle"].sum() < 4


def test_broken_times_are_no_lost_work(tmp_path):
    trace = steps(TraceBuilder(), 12)
    for number in range(10):
        at = 10 * MS + number * 10_000
        trace.kernel("k", start_ns=0, end_ns=0, launch=(at, at + 4_000))
    capture = quick("llm_hotspots", trace.write_sqlite(tmp_path / "rank0.sqlite"))["capture"]
    assert capture["kind"].tolist() == ["broken_times"]

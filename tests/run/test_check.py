"""`nsys-llm check`: what captures hold and lack, with its exit codes."""

from __future__ import annotations

from trace_builder import TraceBuilder

from nsys_llm.run.cli import main

MS = 1_000_000


def capture(path, broken_n=0):
    trace = TraceBuilder()
    for start_ms in range(10, 20):
        trace.kernel("gemm", start_ns=start_ms * MS, duration_ns=MS // 2)
    for _ in range(broken_n):
        trace.kernel("gemm", start_ns=0, duration_ns=0)
    return trace.write_sqlite(path)


def checked(capsys, *paths):
    code = main(["check", *map(str, paths)])
    printed = capsys.readouterr()
    return code, " ".join(printed.out.split()), printed.err


def test_a_whole_capture_is_fit(tmp_path, capsys):
    code, shown, _ = checked(capsys, capture(tmp_path / "rank0.sqlite"))
    assert code == 0
    assert "1 with GPU work in 1 profile" in shown
    assert "no missing work" in shown


def test_what_limits_it_is_said_with_its_count(tmp_path, capsys):
    code, shown, _ = checked(capsys, capture(tmp_path / "rank0.sqlite", broken_n=3))
    assert code == 3
    assert "3 of 13 GPU operations have no usable times and are left out" in shown


def test_of_a_profile_that_cannot_be_read_nothing_is_claimed(tmp_path, capsys):
    capture(tmp_path / "rank0.sqlite")
    whole = (tmp_path / "rank0.sqlite").read_bytes()
    (tmp_path / "rank1.sqlite").write_bytes(whole[: len(whole) // 2])
    for paths, expected in ([tmp_path], 3), ([tmp_path / "rank1.sqlite"], 2):
        code, shown, errors = checked(capsys, *paths)
        assert code == expected
        assert "rank1.sqlite: truncated" in errors
        assert "no missing work" not in shown


def test_graphs_traced_as_a_whole_are_said(tmp_path, capsys):
    trace = TraceBuilder()
    trace.graph_launch([("gemm", 2 * MS, 3 * MS)], launch=(MS, MS + 9_000), mode="graph")
    code, shown, _ = checked(capsys, trace.write_sqlite(tmp_path / "rank0.sqlite"))
    assert code == 3
    assert "1 CUDA graph was traced as a whole: the kernels in it are not recorded" in shown
    assert "--cuda-graph-trace=node" in shown


def test_of_what_cannot_be_read_nothing_can_be_said(tmp_path, capsys):
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"no database")
    assert checked(capsys, bad)[0] == 2
    code, _, told = checked(capsys, bad, capture(tmp_path / "rank0.sqlite"))
    assert code == 3
    assert "bad" in told


def test_a_path_that_is_not_there_is_said(tmp_path, capsys):
    code, _, told = checked(capsys, tmp_path / "nothing.sqlite")
    assert code == 2
    assert "does not exist" in told


def test_ranks_that_see_all_gpus_share_none(tmp_path, capsys):
    for rank in range(2):
        trace = TraceBuilder().process(pid=5 + rank, gpu_ids=(0, 1))
        trace.kernel("gemm", start_ns=MS, duration_ns=MS, pid=5 + rank, device_id=rank)
        trace.write_sqlite(tmp_path / f"rank{rank}.sqlite")
    code, shown, _ = checked(capsys, tmp_path)
    assert code == 0
    assert "no missing work" in shown

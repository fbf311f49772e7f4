"""CUDA graphs: sums over the planted operations, and replays that were traced whole."""

from __future__ import annotations

import pytest
from effort import seeds
from quick_run import quick
from results import rows
from serving_plants import Server
from trace_builder import TraceBuilder

GRAPHS = (1, 2, 4, 8, 16)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 1))
def test_graphs_are_those_planted(seed, tmp_path):
    run = Server("vllm", graphs=GRAPHS, slots_n=12, arrivals=0.3, empty_ns=2_000_000).run(seed)
    tables = quick("llm_hotspots", run.write(tmp_path / "rank0.sqlite"))
    graphs = {row[0]: row[1:] for row in rows(
        tables["cuda_graphs"],
        "captured_size nodes_n replays_n span_ns busy_ns gaps_ns batch_max padding_rows",
    )}  # fmt: skip
    sizes = {step.graph for step in run.steps if step.graph}
    assert graphs.keys() == sizes
    for size in sizes:
        some = [step for step in run.steps if step.graph == size]
        span_ns = sum(step.ops[-1][1] - step.ops[0][0] for step in some)
        busy_ns = sum(end - start for step in some for start, end in step.ops)
        tokens = [step.fields["gen_tokens"] for step in some]
        assert graphs[size] == (
            *(len(some[0].ops), len(some), span_ns, busy_ns, span_ns - busy_ns),
            *(max(tokens), size * len(some) - sum(tokens)),
        )
    # Kernels of graphs and all others are all that ran.
    nodes_n = sum(row[0] * row[1] for row in graphs.values())
    launched = dict(rows(tables["coverage"], "op total_n"))["kernel"]
    assert launched - nodes_n == len(run.ops) - sum(len(s.ops) for s in run.steps if s.graph)


@pytest.mark.slow
def test_where_the_grid_does_not_tell_the_size_is_at_least_the_largest_batch(tmp_path):
    trace = TraceBuilder()
    for step in range(4):
        begin = 1_000 + 1_000 * step
        trace.nvtx(f"execute_context_0(0)_generation_3({3 + step % 2})", begin, begin + 300)
        nodes = [("gemm", begin + 320, begin + 400), ("attention", begin + 450, begin + 500)]
        trace.graph_launch(nodes, launch=(begin + 10, begin + 200))
    path = trace.write_sqlite(tmp_path / "rank0.sqlite")
    columns = "captured_size batch_max padding_rows queued_n launch_to_first_ns"
    (row,) = rows(quick("llm_hotspots", path)["cuda_graphs"], columns)
    assert row == (None, 4, None, 0, 310)
    (row,) = rows(quick("llm_hotspots", path, "--capture-sizes", "2,8")["cuda_graphs"], columns)
    assert row == (8, 4, 2 * 5 + 2 * 4, 0, 310)


def traced(mode, lengths_ns=(900, 940, 910), apart_ns=60):
    trace, at_ns = TraceBuilder(), 1_000
    for length_ns in lengths_ns:
        trace.graph_launch(
            [("k", at_ns, at_ns + length_ns)], launch=(at_ns - 90, at_ns - 80), mode=mode
        )
        at_ns += length_ns + apart_ns
    return trace.kernel("k", start_ns=at_ns, duration_ns=10)


def test_replays_of_a_whole_graph_are_told_with_spread_and_flag(tmp_path):
    tables = quick("llm_hotspots", traced("graph").write_sqlite(tmp_path / "r.sqlite"))
    (row,) = tables["cuda_graphs"].to_dict("records")
    expected = {"replays_n": 3, "p50_ns": 910.0, "min_ns": 900, "max_ns": 940}
    expected |= {"span_ns": 2750, "between_p50_ns": 60.0, "graph": "1"}
    assert {name: row[name] for name in expected} == expected
    findings = tables["findings"].set_index("rule")
    remark = findings.loc["whole_graphs"]
    # 40 of 910 ns; 2,750 ns of the span of 2,750 + 3 x 60 + 10.
    assert remark["title"].startswith(
        "3 replays of a whole CUDA graph take 910 ns each, 60 ns apart: "
    )
    assert (
        "1 whole graph takes 93.5 % of the time; replays of this one 900 ns to" in remark["details"]
    )
    assert remark["record"] == "--cuda-graph-trace=node"


def test_one_replay_has_nothing_between(tmp_path):
    path = traced("graph", lengths_ns=(900,)).write_sqlite(tmp_path / "r.sqlite")
    tables = quick("llm_hotspots", path)
    assert tables["cuda_graphs"]["between_p50_ns"].isna().all()
    title = tables["findings"].set_index("rule").loc["whole_graphs", "title"]
    assert title.startswith("1 replay of a whole CUDA graph takes 900 ns each: ")


def test_graphs_traced_by_nodes_are_none(tmp_path):
    tables = quick("llm_hotspots", traced("node").write_sqlite(tmp_path / "r.sqlite"))
    assert tables["cuda_graphs"]["nodes_n"].tolist() == [1]
    assert "whole_graphs" not in set(tables["findings"]["rule"])


@pytest.mark.traces
def test_the_real_whole_graphs(traces):
    tables = quick("llm_hotspots", traces / "public" / "whole_graphs_a100.sqlite")
    (row,) = tables["cuda_graphs"].to_dict("records")
    # SELECT count(*), min(end - start), max(end - start), ... FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE
    assert (row["replays_n"], row["min_ns"], row["max_ns"]) == (10, 781031802, 781620938)
    assert row["between_p50_ns"] == 17184.0

"""Whole-graph traces: replays, their spread, the time between them, and the flag."""

from __future__ import annotations

import pytest
from quick_run import quick
from trace_builder import TraceBuilder


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

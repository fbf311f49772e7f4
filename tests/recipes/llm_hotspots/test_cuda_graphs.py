"""CUDA graphs, against sums over the planted operations."""

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

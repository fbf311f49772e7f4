"""The answer of trace_diff in two sentences, on runs with planted changes."""

from __future__ import annotations

import re

import pytest
from diff_jobs import Job, compare
from rendered import HOSTILE_NAMES
from trace_builder import TraceBuilder


def run(path, *kernels, idle_ns=0, graph=False):
    """Write a run that calls each (name, ns) in turn, each launched 100 ns before it runs."""
    trace = TraceBuilder(hostname="node").process(pid=1, name="server")
    at = 10_000
    for _ in range(40):
        if graph:
            nodes, start = [], at
            for name, length in kernels:
                nodes.append((name, start, start + length))
                start += length
            trace.graph_launch(nodes, launch=(at - 900, at - 800))
            at = start + idle_ns + 1_000
            continue
        for name, length in kernels:
            trace.kernel(name, start_ns=at, duration_ns=length, launch=(at - 150, at - 100))
            at += length + 1_000
        at += idle_ns
    return trace.write_sqlite(path)


GEMM, NORM, ACT = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "rms_norm_kernel", "silu_kernel"
MODEL = (GEMM, 50_000), (NORM, 8_000), (ACT, 12_000)


@pytest.mark.slow
def test_lost_cuda_graphs_are_seen(tmp_path):
    before = run(tmp_path / "a.sqlite", *MODEL, graph=True)
    after = run(tmp_path / "b.sqlite", *MODEL, idle_ns=60_000)
    said = compare(tmp_path, before, after)
    assert "kernels are launched one by one" in said.answer
    checks = said.tables["comparability"].set_index("check")["status"]
    assert checks["CUDA graphs"] == "differs"


WORDS = ["title", "details", "recommendation"]
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def ranks(folder, late_ns, transfer_ns=5_000):
    """Write two ranks that meet in 30 collectives; rank 1 comes late to each."""
    folder.mkdir()
    for rank in range(2):
        trace = TraceBuilder(hostname="node", system_clock_ns=1_000).process(pid=rank + 1, name="w")
        for index in range(30):
            at = 200_000 * index + 10_000
            work = 50_000 + (late_ns if rank else 0)
            trace.kernel(GEMM, start_ns=at, duration_ns=work)
            meet = at + 50_000 + late_ns
            trace.kernel(NCCL, start_ns=at + work, end_ns=meet + transfer_ns)
        trace.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "waiting_ns", "transfer_ns"),
    [
        # 30 collectives in which rank 0 waits 20 us; of two ranks that take 1 us longer.
        ({"late_ns": 20_000}, 600_000, 0),
        ({"late_ns": 0, "transfer_ns": 6_000}, 0, 60_000),
    ],
)
def test_a_late_rank_is_waiting_and_a_slower_network_transfer_of_each_rank(
    tmp_path, changed, waiting_ns, transfer_ns
):
    before = ranks(tmp_path / "before", late_ns=0)
    whole = compare(tmp_path, before, ranks(tmp_path / "after", **changed)).tables["collectives"]
    columns = ["wait_change_ns", "transfer_change_ns", "change_ns"]
    sums_ns = [waiting_ns, transfer_ns, waiting_ns + transfer_ns]
    assert whole[columns].iloc[0].tolist() == sums_ns
    if waiting_ns:
        assert whole["input_late_rank"].iloc[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_same", [True, False])
def test_hostile_names_are_quoted(tmp_path, is_same):
    slower, gone, come, link = (HOSTILE_NAMES[at] for at in (0, 2, 18, 7))
    before = Job(((slower, 60_000, 64, 4), (gone, 9_000, 64, 4), (link, 9_000, 64, 4)), slower)
    after = ((slower, 90_000, 64, 4), (come, 7_000, 64, 4), (link, 20_000, 64, 4))
    late = {"late_ns": {4: 900_000, 19: 900_000}, "late_range": come}
    said = compare(tmp_path, before, Job(after, slower if is_same else link, **late))
    assert ("slower_calls" in said.rules) == is_same
    texts = [said.answer, *said.tables["findings"][WORDS].to_numpy().ravel().tolist()]
    assert "alert(#)" in said.answer or "alert(1)" in said.answer
    for text in texts:
        plain = re.sub("`[^`]*`", "", text).replace("->", "")
        assert not re.search("<|alert|evil", plain), text

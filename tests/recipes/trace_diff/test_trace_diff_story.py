"""The answer of trace_diff in two sentences, on runs with planted changes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from diff_pairs import ATTENTION, NEW_GEMMS, OLD_GEMMS, blog_pair
from finding_numbers import checked
from results import analyse, read_frames, read_report

from nsys_llm.testing.trace_builder import TraceBuilder
from nsys_llm.view.kernel_names import kernel_label


def compared_runs(folder, before, after, options=()):
    """Return the answer, the rules of the findings, and the tables of a run."""
    out = analyse(folder / "out", before, after, options=options, recipe="trace_diff")
    report = checked(read_report(out)["report"])
    return (
        report["answer"],
        {finding["rule"]: finding for finding in report["findings"]},
        read_frames(out),
    )


@pytest.fixture(scope="module")
def blog(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blog")
    return compared_runs(folder, *blog_pair(folder / "runs"))


def test_the_blog_s_numbers_stand_in_the_tables(blog):
    _, _, tables = blog
    kernels = tables["kernels"].set_index("name")
    assert kernels.loc[ATTENTION, "verdict"] == "regress"
    assert kernels.loc[ATTENTION, "mean_ratio"] == pytest.approx(5.15, abs=0.005)
    assert kernels.loc[ATTENTION, "count_effect_ns"] == 0
    assert set(kernels.index[kernels["status"] == "new"]) == set(NEW_GEMMS)
    assert set(kernels.index[kernels["status"] == "vanished"]) == set(OLD_GEMMS)
    # One old variant for each new one: same category, grid and number of calls.
    renames = kernels.loc[NEW_GEMMS, "rename"]
    assert set(renames) == set(OLD_GEMMS)
    memops = tables["memops"].set_index("kind").loc["DtoD"]
    assert (memops["baseline_operations_n"], memops["input_operations_n"]) == (29, 53)


def test_the_blog_s_label_is_the_short_name():
    assert kernel_label(ATTENTION) == "reshape_and_cache_flash_kernel"


def run(path, *kernels, host_ns=100, calls=40, idle_ns=0, graph=False):
    """Write a run that calls each (name, ns) in turn, each launched host_ns before the next."""
    trace = TraceBuilder(hostname="node").process(pid=1, name="server")
    at = 10_000
    for index in range(calls):
        if graph:
            nodes, start = [], at
            for name, length in kernels:
                nodes.append((name, start, start + length))
                start += length
            trace.graph_launch(nodes, launch=(at - 900, at - 800))
            at = start + idle_ns + 1_000
            continue
        for name, length in kernels:
            tick = 32 * (index % 3)
            trace.kernel(
                name,
                start_ns=at,
                duration_ns=length + tick,
                launch=(at - host_ns - 50, at - host_ns),
            )
            at += length + tick + 1_000
        at += idle_ns
    return trace.write_sqlite(path)


GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16 *)"
ACT = "void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16 *)"


def model(gemm=50_000, norm=8_000, act=12_000):
    return (GEMM, gemm), (NORM, norm), (ACT, act)


def test_a_slower_machine_is_no_slower_kernel(tmp_path):
    before = run(tmp_path / "a.sqlite", *model())
    after = run(tmp_path / "b.sqlite", *((name, ns * 12 // 10) for name, ns in model()))
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert "nearly all kernels take 20.0 % longer" in answer
    assert "the machine rather than the code" in findings["slower_throughout"]["recommendation"]


def test_one_slower_kernel_is_named_and_no_machine_blamed(tmp_path):
    before = run(tmp_path / "a.sqlite", *model())
    after = run(tmp_path / "b.sqlite", *model(norm=24_000))
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert f"`{NORM}`" in answer
    assert " times as long per call" in answer
    assert "early all" not in answer
    assert findings["slower_calls"]["severity"] == "high"


def test_fewer_steps_in_the_window_are_not_faster_kernels(tmp_path):
    before = run(tmp_path / "a.sqlite", *model(), calls=50)
    after = run(tmp_path / "b.sqlite", *model(), calls=40)
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert answer.startswith("SAME  ")
    assert not {"faster_calls", "fewer_calls"} & findings.keys()


def test_a_host_that_lags_is_told_from_slower_kernels(tmp_path):
    before = run(tmp_path / "a.sqlite", *model())
    after = run(tmp_path / "b.sqlite", *model(), idle_ns=60_000)
    answer, findings, _ = compared_runs(tmp_path, before, after)
    assert "mostly `host_no_cuda`" in findings["more_idle"]["details"]
    assert "kernel" not in answer.splitlines()[2]


def test_lost_cuda_graphs_are_seen(tmp_path):
    before = run(tmp_path / "a.sqlite", *model(), graph=True)
    after = run(tmp_path / "b.sqlite", *model(), idle_ns=60_000)
    answer, _, tables = compared_runs(tmp_path, before, after)
    assert "kernels are launched one by one" in answer
    checks = tables["comparability"].set_index("check")["status"]
    assert checks["CUDA graphs"] == "differs"


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


def test_a_late_rank_is_waiting_and_no_slower_network(tmp_path):
    before = ranks(tmp_path / "before", late_ns=0)
    after = ranks(tmp_path / "after", late_ns=20_000)
    _, _, tables = compared_runs(tmp_path, before, after)
    # 30 collectives in which rank 0 waits 20 us.
    whole = tables["collectives"].iloc[0]
    assert (whole["wait_change_ns"], whole["transfer_change_ns"], whole["leaving_change_ns"]) == (
        600_000,
        0,
        0,
    )
    assert whole["input_late_rank"] == 1


def test_a_run_and_itself_differ_in_nothing(tmp_path):
    before = run(tmp_path / "a.sqlite", *model(), calls=5)
    answer, findings, tables = compared_runs(tmp_path, before, before)
    assert answer.startswith("SAME  ")
    assert "Nothing changed: both runs have the same kernels, as often and as" in answer
    assert findings == {}
    for table in tables.values():
        for column in table.columns:
            if "change" in column and pd.api.types.is_numeric_dtype(table[column]):
                assert (table[column].dropna() == 0).all(), column


def test_runs_that_differ_by_chance_alone_have_no_findings(tmp_path):
    rng = np.random.default_rng(3)
    paths = []
    for name in ("a", "b"):
        trace = TraceBuilder().process(pid=1, name="x")
        at = 1_000
        for _ in range(100):
            for kernel, length in model():
                noisy = int(length * (1 + 0.02 * rng.standard_normal()) // 32 * 32)
                call = (at - 900, at - 800)
                trace.kernel(kernel, start_ns=at, duration_ns=noisy, launch=call)
                at += noisy + 1_000
        paths.append(trace.write_sqlite(tmp_path / f"{name}.sqlite"))
    answer, findings, tables = compared_runs(tmp_path, *paths)
    assert answer.startswith("SAME  ")
    assert findings == {}
    assert set(tables["kernels"]["verdict"]) == {"none"}

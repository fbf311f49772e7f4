"""With whom a GPU is compared, and how much longer its kernels are than chance makes them."""

from __future__ import annotations

import numpy as np
import pytest
from quick_run import quick
from test_tail_blame import REDUCE

from nsys_llm.recipes.tail_stats.findings.answer import answer
from nsys_llm.testing.trace_builder import TraceBuilder

STEPS = 40


def durations_ns(rng, usual_ns, factor=1.0, jitter=0.01):
    """Durations of one launch a step: what is usual, times a factor and jitter."""
    usual = np.broadcast_to(usual_ns, STEPS)
    return (usual * factor * (1 + jitter * rng.standard_normal(STEPS))).astype(np.int64)


def write_meetings(folder, compute_ns, device_of=lambda _: 0):
    """Write GPUs that compute, then meet in a reduction, in each step.

    Args:
        folder: Where to.
        compute_ns: Shape (gpus, steps).
        device_of: Whose device a GPU is; a process with one device has each, or one has all.
    """
    at_ns, builders = 1_000_000, {}
    several = len({device_of(gpu) for gpu in range(len(compute_ns))}) > 1
    for step_ns in compute_ns.T.tolist():
        end_ns = at_ns + max(step_ns) + 100_000
        for gpu, duration_ns in enumerate(step_ns):
            file = 0 if several else gpu
            builder = builders.setdefault(file, TraceBuilder().process(pid=100, name="python"))
            place = {"device_id": device_of(gpu), "context_id": gpu + 1, "tid": 100 + gpu}
            met_ns = at_ns + duration_ns + 10_000
            launch = (at_ns - 20_000 + gpu * 1_000, at_ns - 19_100 + gpu * 1_000)
            builder.kernel("gemm", start_ns=at_ns, duration_ns=duration_ns, launch=launch, **place)
            launch = (met_ns - 9_000, met_ns - 4_000)
            builder.kernel(REDUCE, start_ns=met_ns, end_ns=end_ns, launch=launch, **place)
        at_ns = end_ns + 40_000
    for file, builder in builders.items():
        builder.write_sqlite(folder / f"rank{file}.sqlite")
    return folder


def write_alone(folder, kernels_ns, stray=None):
    """Write ranks that never meet, the GPU of each with the number of its rank.

    Args:
        folder: Where to.
        kernels_ns: By rank, the durations of each kernel by name.
        stray: What the other ranks have on device 0: a kernel, a memset or None.
    """
    for rank, by_name in enumerate(kernels_ns):
        builder, at_ns = TraceBuilder().process(pid=100 + rank, name="python"), 1_000_000
        place = {"start_ns": 500_000, "duration_ns": 2_000, "device_id": 0, "context_id": 1}
        if stray == "kernel" and rank:
            builder.kernel("fill", launch=(490_000, 495_000), **place)
        if stray == "memset" and rank:
            builder.memset(size_bytes=64, launch=(490_000, 495_000), **place)
        for step in range(STEPS):
            for name, every_ns in by_name.items():
                builder.kernel(
                    name, start_ns=at_ns, duration_ns=int(every_ns[step]), device_id=rank,
                    context_id=2, launch=(at_ns - 20_000, at_ns - 10_000),
                )  # fmt: skip
                at_ns += int(every_ns[step]) + 10_000
        builder.write_sqlite(folder / f"rank{rank}.sqlite")
    return folder


def test_a_slow_gpu_of_the_only_process_is_a_straggler(tmp_path):
    rng = np.random.default_rng(1)
    compute_ns = np.array([durations_ns(rng, 1e6, 1.3 if gpu == 2 else 1.0) for gpu in range(4)])
    tables = quick("tail_stats", write_meetings(tmp_path, compute_ns, device_of=lambda gpu: gpu))
    (finding,) = tables["findings"].to_dict("records")
    assert (finding["rule"], finding["device_id"]) == ("persistent_straggler", 2)
    assert finding["severity"] == "high"
    assert finding["gain_ns"] == pytest.approx(0.3e6 * STEPS, rel=0.05)


@pytest.mark.parametrize("stray", [None, "kernel", "memset"])
def test_next_to_nothing_on_another_device_does_not_hide_a_slow_rank(tmp_path, stray):
    rng = np.random.default_rng(1)
    kernels_ns = [
        {
            name: durations_ns(rng, usual_ns, 1.0 if rank else 1.3)
            for name, usual_ns in (("gemm", 5e5), ("attention", 3e5), ("norm", 1e5))
        }
        for rank in range(4)
    ]
    tables = quick("tail_stats", write_alone(tmp_path, kernels_ns, stray))
    (finding,) = tables["findings"].to_dict("records")
    assert (finding["rule"], finding["rank"]) == ("slow_throughout", 0)
    assert finding["gain_ns"] == pytest.approx(0.3 * 9e5 * STEPS, rel=0.05)
    ranks = tables["tail_ranks"].set_index(["rank", "device_id"])
    assert ranks["p50_others_p50"][0, 0] == pytest.approx(1.3, rel=0.02)
    assert ranks["p50_others_p50"][1, 1] == pytest.approx(1.0, rel=0.02)


VARIED = {
    "growing": np.linspace(0.4, 2.0, STEPS),
    "batches": np.random.default_rng(5).uniform(0.4, 2.0, STEPS),
}


@pytest.mark.parametrize("varied", VARIED)
@pytest.mark.parametrize(("ranks_n", "factor"), [(4, 1.1), (4, 1.2), (2, 1.1)])
def test_what_varies_alike_on_all_ranks_hides_no_slow_gpu(tmp_path, ranks_n, factor, varied):
    rng = np.random.default_rng(1)
    slow = ranks_n - 1
    kernels_ns = [
        {
            name: durations_ns(rng, usual_ns * VARIED[varied], factor if rank == slow else 1, 0.005)
            for name, usual_ns in (("attention", 4e5), ("gemm", 3e5))
        }
        for rank in range(ranks_n)
    ]
    found = quick("tail_stats", write_alone(tmp_path, kernels_ns))["findings"]
    named = found[found["culprit"].fillna("").str.startswith("rank:")]
    assert named[["rule", "rank"]].to_numpy().tolist() == [["slow_throughout", slow]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ranks_n", [2, 4])
def test_what_varies_on_each_rank_by_itself_is_no_slow_gpu(tmp_path, ranks_n, seed):
    rng = np.random.default_rng(seed)
    kernels_ns = [
        {"attention": durations_ns(rng, 4e5 * rng.uniform(0.4, 2.0, STEPS))} for _ in range(ranks_n)
    ]
    tables = quick("tail_stats", write_alone(tmp_path, kernels_ns))
    assert tables["tail_ranks"]["p50_others_p50"].max() > 1.05
    assert not tables["findings"]["rule"].isin(["slow_throughout", "uneven_work"]).any()


def test_the_answer_does_not_deny_the_slow_launches_of_a_straggler(tmp_path):
    rng = np.random.default_rng(0)
    compute_ns = np.array([durations_ns(rng, 1e6, jitter=0.005) for _ in range(4)])
    compute_ns[2, 3::6] *= 3
    tables = quick("tail_stats", write_meetings(tmp_path, compute_ns))
    assert tables["findings"]["rule"].tolist() == ["transient_straggler"]
    first, second = answer(tables).split(". ", 1)
    assert first.startswith("Rank 2 is a straggler again and again: kernels ")
    assert second.startswith("On ranks that are no stragglers, no compute kernel takes more than ")

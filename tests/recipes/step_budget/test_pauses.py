"""Pauses by name: what the host did is said where it holds half of the pause, and not otherwise."""

from __future__ import annotations

from random import Random

import pandas as pd
import pytest
from effort import at_night
from judgement.jobs import job, layers
from machine import simulate, write_profiles
from machine.profile_writer import rank_profile
from machine.program import Call, Compute, Enqueue, Pop, Push, Work
from quick_run import quick

MS = 1_000_000
STEPS_N, AT = 16, 11
LATE = "triton_poi_fused_late_7"
PYTHON = "/usr/bin/python3.11"


def ranged(name, ns=5 * MS):
    return [Push(name), Compute(ns), Pop()]


def first_launch(**call):
    return [Enqueue(Work(LATE, 20_000), **call)]


def program(pauses, ranks_n=2, seed=1):
    """Return a job whose ranks do something more before some steps, by rank and step."""

    def body(make, rank, step):
        return [*pauses.get((rank, step), []), *layers(make)]

    return job(Random(seed), body, ranks_n=ranks_n, steps_n=STEPS_N)


def together(*instructions, steps=(AT,), ranks_n=2, more=()):
    pauses = {(rank, step): [*instructions] for rank in range(ranks_n) for step in steps}
    return pauses | {(rank, step): [*some] for rank in range(ranks_n) for step, some in more}


def when_of(folder, pauses, ranks_n=2):
    write_profiles(simulate(program(pauses, ranks_n)), folder / "ranks")
    return quick("step_budget", folder / "ranks")


def cause_of(tables):
    when = tables["when"]
    return None if when.empty else (when["cause"].iloc[0], when["place"].iloc[0])


JIT = [Compute(5 * MS), Call("cuModuleLoadDataEx", 300_000), *first_launch()]


@pytest.mark.parametrize(
    ("instructions", "cause", "words"),
    [
        (ranged("gc"), ("garbage collection", "gc"), "gc.freeze()"),
        (ranged("torch._dynamo compile"), ("compilation", "torch._dynamo compile"), "TORCH_LOGS"),
        (JIT, ("compilation", LATE), "Run every shape once"),
        (
            first_launch(call_ns=5 * MS, load_ns=5 * MS - 9_000),
            ("code loading", LATE),
            "CUDA_MODULE_LOADING=EAGER",
        ),
        (
            [Call("cuLibraryLoadData", 5 * MS)],
            ("code loading", "cuLibraryLoadData"),
            "Run every shape once",
        ),
        ([Call("cudaMalloc_v3020", 5 * MS)], ("allocation", "cudaMalloc"), "expandable_segments"),
        (ranged("save_checkpoint"), ("checkpoint", "save_checkpoint"), "asynchronous checkpoints"),
        (ranged("evict_tokens"), ("KV eviction", "evict_tokens"), "--max-running-requests"),
    ],
)
def test_a_pause_says_what_it_is_and_what_to_do(tmp_path, instructions, cause, words):
    tables = when_of(tmp_path, together(*instructions))
    assert cause_of(tables) == cause
    (finding,) = tables["findings"].query("rule == 'when_idle'").to_dict("records")
    assert finding["title"].endswith(f"both ranks in step {AT}: {cause[0]} (`{cause[1]}`)")
    assert words in finding["recommendation"]
    assert "Look at what the host does" not in finding["recommendation"]


@pytest.mark.parametrize(
    "instructions",
    [
        [*ranged("gc", MS), Compute(5 * MS)],  # a collection that is shorter than the pause
        [Compute(5 * MS)],
        [Compute(5 * MS), *first_launch()],  # whose code was there
        [*ranged("data"), Call("cuModuleLoadDataEx", 300_000), *first_launch()],
        [Compute(5 * MS), Call("cudaMalloc_v3020", 300_000)],
        ranged("gpu_gcd"),
        ranged("checkpoint_wrapped_module"),
    ],
)
def test_what_is_short_or_only_beside_a_pause_is_not_its_cause(tmp_path, instructions):
    tables = when_of(tmp_path, together(*instructions))
    assert tables["when"]["kind"].tolist()[:1] == ["once"]
    assert tables["when"]["cause"].isna().all()


def test_what_every_step_has_is_no_cause_of_one_pause(tmp_path):
    usual = [Call("cudaMalloc_v3020", 600_000)]
    often = [(step, usual) for step in range(STEPS_N) if step != AT]
    tables = when_of(tmp_path, together(*usual, Compute(900_000), more=often))
    assert tables["when"]["cause"].isna().all()
    (row,) = tables["when"].query("of_job").to_dict("records")
    assert (row["kind"], row["first_step"]) == ("once", AT)


def test_code_that_is_loaded_in_the_first_step_is_no_pause(tmp_path):
    loads = first_launch(call_ns=5 * MS, load_ns=5 * MS - 9_000)
    again = [(step, first_launch()) for step in range(1, STEPS_N)]
    assert when_of(tmp_path, together(*loads, steps=(0,), more=again))["when"].empty


def test_a_kernel_that_ran_before_is_not_compiled(tmp_path):
    before = [(2, first_launch())]
    tables = when_of(tmp_path, together(*JIT, more=before))
    # The load by itself is too short to be the pause.
    assert tables["when"]["cause"].isna().all()


@pytest.mark.slow
def test_collections_at_different_times_cost_the_job_their_union(tmp_path):
    pauses = {(rank, 4 + 3 * rank): ranged("gc") for rank in range(3)}
    tables = when_of(tmp_path, pauses, ranks_n=3)
    (finding,) = tables["findings"].query("rule == 'when_idle'").to_dict("records")
    # Each rank waits for the other two: three times 5 ms, of which the GPUs idle most.
    (row,) = tables["when"].query("of_job").to_dict("records")
    assert 3 * 4 * MS < row["excess_ns"] < 3 * 5.1 * MS
    assert finding["title"].startswith("Garbage collection on 3 ranks at different times: ")
    assert finding["title"].endswith(" of the job")
    assert "collect on all ranks in the same step" in finding["recommendation"]


def test_collections_in_one_step_cost_the_job_one_of_them(tmp_path):
    tables = when_of(tmp_path, together(*ranged("gc"), ranks_n=3), ranks_n=3)
    (row,) = tables["when"].query("of_job").to_dict("records")
    assert 4 * MS < row["excess_ns"] < 5.1 * MS
    assert row["sharing"] == "together"
    (finding,) = tables["findings"].query("rule == 'when_idle'").to_dict("records")
    assert "in the same step" not in finding["recommendation"]


def test_one_rank_that_collects_is_named(tmp_path):
    tables = when_of(tmp_path, {(1, AT): ranged("gc")}, ranks_n=3)
    (finding,) = tables["findings"].query("rule == 'when_idle'").to_dict("records")
    assert "rank 1 in step" in finding["title"]
    assert finding["title"].endswith("garbage collection (`gc`)")


CACHED = [Call("cuModuleLoadDataEx", 30_000), *first_launch()]


@pytest.mark.parametrize(
    ("instructions", "cause"),
    [
        ([Call("cudaMalloc_v3020", 5 * MS)], ("allocation", "cudaMalloc")),
        ([Call("cudaStreamSynchronize_v3020", 5 * MS)], (None, "cudaStreamSynchronize")),
        ([Push("data_loader next"), Compute(5 * MS)], (None, "data_loader next")),
        ([Push("save_checkpoint"), Compute(5 * MS)], ("checkpoint", "save_checkpoint")),
        (ranged("shuffle"), (None, "shuffle")),
    ],
)
def test_what_lies_before_code_that_was_compiled_before_is_no_compilation(
    tmp_path, instructions, cause
):
    is_open = isinstance(instructions[0], Push) and Pop() not in instructions
    tables = when_of(tmp_path, together(*instructions, *CACHED, *[Pop()] * is_open))
    kind, place = cause_of(tables)
    assert (None if kind is pd.NA else kind, place) == cause


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (("gc_collect_main", PYTHON), "garbage collection"),
        (("do_select_poll", PYTHON), None),
        (("", "/opt/triton/_C/libtriton.so"), "compilation"),
        (("", ""), "compilation"),  # a stack of which nothing is known
    ],
)
def test_samples_deny_a_compilation(tmp_path, frame, cause):
    trace, begin = sampled_rank([Compute(5 * MS), *CACHED])
    for at in range(begin, begin + 5 * MS, MS // 4):
        trace.cpu_sample([frame], start_ns=at)
    trace.write_sqlite(tmp_path / "rank0.sqlite")
    when = quick("step_budget", tmp_path)["when"]
    assert when["cause"].dropna().unique().tolist() == [cause] * (cause is not None)
    assert cause != "compilation" or when["place"].iloc[0] == LATE


@pytest.mark.parametrize("name", ["save_checkpoint", "cudaMalloc_v3020", *at_night("gc")])
@pytest.mark.parametrize("own_thread", [False, True])
def test_the_thread_that_ends_a_pause_is_its_cause(tmp_path, name, own_thread):
    trace, begin = sampled_rank(ranged("wait for data") if not own_thread else [Compute(5 * MS)])
    spans, thread = {"start_ns": begin, "end_ns": begin + 5 * MS}, {} if own_thread else {"tid": 77}
    if "cuda" in name:
        trace.api(name, **spans, **thread)
    else:
        trace.nvtx(name, *spans.values(), **thread)
    # Which launches once, but not what the GPU waited for.
    called = begin + 5 * MS + 100_000
    trace.kernel(
        "prefetch_copy_kernel",
        start_ns=begin + 6 * MS,
        duration_ns=2_000,
        launch=(called, called + 5_000),
        stream_id=55,
        tid=77,
    )
    trace.write_sqlite(tmp_path / "rank0.sqlite")
    when = quick("step_budget", tmp_path)["when"]
    assert len(when)
    assert when["cause"].notna().any() == own_thread


def sampled_rank(instructions):
    """Return the profile of a rank with a pause, and when the pause begins, with the step."""
    outcome = simulate(program({(0, AT): instructions}, ranks_n=1))
    (begin,) = (span.start for span in outcome.ranges[0] if span.text.endswith(f"#{AT}"))
    return rank_profile(outcome, 0), begin - outcome.program.ranks[0].capture_ns


@pytest.mark.parametrize(
    ("frames", "own_thread", "cause"),
    [
        ([("visit_decref", PYTHON), ("gc_collect_main", PYTHON)], True, "garbage collection"),
        ([("", "/opt/triton/_C/libtriton.so")], True, "compilation"),
        ([("_PyEval_EvalFrameDefault", PYTHON)], True, None),
        ([("gc_collect_main", PYTHON)], False, None),
    ],
)
def test_samples_say_what_no_range_says(tmp_path, frames, own_thread, cause):
    trace, begin = sampled_rank([Compute(5 * MS)])
    thread = {} if own_thread else {"tid": 77}
    for at in range(begin, begin + 5 * MS, MS // 4):
        trace.cpu_sample(frames, start_ns=at, **thread)
    trace.write_sqlite(tmp_path / "rank0.sqlite")
    tables = quick("step_budget", tmp_path)
    assert tables["when"]["cause"].dropna().unique().tolist() == [cause] * (cause is not None)

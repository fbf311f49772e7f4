"""What trace_diff says of jobs with planted changes, word by word: the cases it was made for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from diff_jobs import GEMM, GPU_BOUND, HOST_BOUND, NORM, Job, compare
from effort import seeds
from quick_run import quick

from nsys_llm.recipes.trace_diff.tables.step_verdict import CHANGED

PAUSES = {2: 2_000_000, 5: 3_000_000, 8: 4_000_000, 11: 6_000_000}


@pytest.mark.nightly
@pytest.mark.slow
def test_pauses_of_one_rank_are_bursts_and_say_where(tmp_path):
    before = Job(HOST_BOUND, ranks=4, steps=15)
    after = Job(HOST_BOUND, ranks=4, steps=15, rank=3, late_ns=PAUSES, late_range="data")
    said = compare(tmp_path, before, after)
    row = said.verdict
    assert (row["word"], row["word_reason"]) == ("SLOWER", "bursts")
    assert said.lines[0].startswith(
        "SLOWER in bursts: 4 of 15 steps take more than twice the median (0 before), rank 3 pauses "
        "in `data`; mean "
    )
    # 15 ms in 15 steps.
    assert row["change_ns"] == pytest.approx(1_000_000, rel=0.05)
    assert (said.rules["bursts"]["rank"], said.rules["bursts"]["gain_step_ns"]) == (
        3, pytest.approx(1_000_000, rel=0.1),
    )  # fmt: skip
    said = compare(tmp_path, tmp_path / "run1", tmp_path / "run0")
    assert (said.word, said.verdict["word_reason"]) == ("FASTER", "bursts")
    assert said.lines[0].startswith(
        "FASTER: bursts gone: 0 of 15 steps take more than twice the median (4 before), rank 3 "
        "paused in `data`; mean "
    )
    assert "bursts" not in said.rules
    assert said.lines[2].startswith("cause: idle -250 us a step: rank 3 alone is idle 1 ms less")


@pytest.mark.slow
def test_neighbors_that_wait_for_one_pause_count_once(tmp_path):
    """Three pauses among 14 steps are no more than chance gives, though others wait for them."""
    late = {2: 3_000_000, 6: 3_000_000, 10: 3_000_000}
    after = Job(HOST_BOUND, ranks=4, steps=15, rank=1, late_ns=late)
    said = compare(tmp_path, Job(HOST_BOUND, ranks=4, steps=15), after)
    assert (said.word, said.verdict["input_slow_n"]) == ("UNCERTAIN", 3)


@pytest.mark.slow
def test_blocking_copies_are_named_by_number_and_memory(tmp_path):
    said = compare(tmp_path, Job(), Job(copies=3))
    assert said.word == "SLOWER"
    copies = [line for line in said.lines if line.startswith("cause: copies +")]
    assert copies
    assert copies[0].endswith(
        " a step: 3 blocking copies of pageable memory (host-to-device) a step, new"
    )
    assert said.rules["copies"]["gain_step_ns"] == pytest.approx(3 * 80_000, rel=0.02)


@pytest.mark.nightly("without1-ranks 1 and 2 are missing")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "are_missing"), [((2,), "rank 2 is missing"), ((1, 2), "ranks 1 and 2 are missing")]
)
def test_missing_ranks_are_said_and_nothing_is_concluded_from_them(
    tmp_path, capsys, without, are_missing
):
    said = compare(tmp_path, Job(ranks=4), Job(ranks=4, without=without), code=3)
    left_n = 4 - len(without)
    assert f"4 -> {left_n} ranks: {are_missing} in the input; {left_n} compared" in said.lines
    assert (said.word, said.rules) == ("SAME", {})
    assert set(said.tables["wall_change"]["rank"].dropna()) == {0, 1, 2, 3} - {*without}
    assert "absent ranks: input " in capsys.readouterr().err
    said = compare(tmp_path, tmp_path / "run1", tmp_path / "run0", "--allow-missing-ranks")
    assert f"{left_n} -> 4 ranks: {are_missing} in the baseline; {left_n} compared" in said.lines


@pytest.mark.nightly
@pytest.mark.slow
def test_ranks_that_each_run_lacks_are_said_and_without_a_common_one_nothing_is(tmp_path):
    runs = [Job(ranks=3, steps=12, without=without) for without in ((0,), (2,), (1, 2))]
    said = compare(tmp_path, *runs[:2], code=3)
    assert said.lines[1] == (
        "2 -> 2 ranks: rank 2 is missing in the input, rank 0 is missing in the baseline; "
        "1 compared"
    )
    assert said.word == "SAME"
    first = runs[2].write(tmp_path / "first", 3)
    said = compare(tmp_path, tmp_path / "run0", first, code=3)
    assert said.lines == ["NOT COMPARABLE: no rank is in both runs (`2: 1, 2`, then `1: 0`)."]


@pytest.mark.slow
def test_slow_steps_that_may_be_chance_are_said_where_they_make_the_difference(tmp_path):
    slow = [dict.fromkeys(steps, 3_000_000) for steps in ((5,), (3, 9, 15, 21, 27, 33))]
    said = compare(tmp_path, *(Job(steps=40, late_ns=late_ns) for late_ns in slow))
    assert said.word == "UNCERTAIN"
    assert "6 of 40 steps take more than twice the median (1 before), which may be" in said.answer
    enough = said.verdict["enough_steps_n"]
    said = compare(tmp_path, tmp_path / "run1", tmp_path / "run0")
    assert said.verdict["enough_steps_n"] == enough > 40


def detailed(batch, keys, ctx=0):
    def name(step):
        gen = f"generation_{batch}(sq{batch}sk{keys + batch * step}sqsq{batch}sqsk{keys})"
        return f"execute_{batch}_context_{ctx}(sq{ctx}sk{ctx}sqsq{ctx}sqsk{ctx})_{gen}"

    return name


def wider(factor, blocks=1):
    return tuple((name, round(factor * ns), blocks * n, calls) for name, ns, n, calls in GPU_BOUND)


@pytest.mark.slow
def test_detailed_names_of_vllm_tell_a_doubled_batch_in_words(tmp_path):
    before, after = Job(name=detailed(8, 4_000)), Job(wider(1.04, 2), name=detailed(16, 8_000))
    said = compare(tmp_path, before, after)
    assert said.lines[0].startswith("OTHER WORK: batch 8 -> 16; -")
    row = said.verdict
    assert row["unit"] == "decode step"
    # 336 us of kernels, the host hidden, 4 % more of them, for twice the tokens.
    token_pct = 100 * (row["input_token_ns"] / row["baseline_token_ns"] - 1)
    assert token_pct == pytest.approx(-48, abs=0.5)
    assert f"{token_pct:+.1f} % a token" in said.lines[0]
    assert not any("#" in line for line in said.lines)
    assert said.rules == {}


@pytest.mark.slow
def test_a_grown_context_is_told_in_words(tmp_path):
    before, after = Job(name=detailed(16, 4_011)), Job(wider(1.4), name=detailed(16, 117_645))
    said = compare(tmp_path, before, after)
    assert said.word == "OTHER WORK"
    assert said.lines[0].startswith(
        "OTHER WORK: KV length at 16 requests, 4,243 -> 117,877 in all; "
    )


@pytest.mark.slow
def test_contexts_in_the_baselines_range_are_adjusted_for(tmp_path):
    """Kernels take 100 ns more a key: the input's contexts are longer, and nothing is slower."""

    def job(first):
        def kernels(step):
            return ((GEMM, 50_000 + 100 * (first + 10 * step), 64, 4),)

        def name(step):
            return (
                f"execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk{first + 10 * step}"
                + (f"sqsq8sqsk{first})")
            )

        return Job(kernels, name)

    said = compare(tmp_path, job(1_000), job(1_100))
    assert said.word == "SAME"
    assert abs(said.verdict["change_pct"]) < 0.3


@pytest.mark.nightly("before")
@pytest.mark.slow
@pytest.mark.parametrize("recorded", ["before", "after"])
def test_a_job_with_ranges_is_compared_with_the_same_without_by_periods(tmp_path, recorded):
    # A period has to have a mark: a kernel that runs once in it.
    once = (*GPU_BOUND, ("sample_kernel", 5_000, 4, 1))
    jobs = [Job(once, ranges=recorded == side, steps=40) for side in ("before", "after")]
    said = compare(tmp_path, *jobs)
    assert (said.word, said.verdict["unit"]) == ("SAME", "period")
    jobs = [Job(once, gpu=gpu, ranges=ranges) for gpu, ranges in ((1.0, True), (1.2, False))]
    (tmp_path / "b").mkdir()
    row = compare(tmp_path / "b", *jobs).verdict
    assert (row["word"], row["change_pct"]) == ("SLOWER", pytest.approx(20, abs=1.5))


def mix(share, gpu=1.0, seed=0, steps=120):
    """Return a server of which some steps have context; each batch has a time of its own."""
    rng = np.random.default_rng(seed)
    batches = rng.integers(4, 8, size=steps)
    prompts = rng.random(steps) < share

    def kernels(step):
        return ((GEMM, 60_000 + 4_000 * int(batches[step]) + 200_000 * int(prompts[step]), 64, 4),)

    def name(step):
        ctx = (1, 512) if prompts[step] else (0, 0)
        return "execute_context_{}({})_generation_{}({})".format(*ctx, *(batches[step],) * 2)

    return Job(kernels, name, steps=steps, gpu=gpu)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, 1))
def test_a_mix_that_changed_does_not_hide_a_change(tmp_path, seed):
    """5.2 % faster at equal batches, and slower in the mean of all steps."""
    pauses = {17: 30_000_000, 53: 20_000_000}
    after = mix(0.5, gpu=0.948, seed=seed + 9)
    after = Job(after.kernels, after.name, steps=120, gpu=0.948, late_ns=pauses)
    said = compare(tmp_path, mix(0.15, seed=seed), after)
    row = said.verdict
    assert row["word"] == "FASTER"
    assert row["change_pct"] == pytest.approx(-5.2, abs=0.5)
    assert row["low_pct"] < row["change_pct"] < row["high_pct"]
    assert row["covered_pct"] > 70
    assert said.lines[1].startswith("The mix of steps changed (")
    # Steps are comparable, and sums over the runs are not.
    checks = said.tables["comparability"].set_index("check")["status"]
    assert checks["work of a step"] == "totals"


STEP_NS = 360_000
#: Of each kind of change: the kernels, how many ranks, what a run that is longer by a share of a
#: step does, and which rules say so. With three ranks kernels are nine tenths of a step.
CHANGES = {
    "kernels": (GPU_BOUND, 1, lambda size: {"gpu": 1 + size}, "slower_calls slower_throughout"),
    "host": (HOST_BOUND, 1, lambda size: {"host": 1 + size}, "slower_host"),
    "copies": (GPU_BOUND, 1, lambda size: {"copies": 1, "copy_ns": round(size * STEP_NS)},
               "copies"),
    "waits": (GPU_BOUND, 3, lambda size: {"late_ns": dict.fromkeys(range(40), size * STEP_NS),
                                          "rank": 2}, "idle_rank"),
    "transfer": (GPU_BOUND, 2, lambda size: {"transfer_ns": round(20_000 + size * STEP_NS)},
                 "transfer"),
    "one rank": (GPU_BOUND, 3, lambda size: {"gpu": 1 + 1.1 * size, "rank": 1}, "one_rank"),
    "bursts": (GPU_BOUND, 2, lambda size: {"late_ns": pauses(size), "rank": 1}, "bursts"),
}  # fmt: skip
#: Steps of a run, and pauses, which are longer than a step, that make it longer by a share.
BURSTS = {0.03: (200, 5), 0.1: (72, 6), 0.5: (40, 10)}


def pauses(size):
    steps, slow_n = BURSTS[size]
    pause_ns = round(size * steps / slow_n * STEP_NS)
    return dict.fromkeys(range(3, steps, steps // slow_n), pause_ns)


def is_right(folder, what, size, seed):
    """Tell whether word, size, cause and the mirror of a planted change are right."""
    kernels, ranks, changed, rules = CHANGES[what]
    steps = BURSTS[size][0] if what == "bursts" else 40
    job = Job(kernels, ranks=ranks, steps=steps, drift=0.3, drift_size=0.004)
    paths = [
        job.write(folder / f"{size}.{seed}.a", 2 * seed),
        replace(job, **changed(size)).write(folder / f"{size}.{seed}.b", 2 * seed + 1),
    ]
    sides = [quick("trace_diff", *some) for some in (paths, paths[::-1])]
    there, back = (tables["verdict"].iloc[0] for tables in sides)
    findings, change_pct = sides[0]["findings"], there["change_pct"]
    return (
        (there["word"], back["word"]) == ("SLOWER", "FASTER")
        and there["word_reason"] == back["word_reason"]
        and ("bursts" in there["word_reason"]) == (what == "bursts")
        and abs(change_pct - 100 * size) < max(0.8, 12 * size)
        and back["change_pct"] == pytest.approx(100 * (1 / (1 + change_pct / 100) - 1))
        and bool({*rules.split()} & {*findings.query("kind == 'performance'")["rule"]})
    )


@pytest.mark.nightly("sizes0-1-waits")
@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize(
    ("sizes", "seeds_n"),
    [((0.1,), 1), pytest.param((0.03, 0.1, 0.5), 20, marks=[pytest.mark.nightly])],
)
def test_planted_changes_are_found_by_word_size_and_cause_and_mirrored(
    tmp_path, what, sizes, seeds_n
):
    """Nearby steps are alike, by 0.4 % of a step, and 95 of 100 changes are told."""
    tried = [(size, seed) for size in sizes for seed in range(1, seeds_n + 1)]
    wrong = [some for some in tried if not is_right(tmp_path, what, *some)]
    assert len(wrong) <= 0.05 * len(tried), wrong


@pytest.mark.nightly("20-5-4")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("pairs_n", "sure_n", "probable_n"),
    [(20, 5, 4), pytest.param(200, 23, 20, marks=[pytest.mark.slow, pytest.mark.nightly])],
)
def test_equal_jobs_are_called_faster_or_slower_no_more_often_than_stated(
    tmp_path, pairs_n, sure_n, probable_n
):
    """By both looks together; and how many are probable.

    Half have neighbors alike, and a third have pauses now and then.
    """
    words = Counter()
    for seed in range(pairs_n):
        drift, steps = 0.5 * (seed % 2), 20 + seed % 25
        job = Job(((GEMM, 60_000, 64, 1), (NORM, 9_000, 64, 1)), steps=steps, noise=0.002,
                  drift=drift, drift_size=0.04)  # fmt: skip
        paths = []
        for side in (1, 2):
            slow = np.flatnonzero(np.random.default_rng([seed, side]).random(steps) < 0.1)
            late_ns = dict.fromkeys(slow.tolist() if seed % 3 == 0 else (), 2_000_000)
            run = replace(job, late_ns=late_ns)
            paths.append(run.write(tmp_path / f"{seed}.{side}", 1000 * side + seed))
        words[quick("trace_diff", *paths)["verdict"]["word"].iloc[0]] += 1
    assert words["FASTER"] + words["SLOWER"] <= sure_n
    assert words["PROBABLY FASTER"] + words["PROBABLY SLOWER"] <= probable_n
    assert words.keys() <= {*CHANGED, "SAME", "UNCERTAIN"}

"""Each finding of tail_stats on a planted case, and silence where there is nothing to tell."""

from __future__ import annotations

import pandas as pd
import pytest
from planted import frame_of
from results import tables_of

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.tail_stats.findings.answer import answer, findings
from nsys_llm.recipes.tail_stats.findings.caveats import caveats
from nsys_llm.recipes.tail_stats.findings.kernels import outlying_rank
from nsys_llm.testing.demo import write_demo

COMMON = {"files", "coverage", "findings"}
TABLES = [table.file for table in load_manifest("tail_stats").writes if table.file not in COMMON]
PLAIN = {
    "communication": False,
    "outlier": False,
    "systematic": False,
    "hidden": False,
    "second_heap": False,
    "shape_mix": False,
}
#: A kernel of which 3 of 1,000 launches take 90 in place of 10 us.
TAIL = {
    **PLAIN,
    "name": "k",
    "config": "1x1x1 / 32x1x1",
    "launches_n": 1_000,
    "total_ns": 10_240_000,
    "p50_ns": 10_000.0,
    "p99_ns": 10_100.0,
    "max_ns": 90_000,
    "max_p50": 9.0,
    "p99_p50": 1.01,
    "outlier": True,
    "outliers_n": 3,
    "outlier_excess_ns": 240_000,
    "excess_ns": 240_000,
}


def made(**rows):
    """Tables of tail_stats with these rows; the others are empty."""
    return {name: frame_of(name, rows.get(name, []), "tail_stats") for name in TABLES}


def rank(number, **others):
    shares = {"launches_pct": 50.0, "excess_pct": 50.0}
    window = {"window_start_ns": 0, "window_end_ns": 10**9, "window_ns": 10**9}
    return {
        "rank": number,
        "file": f"rank{number}",
        "launches_n": 500,
        **shares,
        **window,
        **others,
    }


def found(rule, **rows):
    return [one for one in findings(made(**rows)) if one.rule == rule]


def rank_tail(number, **others):
    place = {"rank": number, "device_id": 0, "longest_start_ns": 7_000, "all_p50_ns": 10_000.0}
    place["later_p50_ns"] = 10_000.0
    return {**TAIL, **place, **others}


def test_a_rare_tail_says_what_it_costs_where_and_when():
    ranks = [rank(0, steps_n=10), rank(1, steps_n=10)]
    own = [rank_tail(0, outliers_n=0, max_ns=10_000), rank_tail(1)]
    (one,) = found("rare_outliers", tails=[TAIL], rank_tails=own, tail_ranks=ranks)
    # 240 of 10,240 us are 2.3 %; over 2 s of two GPUs and 20 steps.
    assert one.severity == "high"
    assert (one.rank, one.window_ns) == (1, (7_000, 97_000))
    assert "(120 us a second on each GPU, 12 us a step)" in one.details
    assert "Rank 1 has 3 of them." in one.details
    assert one.impact_ns == 240_000


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, {"rare_outliers"}),
        ({"systematic": True}, {"systematic_tail"}),
        ({"second_heap": True}, {"two_kinds_of_work"}),
        ({"second_heap": True, "hidden": True}, {"two_kinds_of_work"}),
        ({"hidden": True}, {"rare_outliers", "hidden_tails"}),
    ],
)
def test_kinds_of_tails_are_told_apart(change, rules):
    rows = {"tails": [{**TAIL, **change}], "rank_tails": [rank_tail(0)], "tail_ranks": [rank(0)]}
    assert {one.rule for one in findings(made(**rows))} == rules


@pytest.mark.parametrize(
    "change",
    [
        {"communication": True},  # it waits
        {"outliers_n": 0, "outlier_excess_ns": 0},
        {"outlier_excess_ns": 1_000},  # 0.0098 % of the time
        {"first_excess_ns": 120_000},  # half of it in first launches
    ],
)
def test_no_tail_is_told_without_a_cost_of_its_own(change):
    rows = {
        "tails": [{**TAIL, **change}],
        "rank_tails": [rank_tail(0, **change)],
        "tail_ranks": [rank(0)],
    }
    assert not found("rare_outliers", **rows)


def test_slow_first_launches_are_told_with_the_slowest():
    own = [
        rank_tail(0, first_ns=25_000, first_start_ns=5),
        rank_tail(1, first_ns=60_000, first_start_ns=9),
        rank_tail(2, first_ns=20_000, first_start_ns=5),  # twice the median is not above it
    ]
    (one,) = found("slow_first_launches", tails=[TAIL], rank_tails=own, tail_ranks=[rank(0)])
    assert (one.rank, one.window_ns) == (1, (9, 60_009))
    assert one.impact_ns == 15_000 + 50_000
    # A configuration with two kinds of work begins with any of them.
    own = [{**row, "systematic": True} for row in own]
    assert not found("slow_first_launches", tails=[TAIL], rank_tails=own, tail_ranks=[rank(0)])


def test_a_rank_that_is_slower_throughout_is_no_tail():
    ranks = [rank(0, p50_others_p50=1.0), rank(1, p50_others_p50=1.2), rank(2, p50_others_p50=1.04)]
    (one,) = found("slow_throughout", tail_ranks=ranks)
    assert (one.rank, one.severity) == (1, "medium")
    assert "20.0 %" in one.title
    assert not found("slow_throughout", tail_ranks=ranks[1:2])  # there is nothing to compare with


@pytest.mark.parametrize(
    ("outliers", "names"),
    [
        ((16, 4), [0]),  # 80 % with half of the launches
        ((15, 5), []),
        ((4, 1), []),  # too few to tell
    ],
)
def test_outliers_on_one_rank_are_told_if_they_are_most(outliers, names):
    ranks = [
        rank(
            number,
            outliers_n=n,
            outliers_pct=100.0 * n / sum(outliers),
            total_ns=10**6,
        )
        for number, n in enumerate(outliers)
    ]
    assert [one.rank for one in found("outliers_on_one_rank", tail_ranks=ranks)] == names
    ranks[0]["p50_others_p50"] = 1.3
    assert not found("outliers_on_one_rank", tail_ranks=ranks)  # it is slow throughout


def test_a_mix_of_shapes_is_a_note_with_the_median_that_no_launch_has():
    pooled = {"shape_mix": True, "configs_n": 2, "pooled_p50_ns": 5_000.0}
    pooled |= {"pooled_max_p50": 1.9, "pooled_p99_p50": 1.2}
    small = {**TAIL, **pooled, "outlier": False, "outliers_n": 0, "p50_ns": 1_000.0}
    small |= {"min_ns": 900, "max_ns": 1_100, "outlier_excess_ns": 0}
    large = {**small, "config": "2x1x1 / 32x1x1", "p50_ns": 9_000.0}
    large |= {"min_ns": 8_000, "max_ns": 9_900}
    (one,) = found("shape_mix", tails=[small, large])
    assert one.severity == "note"
    assert "5 us, a duration that no configuration has" in one.details
    # Where a configuration has a tail of its own, that is what is told.
    assert not found("shape_mix", tails=[small, {**large, "outlier": True}])
    touched = {**large, "min_ns": 5_000}
    assert not found("shape_mix", tails=[small, touched])


API = {
    "api": "cudaMalloc",
    "class": "alloc",
    "calls_n": 100,
    "p50_ns": 2_000.0,
    "max_ns": 9_000_000,
    "max_p50": 4_500.0,
    "outliers_n": 2,
    "outlier_excess_ns": 12_000_000,
    "loading_n": 0,
    "loading_excess_ns": 0,
    "usual_p50_ns": 2_000.0,
    "profiler_ns": 0,
    "net_max_ns": 9_000_000,
}
RANK_API = {**API, "rank": 3, "all_p50_ns": 2_000.0, "first_ns": 2_000}
RANK_API |= {"longest_start_ns": 40, "net_longest_start_ns": 40, "first_profiler_ns": 0}


def test_an_api_tail_names_rank_window_and_what_to_do():
    rows = {"api_tails": [API], "rank_api_tails": [RANK_API], "tail_ranks": [rank(3)]}
    (one,) = found("api_tail", **rows)
    # 12 ms of a window of 1 s.
    assert (one.severity, one.rank, one.window_ns) == ("medium", 3, (40, 9_000_040))
    assert "1.2 %" in one.details
    assert "Allocate once" in one.recommendation


def test_waits_first_calls_and_loading_are_no_api_tail():
    waits = {"class": "host_block"}
    rows = {
        "api_tails": [{**API, **waits}],
        "rank_api_tails": [{**RANK_API, **waits}],
        "tail_ranks": [rank(3)],
    }
    assert not found("api_tail", **rows)
    assert found("api_wait_tail", **rows)[0].severity == "low"
    first = {"first_ns": 12_002_000, "first_start_ns": 5}
    rows = {
        "api_tails": [API],
        "rank_api_tails": [{**RANK_API, **first}],
        "tail_ranks": [rank(3)],
    }
    assert not found("api_tail", **rows)
    (one,) = found("slow_first_call", **rows)
    assert (one.severity, one.window_ns) == ("note", (5, 12_002_005))
    loads = {"loading_n": 7, "loading_excess_ns": 11_900_000}
    rows = {
        "api_tails": [{**API, **loads}],
        "rank_api_tails": [{**RANK_API, **loads}],
        "tail_ranks": [rank(3)],
    }
    assert not found("api_tail", **rows)
    (one,) = found("kernel_loading", **rows)
    assert (one.rank, one.impact_ns) == (3, 11_900_000)


def test_empty_tables_give_no_finding_and_an_answer():
    assert findings(made()) == []
    assert caveats(made()) == []
    assert answer(made()).startswith("No kernel starts")


def test_the_answer_keeps_waiting_apart():
    waits = {**TAIL, "name": "nccl", "communication": True, "excess_ns": 760_000}
    text = answer(made(tails=[waits, TAIL]))
    assert text == (
        "2,000 launches spent 1 ms (4.9 %) of 20.5 ms beyond the medians of their launch "
        "configurations: 760 us in communication, 240 us in tails (3 launches "
        "over twice their median). The worst tail is that of `k` with 240 us."
    )
    # With nothing apart, all of it is tails.
    assert "configurations: 240 us in tails (3 launches" in answer(made(tails=[TAIL]))


def test_the_answer_keeps_two_kinds_of_work_apart():
    heap = {**TAIL, "name": "two", "second_heap": True, "excess_ns": 760_000}
    text = answer(made(tails=[heap, TAIL]))
    assert ": 760 us in 1 configuration with two kinds of work, 240 us in tails (3" in text
    text = answer(made(tails=[heap]))
    assert text.endswith(": 760 us in 1 configuration with two kinds of work, none in tails.")


@pytest.mark.parametrize(("shares", "told"), [((59, 181), True), ((60, 180), False)])
def test_the_answer_names_a_rank_with_far_more_than_its_share(shares, told):
    own = [rank_tail(number, excess_ns=1_000 * one) for number, one in enumerate(shares)]
    # 180 is 1.5 times the half of 240. What is apart does not count.
    own.append(rank_tail(0, name="two", excess_ns=900_000))
    heap = {**TAIL, "name": "two", "second_heap": True, "excess_ns": 900_000}
    text = answer(made(tails=[heap, TAIL], rank_tails=own))
    assert ("in tails (75.4 % of it on rank 1)" in text) == told
    assert "rank 0" not in text


@pytest.mark.parametrize(
    ("outliers", "rank"),
    [
        ((0, 3), 1),  # all of them
        ((0, 1), None),  # one is always on one rank
        ((1, 3), None),
        ((5, 40), 1),  # chance gives 22.5 and three times its root, 36.7
        ((9, 36), None),
        ((2, *[0, 1] * 30), None),  # of 64 ranks one has twice of them before long
        ((12, *[0, 1] * 30), 0),
        ((3,), None),
    ],
)
def test_a_rank_is_named_for_its_outliers_where_chance_would_not_do(outliers, rank):
    assert outlying_rank(pd.Series(outliers)) == rank


def test_a_step_counts_once_for_a_rank_with_two_devices():
    devices = [rank(0, steps_n=10), rank(0, device_id=1, steps_n=10)]
    (one,) = found("rare_outliers", tails=[TAIL], rank_tails=[rank_tail(0)], tail_ranks=devices)
    assert "24 us a step" in one.details


def test_captures_with_little_to_count_are_told():
    few = {**TAIL, "launches_n": 99}
    assert "99th percentile is little else" in caveats(made(tails=[few]))[0]
    assert caveats(made(tails=[TAIL])) == []
    assert "--step RANGE" in caveats(made(tail_ranks=[rank(0)]))[0]
    assert caveats(made(tail_ranks=[rank(0, steps_n=3)])) == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    planted = write_demo(folder, scale=0.5).planted
    return tables_of(folder / "out", folder / "baseline", recipe="tail_stats"), planted


def test_the_planted_jitter_is_found_and_the_planted_mix_is_called_a_mix(demo):
    tables, planted = demo
    told = tables["findings"]
    tails = told[told["rule"].isin(["systematic_tail", "rare_outliers"])]
    assert [planted.jittery_kernel in name for name in tails["name"]] == [True]
    mixes = told[told["rule"] == "shape_mix"]
    assert any(planted.mixed_kernel in name for name in mixes["name"])
    own = tables["tails"][tables["tails"]["name"].str.contains(planted.mixed_kernel)]
    assert own["shape_mix"].all()
    assert not (own["outlier"] | own["systematic"]).any()


def test_the_planted_slow_rank_is_found_and_no_other(demo):
    tables, planted = demo
    told = tables["findings"]
    assert told.loc[told["rule"] == "slow_throughout", "rank"].tolist() == [planted.slow_rank]
    # It waits least, since the others wait for it.
    ranks = tables["tail_ranks"].set_index("rank")
    assert ranks["communication_excess_ns"].idxmin() == planted.slow_rank
    assert pd.notna(ranks["steps_n"]).all()
    assert set(ranks["steps_n"]) == {planted.steps}

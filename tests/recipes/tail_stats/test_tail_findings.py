"""Each finding of tail_stats on kernels, on a planted case, and silence where nothing is lost."""

from __future__ import annotations

import pandas as pd
import pytest
from demo_truth import write_demo
from finding_numbers import unexplained_numbers
from gain_checks import listed
from planted import frame_of
from results import tables_of

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.recipes.tail_stats.findings.answer import answer, caveats, findings
from nsys_llm.report.causes import Cause
from nsys_llm.report.findings import finding_record

TABLES = [table.file for table in load_manifest("tail_stats").writes]
SPAN_NS = 10_000_000
#: A kernel of which 3 of 100 launches take 90 in place of 10 us.
TAIL = {
    **dict.fromkeys(("communication", "systematic", "hidden", "second_mode", "shape_mix"), False),
    "name": "k",
    "config": "1x1x1 / 32x1x1",
    "launches_n": 100,
    "total_ns": 1_240_000,
    "p50_ns": 10_000.0,
    "p99_ns": 10_100.0,
    "max_ns": 90_000,
    "outlier": True,
    "outliers_n": 3,
    "outlier_excess_ns": 240_000,
}
#: A finding of 10 steps.
GAIN = {
    "severity": "high",
    "title": "t",
    "gain_ns": 2_000_000,
    "gain_pct": 20.0,
    "gain_step_ns": 200_000.0,
    "bound_ns": 2_000_000,
    "span_ns": SPAN_NS,
    "wall_classes": "compute",
}


def wall(number, compute_ns):
    common = {"rank": number, "file": f"rank{number}", "span_ns": SPAN_NS}
    parts = {"compute": compute_ns, "idle": SPAN_NS - compute_ns}
    return [{**common, "wall_class": name, "time_ns": ns} for name, ns in parts.items()]


def made(compute_ns=5_000_000, **rows):
    """Tables of tail_stats with these rows; the others are empty."""
    numbers = [row["rank"] for row in rows.get("tail_ranks", [])]
    rows["wall"] = [part for number in numbers for part in wall(number, compute_ns)]
    return {name: frame_of(name, rows.get(name, []), "tail_stats") for name in TABLES}


def rank(number, **others):
    return {
        "rank": number,
        "file": f"rank{number}",
        "launches_n": 500,
        "launches_pct": 50.0,
        **others,
    }


def shown_findings(rule=None, **rows):
    tables = made(**rows)
    found = [
        finding for finding in listed(findings(tables), tables) if finding.severity is not None
    ]
    assert all(unexplained_numbers(finding_record(finding)) == [] for finding in found)
    return [finding for finding in found if rule is None or finding.rule == rule]


def rank_tail(number, **others):
    place = {"rank": number, "device_id": 0, "longest_start_ns": 7_000, "all_p50_ns": 10_000.0}
    return {**TAIL, **place, **others}


def test_slow_launches_say_what_they_cost_where_and_when():
    ranks = [rank(number, step_ns=SPAN_NS / 10, step_unit="layer") for number in range(2)]
    rank_tails = [rank_tail(0, outliers_n=0, outlier_excess_ns=0), rank_tail(1)]
    (finding,) = shown_findings(tails=[TAIL], rank_tails=rank_tails, tail_ranks=ranks)
    # 240 us of 10 ms, in 10 steps.
    assert (finding.rule, finding.severity, finding.price.gain_ns) == (
        "slow_launches",
        "low",
        240_000,
    )
    assert (finding.price.gain_step_ns, finding.price.step_unit) == (24_000, "layer")
    assert finding.price.wall_classes == ("compute",)
    assert (finding.rank, finding.window_ns) == (1, (7_000, 97_000))
    assert finding.cause == Cause("kernels", 1, 0, "k")
    assert finding.title == "`k` takes over twice its median in 3.0 % of its launches on rank 1"


def outlier(start_ns, excess_ns, **others):
    place = {"rank": 1, "device_id": 0, "name": "k", "config": TAIL["config"]}
    span = {"start_ns": start_ns, "end_ns": start_ns + excess_ns, "excess_ns": excess_ns}
    return {**place, **span, "communication": False, "state": "steady", **others}


@pytest.mark.parametrize(
    ("launches", "tail_pct"),
    [
        # 40 + 30 us of the step from 100 to 600 us, of 10 ms.
        ([outlier(200_000, 40_000), outlier(599_999, 30_000)], 14.0),
        # Slow launches elsewhere, a first one, and another GPU's are innocent of that step.
        ([outlier(99_999, 40_000), outlier(600_000, 40_000)], None),
        ([outlier(200_000, 70_000, state="first")], None),
        ([outlier(200_000, 70_000, rank=0)], None),
        # Less than a tenth of it.
        ([outlier(200_000, 49_999)], None),
    ],
)
def test_slow_launches_that_are_rare_count_where_they_make_the_worst_step(launches, tail_pct):
    step = {"worst_step_start_ns": 100_000, "worst_step_end_ns": 600_000}
    ranks = [rank(number, step_ns=250_000.0, step_unit="step", **step) for number in range(2)]
    rank_tails = [rank_tail(1, outlier_excess_ns=80_000)]  # below 1 % of the span
    rare = shown_findings(tails=[TAIL], rank_tails=rank_tails, tail_ranks=ranks, outliers=launches)
    assert [(finding.severity, finding.price.tail_pct) for finding in rare] == (
        [("tail", tail_pct)] if tail_pct else []
    )


def test_a_gain_is_that_of_one_gpu_and_no_more_than_what_computes_there():
    rank_tails = [rank_tail(number, outlier_excess_ns=200_000 + number) for number in range(4)]
    ranks = [rank(number) for number in range(4)]
    (finding,) = shown_findings(tails=[TAIL], rank_tails=rank_tails, tail_ranks=ranks)
    assert (finding.rank, finding.price.gain_ns) == (3, 200_003)
    (finding,) = shown_findings(
        tails=[TAIL], rank_tails=rank_tails, tail_ranks=ranks, compute_ns=150_000
    )
    assert finding.price.gain_ns == 150_000


@pytest.mark.parametrize(
    "change",
    [
        {"communication": True},  # it waits
        {"outliers_n": 0, "outlier_excess_ns": 0},
        {"outlier_excess_ns": 99_999},  # below 1 % of the span
        {"first_ns": 190_000},  # most of it in a first launch
        {"second_mode": True},  # another kind of work
    ],
)
def test_no_finding_without_a_cost_of_its_own(change):
    rows = {
        "tails": [{**TAIL, **change}],
        "rank_tails": [rank_tail(0, **{k: v for k, v in change.items() if k != "second_mode"})],
        "tail_ranks": [rank(0)],
    }
    assert not shown_findings(**rows)


@pytest.mark.parametrize(
    ("change", "cause", "words"),
    [
        ({}, "ran alone", "the GPU's clock"),
        ({"systematic": True}, "ran alone", "varying amounts of work"),
        ({"systematic": True}, "shared the device with copies", "to another time"),
    ],
)
def test_the_advice_follows_what_the_launches_have_in_common(change, cause, words):
    launch = {"rank": 0, "name": "k", "config": TAIL["config"], "communication": False}
    slowest = [{**launch, "likely_cause": cause, "duration_ns": 90_000, "range": None}]
    (finding,) = shown_findings(
        tails=[TAIL], rank_tails=[rank_tail(0, **change)], tail_ranks=[rank(0)], outliers=slowest
    )
    assert words in finding.recommendation
    assert finding.record == "--trace=cuda,nvtx"
    assert f"1 of 1 listed: {cause}." in finding.details


@pytest.mark.parametrize(("usual_ns", "is_listed"), [(20_000.0, True), (20_001.0, False)])
def test_what_a_rank_takes_usually_is_other_work_and_no_slow_launch(usual_ns, is_listed):
    row = rank_tail(0, p50_ns=usual_ns, p50_all_p50=usual_ns / 10_000)
    ranks = [rank(number) for number in range(2)]
    shown = shown_findings("slow_launches", tails=[TAIL], rank_tails=[row], tail_ranks=ranks)
    assert bool(shown) == is_listed


def test_empty_tables_give_no_finding_and_an_answer():
    assert findings(made()) == []
    assert caveats(made()) == []
    assert answer(made()).startswith("No kernel starts")


def test_the_answer_says_what_slow_launches_cost_one_gpu():
    rows = {"tails": [TAIL], "rank_tails": [rank_tail(0)], "tail_ranks": [rank(0)]}
    assert answer(made(**rows)) == (
        "Launches over twice their median take 240 us beyond the median, in `k` on rank 0."
    )
    rows["rank_tails"] = [rank_tail(0, outlier_excess_ns=90_000)]
    assert answer(made(**rows)) == (
        "Slow launches cost less than 1 % of a GPU in every kernel: the most is 90 us beyond the "
        "median, in `k` on rank 0."
    )
    rows["findings"] = [GAIN]
    rows["tail_ranks"] = [rank(0), rank(1, step_unit="layer")]
    assert answer(made(**rows)).startswith("Fix first: t (at most 200 us a layer, 20.0 %). Slow")
    rows["rank_tails"] = rows["findings"] = []
    assert answer(made(**rows)).startswith("No compute kernel takes more than twice its median")


def test_captures_with_little_to_count_are_told():
    few = {**TAIL, "launches_n": 99}
    assert "99th percentile is practically" in caveats(made(tails=[few]))[0]
    assert caveats(made(tails=[TAIL])) == []
    assert "--step RANGE" in caveats(made(tail_ranks=[rank(0)]))[0]
    assert caveats(made(tail_ranks=[rank(0, steps_n=3)])) == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    planted = write_demo(folder, scale=0.5).planted
    return tables_of(folder / "out", folder / "baseline", recipe="tail_stats"), planted


def test_the_planted_jitter_and_the_planted_mix_are_in_the_table(demo):
    tables, planted = demo
    listed = tables["outliers"][~tables["outliers"]["communication"]]
    assert any(planted.jittery_kernel in name for name in listed["name"])
    mix_rows = tables["tails"][tables["tails"]["name"].str.contains(planted.mixed_kernel)]
    assert mix_rows["shape_mix"].all()
    assert not (mix_rows["outlier"] | mix_rows["systematic"]).any()
    # Neither is worth 1 % of a GPU.
    assert set(tables["findings"]["scope"]) == {"rank"}


def test_the_planted_slow_rank_is_found_once_and_no_other(demo):
    tables, planted = demo
    listed = tables["findings"]
    listed = listed[listed["kind"] == "performance"]
    assert listed["rank"].tolist() == [planted.slow_rank]
    assert listed["cause_rank"].tolist() == [planted.slow_rank]
    ranks = tables["tail_ranks"].set_index("rank")
    assert pd.notna(ranks["steps_n"]).all()
    assert set(ranks["steps_n"]) == {planted.steps}

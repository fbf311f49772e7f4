"""The timeline: every nanosecond of a lane in one state, on one clock, the first finding marked."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pandas as pd
import pytest
from quick_run import quick, quick_run

from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.recipes.llm_overview.tables import views, whole_run
from nsys_llm.recipes.llm_overview.tables.views import job_clock
from nsys_llm.report.building import finished
from nsys_llm.report.part import OverviewParts
from nsys_llm.testing import demo as demo_set

LANE = ["view", "rank", "device_id"]
STATES = ("work", "wait")


def looked(*words):
    kept = KeptRanks(here=True)
    return finished(quick_run("llm_overview", *words, kept=kept), kept)


def times_of(rows):
    sums = Counter()
    for row in rows.itertuples():
        mixed = not pd.isna(row.mixture)
        parts = json.loads(row.mixture) if mixed else {row.state: row.duration_ns}
        assert mixed == (len(parts) > 1)
        assert sum(parts.values()) == row.duration_ns == row.end_ns - row.start_ns
        assert parts[row.state] == max(parts.values())
        sums.update(parts)
    return sums


@pytest.fixture(scope="module")
def demo(shared_runs, tmp_path_factory):
    """Four ranks of the demo: what each has in a window is read again."""
    folder = tmp_path_factory.mktemp("ranks")
    for path in sorted((shared_runs.ranks("demo") / "after").iterdir())[:4]:
        (folder / path.name).hardlink_to(path)
    return folder


@pytest.fixture(scope="module")
def shown(demo):
    return looked(demo)


@pytest.mark.slow
@pytest.mark.nightly("words0")
@pytest.mark.parametrize("words", [(), ("--steps", "3:6", "--filter-nvtx", "decode")])
def test_a_lane_is_what_the_wall_split_says_of_its_window(demo, shown, words):
    """Filters choose steps, and thin out no lane."""
    rows = (looked(demo, *words) if words else shown).tables["timeline"]
    assert set(rows["view"]) == {0, 1, 2}
    lanes = [*rows[rows["part"].isin(STATES)].groupby(LANE)]
    for (_, rank, _), lane in lanes[::2] if words else lanes:
        window = f"{lane['start_ns'].min()}/{lane['end_ns'].max()}"
        wall = quick("idle_gaps", demo / f"rank{rank}.sqlite", "--filter-time", window)["wall"]
        wanted = Counter()
        for row in wall.itertuples():
            kind = row.wall_class
            name = {"profiler": "profiler_overhead", "communication": kind, "copies": kind}
            wanted[name.get(kind, row.detail)] += row.time_ns
        sums = Counter()
        for name, time_ns in times_of(lane).items():
            of_communication = name in ("waiting", "transfer", "not_matched")
            sums["communication" if of_communication else name] += time_ns
        assert sums == {name: ns for name, ns in wanted.items() if ns}


@pytest.mark.slow
def test_lanes_have_no_holes_and_are_as_long_as_what_the_gpu_has_of_the_step(shown):
    rows, budget = shown.tables["timeline"], shown.parts["step_budget"].tables
    steps = budget["job_steps"].set_index("step")
    spans = shown.tables["wall"].groupby("rank")[["span_start_ns", "span_end_ns"]].first()
    for (_, rank, _), lane in rows[rows["part"].isin(STATES)].groupby(LANE):
        ordered = lane.sort_values("start_ns")
        ends = ordered["end_ns"].tolist()
        assert ordered["start_ns"].tolist()[1:] == ends[:-1]
        (begin_ns,) = set(lane["start_ns"] - lane["since_ns"])
        end_ns = begin_ns + steps.loc[lane["step"].iloc[0], "wall_ns"]
        low, high = spans.loc[rank]
        assert ordered["start_ns"].iloc[0] == max(begin_ns, low)
        assert ends[-1] == min(end_ns, high)


@pytest.mark.slow
def test_the_whole_run_is_the_steps_of_each_gpu_without_holes(shown):
    rows, budget = shown.tables["timeline"], shown.parts["step_budget"].tables
    run = rows[rows["view"] == 0]
    steps = budget["device_steps"]
    spans = shown.tables["wall"].groupby("rank")[["span_start_ns", "span_end_ns"]].first()
    for rank, lane in run[run["part"] == "steps"].groupby("rank"):
        ends = lane["end_ns"].tolist()
        assert lane["start_ns"].tolist()[1:] == ends[:-1]
        sums, own = times_of(lane), steps[steps["rank"] == rank]
        low, high = spans.loc[rank]
        assert lane["start_ns"].iloc[0] == min(low, own["start_ns"].iloc[0])
        assert ends[-1] == max(high, own["end_ns"].iloc[-1])
        assert sums["compute"] == own["busy_compute_ns"].sum()
        assert sums["communication"] == own["busy_communication_ns"].sum()
        assert sums["idle"] == own["idle_ns"].sum()
        assert lane["step"].dropna().tolist() == own["job_step"].tolist()
    framed = run[run["part"] == "shown"].set_index("step")["duration_ns"].to_dict()
    jobs = budget["job_steps"].set_index("step")["wall_ns"]
    views_shown = set(rows.loc[rows["view"] > 0, "step"])
    assert framed == {step: jobs[step] for step in views_shown}
    step, title = rows.loc[rows["view"] == 1, ["step", "shows"]].iloc[0]
    assert title.startswith(f"Median: step {step} of {len(jobs)}, ")


@pytest.mark.parametrize(("gpus_n", "steps_n"), [(1, 5000), (3, 1), (64, 1000)])
def test_of_many_steps_of_many_gpus_some_are_joined(gpus_n, steps_n):
    gpus = [views.GpuLane(_Numbered(n), 0, f"r{n}") for n in range(gpus_n)]
    frame = pd.DataFrame(
        [(gpu.rank.file, 0, step) for gpu in gpus for step in range(steps_n)],
        columns=["file", "device_id", "job_step"],
    )
    frame["start_ns"], frame["end_ns"] = 10 * frame["job_step"], 10 * frame["job_step"] + 10
    frame = frame.assign(**dict.fromkeys(whole_run._CLASSES, 2))
    joined = whole_run._joined(frame, gpus)
    assert sum(map(len, joined.values())) <= 2_000
    assert len(joined) == gpus_n
    for some in joined.values():
        assert sum(row["steps_n"] for row in some) == steps_n
        assert (some[0]["start_ns"], some[-1]["end_ns"]) == (0, 10 * steps_n)
        assert sum(row["idle_ns"] for row in some) == 2 * steps_n


@pytest.mark.slow
def test_ranks_stand_where_they_truly_were(shown):
    rows, shifts = shown.tables["timeline"], {}
    for (view, rank), lane in rows[rows["part"].isin(STATES)].groupby(["view", "rank"]):
        (ahead_ns,) = set(lane["since_ns"] - lane["start_ns"])
        shifts.setdefault(view, []).append(ahead_ns - demo_set._CAPTURE_STARTS_NS[rank])
    assert len(shifts) == 2
    # Ranks leave a collective within 4 us.
    assert all(max(some) - min(some) < 4_000 for some in shifts.values())
    clocks = job_clock(OverviewParts(shown.parts, shown.run.ranks, shown.run.options))
    assert clocks.common_ns(shown.run.ranks[0], 0) == 0
    for rank in shown.run.ranks:
        for at_ns in (0, 10**6, 10**8, 10**11):
            assert abs(clocks.common_ns(rank, clocks.own_ns(rank, at_ns)) - at_ns) <= 1


def about(rank, device_id=0, blamed=None):
    cause = None if blamed is None else "rank"
    return {"rank": rank, "device_id": device_id, "cause": cause, "cause_rank": blamed}


def test_of_too_many_gpus_those_that_matter_are_shown_and_some_of_all():
    gpus = [views.GpuLane(_Numbered(number), 0, f"rank{number}", 100) for number in range(1_024)]
    gpus[500] = views.GpuLane(_Numbered(500), 0, "rank500", 122)
    findings = [about(777), about(None), about(13, blamed=14)]
    path = [{"rank": 901}, {"rank": 13}, {"rank": None}]
    shown = [gpu.rank.number for gpu in views.chosen_gpus(gpus, findings, path)]
    assert len(shown) == len(set(shown)) == views.MOST_LANES
    assert {777, 13, 14, 901, 500, 0} <= set(shown)
    assert shown == sorted(shown)
    assert max(right - left for left, right in pairwise(shown)) < 40
    assert views.chosen_gpus(gpus[:64], findings, path) == gpus[:64]


def test_the_first_findings_are_shown_wherever_their_gpus_stand():
    """Eight GPUs a rank: 40 findings and a long path name more GPUs than there are lanes."""
    gpus = [views.GpuLane(_Numbered(at // 8), at % 8, f"{at}", 100) for at in range(1_024)]
    findings = [about(127 - number, 7) for number in range(40)]
    path = [{"rank": number} for number in range(64)]
    shown = [(gpu.rank.number, gpu.device_id) for gpu in views.chosen_gpus(gpus, findings, path)]
    assert len(shown) == views.MOST_LANES
    assert {(row["rank"], row["device_id"]) for row in findings} <= set(shown)
    many = [about(127 - number // 8, 7 - number % 8) for number in range(100)]
    shown = [(gpu.rank.number, gpu.device_id) for gpu in views.chosen_gpus(gpus, many, path)]
    first = [(row["rank"], row["device_id"]) for row in many[: views.MOST_LANES]]
    assert shown == sorted(first)


class _Numbered:
    def __init__(self, number):
        self.number, self.file = number, f"r{number}"

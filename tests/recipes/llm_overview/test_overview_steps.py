"""Steps of the overview: how many full ones each GPU has, and their mean window."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from quick_run import quick
from results import rows
from trace_builder import TraceBuilder

from nsys_llm.recipes.llm_overview.findings.screen import screen
from nsys_llm.recipes.llm_overview.tables.ranks import mean_step_ns, rank_rows
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.steps import DeviceSteps, StepKind
from nsys_llm.trace.wall import DeviceWall, RankWall

#: Any recipe will do: steps are the overview's own.
ONLY = ("--only", "llm_hotspots")
PAUSES = ("--only", "step_budget")
PHASES = ("--only", "nvtx_phase_attribution,step_budget")


def wall_of(steps_of, name="work"):
    """Return the wall of a rank; of each device so many steps of equal length."""
    devices = []
    for device_id, (steps_n, step_ns) in steps_of.items():
        edges, whole = step_ns * np.arange(steps_n + 1), np.ones(steps_n, dtype=bool)
        windows = np.column_stack((edges[:-1], edges[1:]))
        work = DeviceSteps(windows, whole, True)
        devices.append(DeviceWall(device_id, None, None, 0, {}, *[0] * 9, work=work))
    return RankWall((), tuple(devices), StepKind(name, "step", "repeated range", 3))


def test_a_gpu_counts_where_its_rank_calls_a_step_what_most_do():
    keys = [RankKey("a", 1, ""), RankKey("b", 2, ""), RankKey("c", 3, "")]
    ranks = [Rank(key, number, key.path, "index", None) for number, key in enumerate(keys)]
    walls = [wall_of({0: (2, 10), 1: (0, 0)}), wall_of({0: (3, 20)}), wall_of({0: (9, 10)}, "else")]
    mapped = [SimpleNamespace(key=key, wall=wall) for key, wall in zip(keys, walls, strict=True)]
    gpus = rank_rows([SimpleNamespace(ranks=mapped)], ranks)
    steps = [(row["file"], row.get("steps_n"), row.get("step_ns")) for row in gpus]
    assert steps == [("a", 2, 10.0), ("a", None, None), ("b", 3, 20.0), ("c", None, None)]
    for rank in mapped:
        rank.wall = RankWall((), rank.wall.devices)
    assert not any("steps_n" in row for row in rank_rows([SimpleNamespace(ranks=mapped)], ranks))


def test_the_mean_is_over_all_steps_of_all_gpus():
    gpus = [
        {"span_ns": 50, "steps_n": 2, "step_ns": 10.0},
        {"span_ns": 110, "steps_n": 3, "step_ns": 20.0},
        {"span_ns": 0, "steps_n": None, "step_ns": None},
    ]
    assert mean_step_ns(gpus) == 80 / 5
    assert mean_step_ns([]) is None
    # Steps that hold less than half of the time are no measure of what is gained in all of it.
    assert mean_step_ns([*gpus, {"span_ns": 1, "steps_n": None, "step_ns": None}]) is None


def training(path, beside, pause_ns=0):
    """Write 24 steps of 1.48 ms, after some of them so many of an evaluation, and one pause."""
    trace, clock = TraceBuilder().process(pid=1, name="train"), 10_000
    for step in range(24):
        names = [(f"train_step {step}", 1_460_000)]
        names += [(f"eval_step {place}", 610_000) for place in range(beside.get(step, 0))]
        for name, took_ns in names:
            trace.nvtx(name, clock, clock + 60_000)
            trace.kernel("gemm", start_ns=clock + 10_000, duration_ns=took_ns,
                         launch=(clock + 1_000, clock + 5_000))  # fmt: skip
            clock += took_ns + 20_000
        clock += pause_ns * (step == 12)
    return trace.write_sqlite(path / "rank0.sqlite")


@pytest.mark.parametrize(
    ("beside", "steps"),
    [
        ({5: 8, 11: 8, 17: 8}, ["21 steps of 1.48 ms", "`eval_step` 24 of 610 us"]),
        ({12: 40}, ["23 steps of 1.48 ms", "`eval_step` 40 of 610 us"]),
        ({}, ["24 steps", "mean 1.48 ms a step"]),
        # Where most hold it, it is part of the step.
        (dict.fromkeys(range(1, 24, 2), 1), ["24 steps", "mean 1.77 ms a step"]),
        (dict.fromkeys(range(24), 1), ["24 steps", "mean 2.08 ms a step"]),
    ],
)
def test_a_step_of_which_few_hold_more_is_the_usual_one(beside, steps, tmp_path):
    shown = screen(quick("llm_overview", training(tmp_path, beside), *ONLY))
    facts = shown.facts.split(", ")[2:]
    assert facts == steps
    assert shown.trust.startswith("Too little to judge: ")
    assert shown.by_step == (len(beside) not in (1, 3))


def test_steps_that_a_time_cuts_do_not_count(tmp_path):
    # From inside of one step to inside of another; those between are whole.
    words = "--filter-time", f"{3 * 1_480_000 - 1}/{9 * 1_480_000 + 1}"
    ranks = quick("llm_overview", training(tmp_path, {}), *ONLY, *words)["ranks"]
    assert rows(ranks, "steps_n step_ns") == [(6, 1_480_000)]


@pytest.mark.parametrize("beside", [{}, dict.fromkeys((5, 11, 17), 1)])
def test_a_pause_is_not_said_to_be_what_else_repeats(beside, tmp_path):
    shown = screen(quick("llm_overview", training(tmp_path, beside, 20_000_000), *PAUSES))
    assert "one pause of 20 ms in step 13" in shown.facts
    assert "24 steps" in shown.facts
    assert "eval_step" not in shown.facts


def test_an_evaluation_and_a_pause_are_told_apart(tmp_path):
    shown = screen(quick("llm_overview", training(tmp_path, {5: 8}, 7_000_000), *PAUSES))
    facts = shown.facts.split(", ")[2:]
    assert facts == [
        "23 steps of 1.48 ms",
        "`eval_step` 8 of 610 us",
        "one pause of 7 ms in step 13",
    ]


@pytest.mark.parametrize(
    ("longest", "facts"),
    [
        (None, ["30 decode steps of 1.22 ms", "10 prefill of 4.02 ms"]),
        # A decode step as long as a prefill: the longer ones have no phase of their own.
        ("decode", ["29 steps of 1.22 ms", "11 of 4.02 ms with more in it"]),
    ],
)
def test_longer_steps_of_a_phase_of_their_own_are_called_by_it(longest, facts, tmp_path):
    server(tmp_path, 0, longest_step=5 if longest else None)
    assert screen(quick("llm_overview", tmp_path, *PHASES)).facts.split(", ")[2:] == facts


def test_steps_of_a_phase_are_counted_on_all_ranks(tmp_path):
    """Rank 1's longer steps are the longest, and its capture ends early."""
    server(tmp_path, 0)
    server(tmp_path, 1, rounds=6, prefill_ns=8_000_000)
    facts = screen(quick("llm_overview", tmp_path, *PHASES)).facts.split(", ")[2:]
    assert facts == ["18 to 30 decode steps of 1.22 ms", "6 to 10 prefill of 8.02 ms"]


def server(folder, rank, *, rounds=10, longest_step=None, prefill_ns=4_000_000):
    trace, clock = TraceBuilder().process(pid=rank + 1, name="server", gpu_ids=(rank,)), 10_000
    trace.environment(RANK=str(rank))
    for step, name in enumerate(["prefill", "decode", "decode", "decode"] * rounds):
        took_ns = prefill_ns if name == "prefill" or step == longest_step else 1_200_000
        trace.nvtx(name, clock, clock + took_ns)
        trace.kernel("gemm", start_ns=clock + 10_000, duration_ns=took_ns,
                     launch=(clock + 1_000, clock + 5_000))  # fmt: skip
        clock += took_ns + 20_000
    trace.write_sqlite(folder / f"rank{rank}.sqlite")

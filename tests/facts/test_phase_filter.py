"""--phase against planted profiles: what it leaves, and the time that it leaves."""

from __future__ import annotations

import numpy as np
import pytest
import step_world
from quick_run import quick
from step_world import StepWorld
from test_phase_times import rank

from nsys_llm.facts.nvtx.phase_times import find_phase
from nsys_llm.numeric.intervals import union_intervals
from nsys_llm.run.cli import main

SEEDS = range(6)


def server(seed, steps_n=9):
    """Return a world, the starts of its operations by phase, and its spans by phase."""
    world = StepWorld(seed)
    starts: dict[str, list[int]] = {"prefill": [], "decode": [], "sampling": [], "": []}
    spans: dict[str, list[tuple[int, int]]] = {name: [] for name in starts}

    def launched(phase, count):
        seen = set(world.truth)
        for _ in range(count):
            world.launch(world.chance.choice(step_world.LAYER_KERNELS), -1)
        new_starts = sorted(set(world.truth) - seen)
        starts[phase] += new_starts
        return new_starts

    for step in range(steps_n):
        phase = world.chance.choice(("prefill", "decode"))
        with world.range(f"{phase} {step}"):
            phase_starts = launched(phase, 2)
            with world.range("sample"):
                inner = launched("sampling", world.chance.randint(0, 2))
            with world.range("no phase of its own"):
                phase_starts += launched(phase, world.chance.randint(0, 2))
        spans[phase].append((min(phase_starts), max(world.ends[at] for at in phase_starts)))
        if inner:
            spans["sampling"].append((min(inner), max(world.ends[at] for at in inner)))
        launched("", 1)
        world.idle(500, 5_000)
    return world, starts, spans


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("phase", ["prefill", "decode", "sampling"])
def test_a_phase_is_what_its_ranges_launch_and_their_time_on_the_gpu(phase, seed, tmp_path):
    world, starts, spans = server(seed)
    trace = rank(world.trace, tmp_path)
    selection = find_phase(trace, {"phase": phase.upper()})
    kept = trace.unfiltered["kernels"]["start_ns"][selection.launched].tolist()
    assert sorted(kept) == sorted(starts[phase])
    edges = np.array(spans[phase], dtype=np.int64).reshape(-1, 2)
    assert selection.windows_ns.tolist() == union_intervals(edges[:, 0], edges[:, 1]).tolist()
    assert set(selection.there) == {
        name for name, phase_starts in starts.items() if name and phase_starts
    }


def test_calls_are_in_a_phase_as_launches_are(tmp_path):
    world, *_ = server(3)
    trace = rank(world.trace, tmp_path)
    calls = trace.tables["api_calls"]
    for phase in ("prefill", "decode", "sampling"):
        selection = find_phase(trace, {"phase": phase})
        launched = np.zeros(len(calls), dtype=bool)
        launched[trace.unfiltered["kernels"]["launch_row"][selection.launched]] = True
        assert (selection.holds(calls["start_ns"], calls["global_tid"]) == launched).all()


def test_a_phase_that_is_not_there_holds_nothing(tmp_path):
    world, *_ = server(3)
    selection = find_phase(rank(world.trace, tmp_path), {"phase": "backward"})
    assert not selection.launched.any()
    assert not len(selection.windows_ns)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["step_budget", "trace_diff"])
def test_a_recipe_takes_a_phase_a_step_and_a_kernel_of_steps(recipe, tmp_path):
    world, starts, _ = server(1)
    sides = 2 if recipe == "trace_diff" else 1

    def selected(trace, *options):
        there_n = len(list(tmp_path.iterdir()))
        names = [f"{there_n + side}.sqlite" for side in range(sides)]
        paths = [trace.write_sqlite(tmp_path / name) for name in names]
        coverage = quick(recipe, *paths, *options)["coverage"]
        return set(coverage[coverage["op"] == "kernel"]["selected_n"])

    assert selected(world.trace, "--phase", "decode") == {len(starts["decode"])}
    small_world = StepWorld(2)
    for step in range(8):
        small_world.launch("embed", step)
        small_world.layers(step, 1)
    assert selected(small_world.trace, "--step-kernel", "embed", "--steps", "1:3") == {12}
    assert selected(small_world.trace, "--steps", "1:3") == {12}  # by the period
    assert selected(small_world.trace, "--skip-warmup") == {42}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--phase", "decod"], "no phase 'decod' on the rank; nearest: 'decode'"),
        (["--step-kernel", "atention", "--steps", "0:1"], "no kernel 'atention' on the rank"),
        (["--step", "decod #", "--steps", "0:1"], "no NVTX range 'decod #' on the rank"),
        (["--step-kernel", "norm"], "--step-kernel says what a step is"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(words, message, tmp_path, capsys):
    world, *_ = server(1)
    path = world.trace.write_sqlite(tmp_path / "a.sqlite")
    out = ["--output", str(tmp_path / "out"), "--mode", "none"]
    assert main(["idle_gaps", "--input", str(path), *words, *out]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

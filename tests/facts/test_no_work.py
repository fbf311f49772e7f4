"""When a server had no request, against what was planted, in every recipe that knows it."""

from __future__ import annotations

import pytest
import step_world
from effort import at_night, seeds
from quick_run import quick
from results import idle_by_cause, rows
from step_world import StepWorld

RECIPES = ("idle_gaps", "step_budget", "tail_stats", "nvtx_phase_attribution")
NAMES = {
    "vllm": "execute_context_{context}({tokens})_generation_{generating}({generating})",
    "detailed": "execute_9_context_{context}(sq{tokens}sk{keys}sqsq{keys}sqsk{keys})"
    "_generation_{generating}(sq0sk0sqsq0sqsk0)",
    "trtllm": "[Executor] _forward_step {step}: {context} ctx reqs, {generating} gen reqs",
    "tokens": "_forward_step 7: {context} ctx reqs, {tokens} ctx tokens, {generating} gen reqs",
}


def wait(world):
    """Let the host wait for the GPU in a call, as engines do once a step."""
    begin_ns = world.host_ns
    world.sync()
    world.trace.api("cudaStreamSynchronize_v3020", start_ns=begin_ns, end_ns=world.host_ns)
    world.host_ns += 10


def server(seed, name, *, stalls=False):
    """Return a server that is empty now and then, and for how long its GPU had nothing to do.

    Args:
        seed: Of chance.
        name: Of its steps.
        stalls: Whether its host also stops for as long while requests generate, or are read.
    """
    world, empty_ns = StepWorld(seed), 0
    generating = chunks = context = free_ns = 0
    for step in range(40):
        is_empty = generating + chunks == 0
        if chunks == 0 and (is_empty or world.chance.random() < 0.2):
            chunks = keys = 1 + int(stalls and world.chance.random() < 0.3)
        context = int(chunks > 0)
        if is_empty and step:
            world.idle(150_000, 250_000)
            empty_ns += world.host_ns + 10 - free_ns
        elif stalls and world.chance.random() < (0.5 if chunks and not generating else 0.05):
            wait(world)
            world.idle(150_000, 250_000)
        read_n = 64 * context * (1 + keys - chunks)
        numbers = {"step": step, "context": context, "tokens": 64 * context, "keys": read_n}
        with world.range(name.format(generating=generating, **numbers)):
            world.layers(step)
        free_ns = max(world.host_ns, world.gpu_ns)
        wait(world)
        world.idle()
        chunks -= context
        done = int(generating > 0 and world.chance.random() < 0.4)
        generating += int(context and not chunks) - done
    return world, empty_ns


@pytest.mark.nightly("4-vllm", "4-detailed", "4-trtllm", "4-tokens", "2-detailed", "2-tokens")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("seed", seeds(6, 2))
def test_an_empty_server_is_no_idle_time_of_the_host(seed, name, tmp_path):
    world, empty_ns = server(seed, name, stalls=True)
    path = world.trace.write_sqlite(tmp_path / "rank0.sqlite")
    assert empty_ns > 0
    tables = {recipe: quick(recipe, path) for recipe in RECIPES}
    for of_recipe in tables.values():
        wall = rows(of_recipe["wall"], "wall_class detail time_ns span_ns")
        assert [ns for kind, _, ns, _ in wall if kind == "no_work"] == [empty_ns]
        assert sum(row[2] for row in wall) == wall[0][3]
        assert "no_work" not in [detail for _, detail, _, _ in wall]
    assert idle_by_cause(tables["idle_gaps"])["no_work"] == empty_ns


@pytest.mark.parametrize("seed", seeds(6, 2))
def test_no_request_comes_earlier_where_the_host_is_faster(seed, tmp_path):
    world, _ = server(seed, NAMES["vllm"])
    tables = quick("step_budget", world.trace.write_sqlite(tmp_path / "rank0.sqlite"))
    steps = tables["device_steps"]
    (wall_ns,) = (
        ns for name, ns in rows(tables["wall"], "wall_class time_ns") if name == "no_work"
    )
    assert steps["no_work_ns"].sum() == wall_ns
    assert (steps["no_work_ns"] <= steps["idle_ns"]).all()
    counted = steps[steps["mark"] == ""]
    fixed_ns = (counted["no_work_ns"] + counted["busy_compute_ns"]).mean()
    changes = tables["what_if"].set_index("change")
    assert {"host", "wait"} <= set(changes["what"])
    for what, then_ns, gain_ns in rows(tables["what_if"], "what then_ns gain_ns"):
        if what in ("host", "wait"):
            assert then_ns >= fixed_ns
            assert gain_ns <= counted["window_ns"].mean() - fixed_ns + 1e-6
    # Without waits and host work nothing else is left: the GPU computes, or has no request.
    assert changes.loc["host=0", "then_ns"] <= 1.2 * fixed_ns


def innocents():
    """Return worlds in which no time is without work, by name."""
    stalled = StepWorld(1)
    for step in range(20):  # requests generate in every step, and the host stops twice
        with stalled.range(f"execute_context_{step % 2}({64 * (step % 2)})_generation_4(4)"):
            stalled.layers(step)
        stalled.sync()
        stalled.idle(200_000, 300_000) if step in (7, 12) else stalled.idle()
    prefill = StepWorld(2)
    for step in range(20):  # offline: new requests only, one batch after the other
        with prefill.range("execute_context_4(512)_generation_0(0)"):
            prefill.layers(step)
        prefill.sync()
        prefill.idle()
    late = StepWorld(2)
    for step in range(
        20
    ):  # a host that takes several times as long between steps as the GPU in one
        with late.range("execute_context_4(512)_generation_0(0)"):
            late.layers(step)
        late.sync()
        late.idle(30_000, 60_000)
    return {
        "stalled": stalled,
        "late": late,
        "prefill": prefill,
        "vllm": step_world.vllm(3),
        "sglang": step_world.sglang(3),
        "training": step_world.pytorch(3, "step {step}"),
    }


@pytest.mark.parametrize(
    "recipe", ["serving_steps", *at_night("idle_gaps", "step_budget", "trace_diff")]
)
@pytest.mark.parametrize("world", innocents().values(), ids=innocents())
def test_who_has_work_is_not_without(world, recipe, tmp_path):
    path = world.trace.write_sqlite(tmp_path / "rank0.sqlite")
    words = ("--baseline", str(path)) if recipe == "trace_diff" else ()
    assert "no_work" not in set(quick(recipe, path, *words)["wall"]["wall_class"])

"""Ranges are steps by what the GPU did: two of one text may be one step, two names of one kind."""

from __future__ import annotations

import pytest
from step_world import LAYER_KERNELS, StepWorld
from test_phase_times import rank

from nsys_llm.facts.steps.finder import find_steps
from nsys_llm.facts.steps.steps import ENGINE, GRAPH_REPLAYS, KERNEL_PERIOD, REPEATED
from nsys_llm.taxonomy.step_names import STEP


def found_in(world, tmp_path):
    return find_steps(rank(world.trace, tmp_path), {})


def by_start(steps):
    return dict(zip(steps.ops.start_ns.tolist(), steps.step.tolist(), strict=True))


def sampled(seed, *, begins_in_a_step=False, text="execute_context_0(0)_generation_{n}({n})"):
    """An engine that writes the same text around the model and around sampling."""
    world = StepWorld(seed)
    for step in range(12):
        name = text.format(n=8 + step // 5)
        if step or not begins_in_a_step:
            with world.range(name):
                world.layers(step)
        with world.range(name):
            world.launch("topk", step, took_ns=200)
            world.launch("argmax", step, took_ns=200)
        world.sync()
    return world


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("text", "source"),
    [("execute_context_0(0)_generation_{n}({n})", ENGINE), ("forward step {n}", REPEATED)],
)
def test_the_model_and_its_sampling_under_one_text_are_one_step(text, source, seed, tmp_path):
    world = sampled(seed, text=text)
    steps = found_in(world, tmp_path)
    assert (len(steps), steps.source) == (12, source)
    assert by_start(steps) == world.truth
    assert steps.full.all()


def test_a_step_of_which_the_capture_has_only_the_sampling_is_cut(tmp_path):
    steps = found_in(sampled(1, begins_in_a_step=True), tmp_path)
    assert steps.full.tolist() == [False] + [True] * 11


def test_batches_of_one_kernel_set_in_turn_are_steps_each(tmp_path):
    world = StepWorld(2)
    for step in range(12):
        with world.range("execute_context_0(0)_generation_8(8)"):
            world.layers(step, layers_n=2 if step % 2 else 3)
    assert by_start(found_in(world, tmp_path)) == world.truth


@pytest.mark.parametrize("names", [("ubatch_a", "ubatch_b"), ("prefill", "decode")])
def test_two_names_of_one_kind_of_work_are_steps_together(names, tmp_path):
    world = StepWorld(3)
    for step in range(12):
        with world.range(names[step % 2]):
            world.layers(step)
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth
    assert steps.name == " / ".join(sorted(names))


@pytest.mark.parametrize(
    "names", [("forward", "backward"), ("eval_step", "train_step"), ("enc_a", "enc_b")]
)
def test_parts_of_a_step_are_not_steps_together(names, tmp_path):
    world = StepWorld(4)
    for step in range(6):
        with world.range(names[0]):
            world.launch("gemm", -1, took_ns=900)
        with world.range(names[1]):
            same = "conv" if names[0] == "enc_a" else "gemm"
            world.launch(same, step, took_ns=1_200)
    steps = found_in(world, tmp_path)
    assert (steps.name, len(steps)) == (names[1], 6)


def started(world, text, end_tid, step):
    """Add a start/end range around layers that ends on another thread, a little later."""
    begin_ns = world.host_ns
    world.layers(step)
    world.trace.nvtx(text, begin_ns, world.host_ns + 30, kind="start_end", end_tid=end_tid)
    world.idle()


def test_start_end_ranges_across_threads_are_steps(tmp_path):
    world = StepWorld(5)
    for step in range(8):
        started(world, "decode" if step % 4 else "prefill", 155 + step % 2, step)
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth
    assert (steps.name, steps.unit) == ("decode / prefill", STEP)


def test_start_end_ranges_of_requests_that_overlap_are_no_steps(tmp_path):
    world = StepWorld(6)
    begins = []
    for step in range(9):
        begins.append(world.host_ns)
        world.layers(step)
        for name in ("logits", "sample"):
            world.launch(name, step)
        if step >= 3:
            world.trace.nvtx("request", begins[step - 3], world.host_ns, kind="start_end")
    assert found_in(world, tmp_path).source == KERNEL_PERIOD


@pytest.mark.parametrize("steps_n", [2, 5])
def test_numbered_steps_are_steps_and_their_layers_are_not(steps_n, tmp_path):
    world = StepWorld(7)
    for step in range(steps_n):
        with world.range(f"training_step_{10 + step}"):
            for way in ("forward", "backward"):
                for layer in range(4):
                    with world.range(f"FSDP:layers.{layer}:{way}_compute"):
                        world.launch(LAYER_KERNELS[layer], step, took_ns=600)
    steps = found_in(world, tmp_path)
    assert (steps.name, steps.unit, len(steps)) == ("training_step_#", STEP, steps_n)
    assert by_start(steps) == world.truth


def decoding_by_graphs(*between, steps_n=16):
    """Return replays of 4,000 ns and a sampling; now and then other kernels follow.

    Args:
        between: (name, how many, ns each) of these.
        steps_n: Replays.
    """
    world, step, prefills = StepWorld(8), 0, 0
    for replay in range(steps_n):
        world.replay(tuple("abcdefghij"), step)
        world.launch("sample", step, took_ns=50)
        world.sync()
        if between and replay % 5 == 2:
            step, prefills = step + 1, prefills + 1
            for name, kernels_n, took_ns in between:
                for _ in range(kernels_n):
                    world.launch(name, step, took_ns=took_ns)
            world.sync()
        step += 1
    return world, prefills


def test_eager_prefills_between_replays_are_steps_of_their_own_kind(tmp_path):
    world, prefills = decoding_by_graphs(("prefill_gemm", 20, 400), ("sample", 1, 50))
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth
    assert steps.names.tolist().count("eager prefill") == prefills == 3
    assert (len(steps), steps.source) == (19, GRAPH_REPLAYS)


@pytest.mark.parametrize("between", [("evict_cache", 1, 9_000), ("mask", 12, 40)])
def test_a_long_kernel_or_many_small_ones_between_replays_are_no_prefill(between, tmp_path):
    steps = found_in(decoding_by_graphs(between)[0], tmp_path)
    assert set(steps.names) == {"CUDA graph"}
    assert len(steps) == 16

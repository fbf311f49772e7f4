"""The finder of steps against planted truth, a brute force of the windows, and innocents."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import step_world
from quick_run import quick
from step_world import StepWorld
from test_phase_times import rank, ranks
from trace_builder import TraceBuilder

from nsys_llm.facts.steps.finder import find_steps
from nsys_llm.facts.steps.steps import (
    ENGINE,
    GRAPH_REPLAYS,
    KERNEL_PERIOD,
    NUMBERED,
    OPTION,
    REPEATED,
    STEP_KERNEL,
)
from nsys_llm.job.job_steps import common_step
from nsys_llm.taxonomy.names import normalize_range
from nsys_llm.taxonomy.step_names import (
    GRAPH,
    LAYER,
    PERIOD,
    STEP,
    has_sequence_number,
    is_operator,
    unit_of,
)
from nsys_llm.trace.steps import SlowBegin, StepKind

SEEDS = range(6)


def found_in(world, tmp_path, **options):
    return find_steps(rank(world.trace, tmp_path), options)


def by_start(steps):
    return dict(zip(steps.ops.start_ns.tolist(), steps.step.tolist(), strict=True))


def windows_of(world, steps_n, begin_ns):
    """Return E_(k-1), E_k of each step, operation by operation."""
    edges = [begin_ns]
    for step in range(steps_n):
        ends = [world.ends[at] for at, op_step in world.truth.items() if op_step == step]
        edges.append(max([edges[-1], *ends]))
    return list(pairwise(edges))


def same_as_planted(world, steps, steps_n):
    assert by_start(steps) == world.truth
    assert len(steps) == steps_n
    before = [
        world.ends[at]
        for at, op_step in world.truth.items()
        if op_step < 0 and at < min(start for start, step in world.truth.items() if step >= 0)
    ]
    begin_ns = max([int(steps.start_ns[0]), *before])
    assert list(map(tuple, steps.windows_ns(0).tolist())) == windows_of(world, steps_n, begin_ns)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (step_world.vllm, "execute_context_#(#)_generation_#(#)"),
        (step_world.sglang, "step[...]"),
        (step_world.tensorrt_llm, "_forward_step #"),
    ],
)
def test_an_engines_ranges_are_its_steps_though_others_are_as_many(engine, name, seed, tmp_path):
    world = engine(seed)
    steps = found_in(world, tmp_path)
    assert (steps.name, steps.unit, steps.source) == (name, STEP, ENGINE)
    same_as_planted(world, steps, 6)
    assert steps.full.all()


@pytest.mark.parametrize("mark", ["train_step {step}", "ProfilerStep#{step}", "iteration"])
def test_a_range_of_ones_own_around_operators_is_the_step(mark, tmp_path):
    world = step_world.pytorch(3, mark)
    steps = found_in(world, tmp_path)
    assert (steps.unit, steps.source) == (STEP, REPEATED)
    same_as_planted(world, steps, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_framework_marks_the_end_of_steps(seed, tmp_path):
    world = step_world.optimizer(seed)
    steps = found_in(world, tmp_path)
    assert (steps.name, steps.source) == ("Optimizer.step#AdamW.step", NUMBERED)
    assert by_start(steps) == world.truth
    assert steps.full.tolist() == [False, True, True, True, True]


@pytest.mark.parametrize("seed", SEEDS)
def test_hooks_of_numbered_blocks_part_layers(seed, tmp_path):
    world = step_world.fsdp(seed)
    steps = found_in(world, tmp_path)
    assert (steps.unit, steps.source) == (LAYER, NUMBERED)
    same_as_planted(world, steps, 8)
    # The last block of a pass holds the head, the last one of all is cut.
    assert steps.full.tolist() == [True, True, True, False] * 2


def test_layers_that_hold_little_but_for_what_follows_the_last_are_none(tmp_path):
    world = StepWorld(1)
    for block in range(4):
        with world.range(f"FSDP::pre_forward (blocks.{block}._checkpoint_wrapped_module)"):
            world.launch("all_gather", -1)
    for number in range(8):  # without a mark, such as an optimizer
        world.launch(f"update_{number}", -1)
    assert found_in(world, tmp_path) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["node", "graph"])
def test_replays_of_a_graph_are_steps(mode, seed, tmp_path):
    world = step_world.graphs(seed, mode)
    steps = found_in(world, tmp_path)
    assert (steps.unit, steps.source) == (GRAPH, GRAPH_REPLAYS)
    same_as_planted(world, steps, 7)
    assert steps.full.tolist() == [True] * 6 + [False]


@pytest.mark.parametrize("pieces_n", [2, 5])
def test_several_graphs_in_turn_are_one_step(pieces_n, tmp_path):
    world = step_world.graphs(1, pieces_n=pieces_n)
    steps = found_in(world, tmp_path)
    assert steps.unit == GRAPH
    same_as_planted(world, steps, 7)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_period_is_the_step_and_not_the_layer(seed, tmp_path):
    world = step_world.kernels_only(seed)
    steps = found_in(world, tmp_path)
    assert (steps.unit, steps.source) == (PERIOD, KERNEL_PERIOD)
    assert steps.name == "period of 24 kernels"  # 4 layers of 5, and 4 around them
    same_as_planted(world, steps, 8)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_launches_the_period_is_that_of_the_gpu(seed, tmp_path):
    world = step_world.kernels_only(seed, api=False)
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth
    assert steps.on_gpu
    first_ns = min(at for at, step in world.truth.items() if step == 0)
    before_ns = max(world.ends[at] for at, step in world.truth.items() if step < 0)
    windows = windows_of(world, 8, max(first_ns, before_ns))
    assert list(map(tuple, steps.windows_ns(0).tolist())) == windows


@pytest.mark.nightly
def test_now_and_then_another_kernel_does_not_change_the_period(tmp_path):
    world = StepWorld(4)
    for step in range(40):
        world.launch("embed", step)
        world.layers(step, 12)
        if step % 9 == 5:
            world.launch("evict_cache", step)
        world.launch("argmax", step)
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth


@pytest.mark.parametrize("seed", SEEDS)
def test_irregular_kernels_are_no_steps(seed, tmp_path):
    world = StepWorld(seed)
    for _ in range(400):
        world.launch(world.chance.choice(LAYER_KERNELS), -1)
    assert found_in(world, tmp_path) is None


LAYER_KERNELS = (*step_world.LAYER_KERNELS, *step_world.HEAD_KERNELS)


def test_a_kernel_that_comes_now_and_then_marks_no_step(tmp_path):
    world = StepWorld(0)
    for _ in range(30):
        for _ in range(world.chance.randint(34, 46)):
            world.launch("vector_add", -1)
        world.launch("flush", -1)
    assert found_in(world, tmp_path) is None


def test_one_kernel_over_and_over_is_no_step(tmp_path):
    world = StepWorld(0)
    for _ in range(50):
        world.launch("vector_add", -1)
    assert found_in(world, tmp_path) is None


def test_four_periods_are_too_few(tmp_path):
    assert found_in(step_world.kernels_only(0, steps_n=5), tmp_path) is None
    assert len(found_in(step_world.kernels_only(0, steps_n=6), tmp_path)) == 6


def test_operators_are_no_steps_however_much_they_hold(tmp_path):
    world = StepWorld(5)
    for number in range(40):
        for name in ("FlashAttnFunc, seq = {}, op_id = 3", "aten::mm, op_id = {}", "ncclAllReduce"):
            with world.range(name.format(number)):
                for _ in range(world.chance.randint(0, 3)):
                    world.launch(world.chance.choice(LAYER_KERNELS), -1)
    assert found_in(world, tmp_path) is None


def test_ranges_that_hold_nothing_are_no_steps(tmp_path):
    world = StepWorld(6)
    for step in range(5):
        with world.range(f"iteration {step}"):
            world.layers(step)
        for _ in range(4):
            with world.range("poll"):
                world.idle(3_000, 4_000)
    steps = found_in(world, tmp_path)
    assert (steps.name, len(steps)) == ("iteration #", 5)


def test_ranges_that_hold_less_than_half_are_no_steps(tmp_path):
    world = StepWorld(6)
    for _ in range(9):
        with world.range("small"):
            world.launch(world.chance.choice(LAYER_KERNELS), -1, took_ns=490)
        world.launch(world.chance.choice(LAYER_KERNELS), -1, took_ns=510)
    assert found_in(world, tmp_path) is None


def test_steps_are_found_beside_a_load_that_holds_more(tmp_path):
    trace, ms = TraceBuilder(), 1_000_000
    load = {"start_ns": 2 * ms, "duration_ns": 60 * ms, "size_bytes": 2**30}
    trace.nvtx("init_model", 0, 63 * ms).memcpy("HtoD", **load, launch=(ms, 62 * ms))
    for at in range(64 * ms, 104 * ms, 11 * ms):
        trace.nvtx("forward", at, at + 10 * ms)
        for launch in (at + 1_000, at + 5 * ms):
            times = {"start_ns": launch + 100_000, "duration_ns": 4_800_000}
            trace.kernel(f"gemm_{launch - at}", **times, launch=(launch, launch + 8_000))
    tables = quick("nvtx_phase_attribution", trace.write_sqlite(tmp_path / "rank0.sqlite"))
    assert tables["rank_steps"]["name"].tolist() == ["forward"]
    assert len(tables["steps"]) == 4


def test_of_two_ranges_as_frequent_the_outer_one_is_the_step(tmp_path):
    world = StepWorld(7)
    for step in range(4):
        with world.range("outer"), world.range("inner"):
            world.layers(step)
    assert found_in(world, tmp_path).name == "outer"


def test_of_two_ranges_side_by_side_the_one_with_more_work_is_the_step(tmp_path):
    world = StepWorld(7)
    for _ in range(4):
        with world.range("longer on the host"):
            world.idle(50_000, 60_000)
            world.launch("small", -1, took_ns=100)
        with world.range("more work"):
            world.launch("large", -1, took_ns=900)
    assert found_in(world, tmp_path).name == "more work"


@pytest.mark.parametrize("steady", [True, False])
def test_a_warm_up_is_a_step_only_if_nothing_else_is(steady, tmp_path):
    # The warm-up has more of everything; `forward` is in it, too.
    world = StepWorld(8)
    with world.range("warmup"):
        for step in range(5):
            with world.range(f"Warm-up Step {step + 1}"):
                with world.range("forward"):
                    world.launch("gemm", -1, took_ns=900)
                world.launch("backward", -1, took_ns=1_500)
    for _ in range(4 if steady else 0):
        with world.range("forward"):
            world.launch("gemm", -1, took_ns=900)
    steps = found_in(world, tmp_path)
    assert (steps.name, len(steps)) == (("forward", 4) if steady else ("Warm-up Step #", 5))


def test_two_of_a_kind_are_no_steps(tmp_path):
    world = StepWorld(8)
    for step in range(2):
        with world.range("step"):
            world.launch(f"kernel_{step}", step)
    assert found_in(world, tmp_path) is None


def test_a_thread_with_more_of_them_has_the_steps_of_the_process(tmp_path):
    world = StepWorld(9)
    for step in range(4):
        with world.range("step", tid=5):
            world.launch("a", step, tid=6)
    with world.range("step", tid=6):
        world.launch("b", -1, tid=6)
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth


def test_layers_are_called_layers(tmp_path):
    world = StepWorld(1)
    for layer in range(6):
        with world.range(f"model.layers.{layer}"):
            world.launch(f"kernel_{layer}", layer)
    steps = found_in(world, tmp_path)
    assert (steps.name, steps.unit) == ("model.layers.#", LAYER)
    names = (
        "layer #",
        "blocks.#._wrapped",
        "transformer.h.#",
        "decoder_layer_#",
        "step #",
        "block",
    )
    assert [unit_of(name) for name in names] == [LAYER] * 4 + [STEP] * 2


def test_an_option_comes_before_an_engine(tmp_path):
    world = step_world.vllm(0)
    steps = found_in(world, tmp_path, step="gpu_model_runner: sample")
    assert (steps.source, len(steps), steps.name) == (OPTION, 6, "gpu_model_runner: sample")
    assert found_in(world, tmp_path, step="nothing of this name") is None


def test_a_kernel_named_by_an_option_begins_each_step(tmp_path):
    world = step_world.vllm(0)
    steps = found_in(world, tmp_path, step_kernel="copy_inputs")
    assert (steps.source, steps.unit, len(steps)) == (STEP_KERNEL, STEP, 6)
    first_of = {at: name for at, name in zip(steps.start_ns.tolist(), steps.names, strict=True)}
    assert set(first_of.values()) == {"copy_inputs"}
    counts = Counter(steps.step.tolist())
    assert counts == {step: 18 for step in range(6)}  # input, 15 of the layers, sampling
    assert steps.full.tolist() == [True] * 5 + [False]
    assert found_in(world, tmp_path, step_kernel="no such kernel") is None


def four_steps():
    world = StepWorld(2)
    for step in range(4):
        with world.range(f"step {step}"):
            world.layers(step)
    return world


def test_steps_that_recipes_share_cannot_be_changed(tmp_path):
    world = StepWorld(1)
    for step in range(4):
        with world.range("outer"):
            world.launch("a", step=step)
    steps = find_steps(rank(world.trace, tmp_path), {})
    with pytest.raises(ValueError, match="read-only"):
        steps.step[0] = 1


def test_a_step_whose_range_has_no_end_is_not_full(tmp_path):
    world = four_steps()
    world.trace.nvtx("step 4", world.host_ns + 5, None)
    world.host_ns += 10
    world.launch("norm", 4)
    steps = found_in(world, tmp_path)
    assert by_start(steps) == world.truth
    assert steps.full.tolist() == [True] * 4 + [False]


def test_a_step_with_a_launch_that_did_not_run_before_the_end_of_the_capture_is_not_full(tmp_path):
    world = four_steps()
    with world.range("step 4"):
        world.launch("norm", 4)
        world.trace.api("cudaEventQuery_v3020", start_ns=world.host_ns, duration_ns=5)
    assert found_in(world, tmp_path).full.all()
    with world.range("step 5"):
        world.trace.api("cudaLaunchKernel_v7000", start_ns=world.host_ns, duration_ns=5)
    steps = found_in(world, tmp_path)
    assert steps.full.tolist() == [True] * 5 + [False]


def test_a_step_whose_graph_did_not_run_to_its_end_is_not_full(tmp_path):
    world = StepWorld(2)
    for step in range(5):
        with world.range(f"step {step}"):
            world.replay(LAYER_KERNELS if step < 4 else LAYER_KERNELS[:-1], step)
    assert found_in(world, tmp_path).full.tolist() == [True] * 4 + [False]


@pytest.mark.parametrize(("first_ns", "warmup_n"), [(180_000, 2), (90_000, 0)])
def test_a_slow_beginning_is_warm_up_and_a_pause_that_recurs_is_not(tmp_path, first_ns, warmup_n):
    world = StepWorld(2)
    for step in range(8):
        with world.range(f"step {step}"):
            world.layers(step)
            if pause_ns := {0: 90_000, 1: first_ns, 5: 80_000}.get(step):
                world.idle(pause_ns, pause_ns)
    warmup = found_in(world, tmp_path).warmup
    assert warmup.tolist() == [step < warmup_n for step in range(8)]


@pytest.mark.parametrize("seed", range(20))
def test_windows_add_up_however_steps_interleave(seed, tmp_path):
    """Two devices, launches far ahead, work outside of steps: against a search step by step."""
    world = StepWorld(seed)
    chance, ops, at_ns = world.chance, [], 1_000
    for step in range(-1, 6):
        begin_ns = at_ns
        for _ in range(chance.randint(0 if step else 1, 4)):
            start_ns = at_ns + chance.randint(1, 3_000)
            ops.append((step, chance.randint(0, 1), start_ns, start_ns + chance.randint(0, 2_000)))
            device, call = ops[-1][1], (at_ns, at_ns + 5)
            world.trace.kernel(
                "k", start_ns=start_ns, end_ns=ops[-1][3], launch=call, device_id=device
            )
            at_ns += 10
        if step >= 0:
            world.trace.nvtx("s", begin_ns, at_ns + 1)
            if step == 0:
                first_ns = begin_ns
        at_ns += 10
    steps = found_in(world, tmp_path, step="s")
    for device in {op[1] for op in ops}:
        edge = max([first_ns, *(end for step, gpu, _, end in ops if step < 0 and gpu == device)])
        expected = []
        for step in range(6):
            ends = [end for op_step, gpu, _, end in ops if op_step == step and gpu == device]
            expected.append((edge, max([edge, *ends])))
            edge = expected[-1][1]
        assert list(map(tuple, steps.windows_ns(device).tolist())) == expected


def kind(name, steps_n=3, unit=STEP):
    return StepKind(name, unit, REPEATED, steps_n)


def test_a_run_has_the_step_of_most_ranks():
    chosen = common_step({0: kind("a"), 1: kind("b", 9), 2: kind("a"), 3: None})
    assert (chosen.name, chosen.unit, dict(chosen.others)) == ("a", STEP, {1: "b", 3: None})
    # As many ranks: more steps decide, then the name.
    assert common_step({0: kind("b", 5), 1: kind("a", 4)}).name == "b"
    assert common_step({0: kind("b"), 1: kind("a")}).name == "a"
    assert common_step({0: kind("a"), 1: kind("a", unit=LAYER), 2: kind("a")}).others == {1: "a"}
    assert common_step({0: None}) is None


def test_a_step_is_warm_up_for_all_ranks_or_for_none():
    slow = {
        "decays": replace(kind("a"), begin=SlowBegin((90, 20), 5)),
        "never": kind("a"),
        "another": replace(kind("b"), begin=SlowBegin((90, 90, 90), 0)),
    }
    assert common_step(slow).warmup_n == 2
    # A pause that recurs on another rank recurs.
    recurs = replace(kind("a"), begin=SlowBegin((), 15))
    assert common_step({**slow, "never": recurs}).warmup_n == 1
    assert common_step({**slow, "never": replace(recurs, begin=SlowBegin((), 50))}).warmup_n == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::mm, seq = 3, op_id = 4", True),
        ("MyFunction, seq = 3, op_id = 4", True),
        ("aten::mm, op_id = 4", True),
        ("flash_attn::_flash_attn_forward", True),
        ("autograd::engine::evaluate_function: MmBackward0", True),
        ("MmBackward0", True),
        ("ncclAllReduce", True),
        ("nccl:all_to_all", True),
        ("train_step, op_id = 4", False),
        ("FSDP::pre_forward (blocks.1), op_id = 4", False),
        ("ProfilerStep#7, op_id = 4", False),
        ("Engine::step", False),
        ("backward", False),
    ],
)
def test_operators_are_told_by_their_names(text, expected):
    assert (has_sequence_number(text) or is_operator(normalize_range(text))) is expected


@pytest.mark.traces
@pytest.mark.parametrize(
    ("run", "layers_n", "mean_ms"), [("before", 17, 17.74), ("after", 15, 19.98)]
)
def test_the_real_pair_has_layers_by_the_hooks_of_fsdp(run, layers_n, mean_ms, traces):
    """Overall mean of both GPUs, as SQL over the hooks' starts says it too."""
    lengths_ns = []
    for rank_trace in ranks(traces / "h100_mfu" / f"{run}.sqlite"):
        steps = find_steps(rank_trace, {})
        assert (steps.unit, len(steps), int(steps.full.sum())) == (LAYER, layers_n, layers_n - 1)
        (device,) = steps.devices
        lengths_ns += np.diff(steps.windows_ns(device)[steps.full]).ravel().tolist()
    assert np.mean(lengths_ns) / 1e6 == pytest.approx(mean_ms, abs=0.006)


@pytest.mark.traces
def test_the_real_pair_without_nvtx_has_as_many_periods(traces):
    counts = []
    for run in ("before", "after"):
        for rank_trace in ranks(traces / "h100_mfu" / f"{run}.sqlite"):
            del rank_trace.tables["nvtx_events"]
            counts.append(len(find_steps(rank_trace, {})))
    # Of 17 marks in `before`, the first was launched before the capture began.
    assert counts == [16, 16, 15, 15]


@pytest.mark.traces
def test_the_real_training_is_measured_in_its_benchmark(traces):
    path = traces / "public" / "training_rtx3070ti.sqlite"
    (rank_trace,) = ranks(path)
    steps = find_steps(rank_trace, {})
    assert (steps.name, len(steps), int(steps.full.sum())) == ("Forward", 10, 10)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        (benchmark_ns,) = database.execute(
            "SELECT start FROM NVTX_EVENTS WHERE text = 'Benchmark Forward Only'"
        ).fetchone()
    assert steps.start_ns.min() > benchmark_ns


@pytest.mark.parametrize("lost", [False, True], ids=["earlier", "launch lost"])
@pytest.mark.parametrize("seed", range(8))
def test_a_step_in_which_the_gpu_does_earlier_work_is_cut(seed, lost, tmp_path):
    world = step_world.pytorch(seed, "step {step}", 12)
    first_ns, early = min(world.truth), []
    for nth in range(seed % 4):  # queued on another stream before the capture began
        start_ns = first_ns - 1 + 4_000 * nth
        early.append((start_ns, start_ns + 3_500))
        # A process counts its calls up: a launch of the capture that got lost has a larger number.
        number = {} if lost else {"correlation_id": 1}
        world.trace.kernel("earlier", start_ns=start_ns, duration_ns=3_500, stream_id=9, **number)
    steps = found_in(world, tmp_path)
    windows = steps.windows_ns(0).tolist()
    expected = [
        not lost and any(start < until and begin < end for start, end in early)
        for begin, until in windows
    ]
    assert (~steps.full).tolist() == expected
    assert any(expected) == (bool(early) and not lost)

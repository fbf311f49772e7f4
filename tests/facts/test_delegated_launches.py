"""Launches made for another thread: planted threads that wait for them, and ones that do not."""

from __future__ import annotations

import numpy as np
import pytest
from effort import over_seeds

from nsys_llm.facts.nvtx.delegated_launches import delegated
from nsys_llm.facts.nvtx.nvtx_tree import NvtxTree
from nsys_llm.profile.tables import Table
from nsys_llm.trace.ranges import PUSH_POP

SEEDS = range(12)
MAIN, ENGINE, OTHER, SECOND = 10, 20, 30, 40
#: Start between two launches of a thread: even, as by chance, and with long rests.
RHYTHMS = ("even", "random", "heavy")


class Process:
    """Ranges and calls of a process, and for whom its unmarked launches really are."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.ranges, self.calls = [], []

    def range(self, tid, start, end):
        self.ranges.append((int(start), int(end), tid))
        return len(self.ranges) - 1

    def call(self, tid, at, *, kernel=False, truth=None, length=0):
        """Record a call; `truth` is the range for which an unmarked thread launches."""
        self.calls.append((int(at), tid, kernel, -1 if truth is None else truth, int(length)))

    def burst(self, tid, at, launches_n, *, gap=10_000, truth=None, rhythm="random"):
        """Launch kernels one after the other, and return when the last one is launched."""
        for _ in range(launches_n):
            at += 1 + gap * self.factor(rhythm)
            self.call(tid, at, kernel=True, truth=truth)
        return at

    def factor(self, rhythm):
        if rhythm == "even":
            return self.random.uniform(0.9, 1.1)
        return self.random.exponential() if rhythm == "random" else self.random.lognormal(-2, 2)

    def given(self):
        """Return for each unmarked launch the range found and the true one."""
        start, end, tid = (np.array(values) for values in zip(*self.ranges, strict=True))
        kind = np.full(start.shape, PUSH_POP)
        events = Table({"start_ns": start, "end_ns": end, "event_type": kind, "global_tid": tid})
        tree = NvtxTree.of(events, int(end.max()))
        # Calls stand in any order in a report.
        rows = np.array(self.calls)[self.random.permutation(len(self.calls))]
        at, who, kernel, truth, length = rows.T
        calls = Table({"start_ns": at, "end_ns": at + length, "global_tid": who})
        kernels = np.flatnonzero(kernel)
        inside = tree.innermost(tree.thread_codes(who), at) >= 0
        rows = kernels[~inside[kernels]]
        pieces = delegated(tree, calls, rows, kernels)
        return np.append(tree.event, -1)[pieces], truth[rows], who[rows]


def engine(process, until, *, tid=ENGINE, rhythm="random", at=0):
    """Let a thread launch for nobody, from an instant to another."""
    while at < until:
        at = process.burst(tid, at, 1, gap=20_000, rhythm=rhythm)


def training(process, steps_n=6, *, at=0, backward_n=60, in_step=False, stall=0):
    """Plant steps of PyTorch: forward, backward on a thread of the engine, optimizer."""
    for step in range(steps_n):
        begin = at
        forward = process.burst(MAIN, at, 40)
        back = process.range(MAIN, forward + 500, 0)
        process.call(MAIN, forward + 1_000, kernel=True)  # the gradient of the loss
        truth = None if in_step else back
        rows = len(process.calls)
        at = process.burst(ENGINE, forward + 3_000, backward_n - 20, truth=truth)
        at += 0 if step else stall
        at = process.burst(ENGINE, at, 20, truth=truth)
        process.ranges[back] = (int(forward + 500), int(at + 5_000), MAIN)
        if in_step:
            process.ranges.pop()
        at = process.burst(MAIN, at + 10_000, 12)
        process.call(MAIN, at + 500)
        if in_step:
            step = process.range(MAIN, begin - 100, at + 600)
            process.calls[rows : rows + backward_n] = [
                (*call[:3], step, *call[4:]) for call in process.calls[rows : rows + backward_n]
            ]
        at += 1_000
    return at


@over_seeds(SEEDS)
@pytest.mark.parametrize("steps_n", [1, 2, 8])
@pytest.mark.parametrize("in_step", [False, True], ids=["backward", "step"])
def test_autograd_s_launches_belong_to_the_range_of_its_caller(seed, steps_n, in_step):
    process = Process(seed)
    training(process, steps_n, in_step=in_step)
    events, truth, who = process.given()
    of_engine = who == ENGINE
    assert of_engine.sum() == 60 * steps_n
    assert (truth[of_engine] >= 0).all()
    assert events.tolist() == truth.tolist()


@over_seeds(SEEDS)
@pytest.mark.parametrize("steps_n", [1, 3, 8])
def test_a_first_backward_pass_that_loads_its_kernels_does_no_harm(seed, steps_n):
    process = Process(seed)
    training(process, steps_n, stall=5_000_000)  # a forward pass takes 400,000
    events, truth, _ = process.given()
    assert events.tolist() == truth.tolist()


@over_seeds(SEEDS)
def test_two_autograd_threads_of_one_caller_both_work_for_it(seed):
    process = Process(seed)
    at = 0
    for _ in range(5):
        at = process.burst(MAIN, at, 30) + 1_000
        back = process.range(MAIN, at - 500, 0)
        ends = [process.burst(tid, at + 2_000, 40, truth=back) for tid in (ENGINE, SECOND)]
        process.ranges[back] = (int(at - 500), int(max(ends) + 2_000), MAIN)
        at = process.burst(MAIN, max(ends) + 5_000, 10) + 1_000
    events, truth, who = process.given()
    assert {ENGINE, SECOND} < set(who.tolist())
    assert events.tolist() == truth.tolist()


@over_seeds(SEEDS)
@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("ranges_n", [1, 40])
def test_a_thread_that_never_calls_cuda_gets_nothing(seed, rhythm, ranges_n):
    process = Process(seed)
    engine(process, 4_000_000, rhythm=rhythm)
    for start in np.linspace(-1_000, 4_000_000, ranges_n, endpoint=False):
        process.range(OTHER, start, start + 3_900_000 / ranges_n)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("kernel", [False, True], ids=["copies", "kernels"])
@pytest.mark.parametrize("place", [0.001, 0.5, 0.999], ids=["begin", "middle", "end"])
def test_a_data_loader_with_ranges_gets_nothing_of_an_engine(seed, rhythm, kernel, place):
    process = Process(seed)
    engine(process, 4_000_000, rhythm=rhythm)
    at = float(process.random.uniform(-200_000, 0))
    while at < 4_000_000:
        length = process.random.uniform(150_000, 250_000)
        process.range(OTHER, at, at + length)
        process.call(OTHER, at + place * length, kernel=kernel)
        process.call(OTHER, at + place * length + 50)
        at += length + process.random.uniform(10, 2_000)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("every", [3, 1_000], ids=["sometimes", "first and last"])
def test_a_scheduler_that_calls_cuda_rarely_gets_nothing(seed, rhythm, every):
    process = Process(seed)
    at, number = -300_000.0, 0
    while at < 8_000_000:
        length = process.random.uniform(50_000, 300_000)
        process.range(OTHER, at, at + length)
        if number % every == 0:
            process.call(OTHER, at + length / 3, kernel=True)
        at, number = at + length + process.random.uniform(10, 20_000), number + 1
    process.call(OTHER, at)
    engine(process, 8_000_000, rhythm=rhythm)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
def test_a_range_around_all_that_an_engine_does_gets_nothing(seed):
    # It calls CUDA before all launches and after, as an initialization and an end do.
    process = Process(seed)
    process.range(OTHER, -1_000, 9_000_000)
    process.call(OTHER, -500, kernel=True)
    engine(process, 8_000_000)
    process.call(OTHER, 9_500_000)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
def test_where_two_threads_have_a_range_open_nothing_is_decided(seed):
    process = Process(seed)
    end = training(process, 4)
    process.range(OTHER, -1_000, end + 1_000)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
def test_autograd_is_found_beside_an_engine_that_works_for_nobody(seed):
    process = Process(seed)
    end = training(process, 5)
    engine(process, end, tid=SECOND)
    events, truth, who = process.given()
    assert set(events[who == SECOND].tolist()) == {-1}
    assert events.tolist() == truth.tolist()


@over_seeds(SEEDS)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_caller_that_is_cut_off_at_one_side_gets_nothing(seed, side):
    process = Process(seed)
    back = process.range(MAIN, 0, 2_000_000)
    if side == "after":
        process.burst(MAIN, -900_000, 30, rhythm="even")
    end = process.burst(ENGINE, 1_000, 40, truth=back, rhythm="even")
    if side == "before":
        process.burst(MAIN, end + 1_000_000, 30)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("kernels_n", [1, 5, 20])
@pytest.mark.parametrize("second", [0.5, 1, 2], ids=["shorter", "equal", "longer"])
def test_two_engines_in_lockstep_keep_their_own_launches(seed, rhythm, kernels_n, second):
    # Both drive a GPU of one job; one of them marks its steps and waits for its GPU.
    process = Process(seed)
    at = 0.0
    for _ in range(10):
        begin = at + process.random.uniform(0, 3_000)
        step = process.range(OTHER, begin, 0)
        end_ns = process.burst(OTHER, begin, kernels_n, gap=5_000, rhythm="even")
        other = at + process.random.uniform(20_000, 30_000) + kernels_n * 5_000
        other = process.burst(ENGINE, other, 30, gap=10_000 * second, rhythm=rhythm)
        at = max(end_ns, other) + process.random.uniform(10_000, 50_000)
        process.call(OTHER, end_ns + 2_000, length=at - end_ns - 4_000)
        process.ranges[step] = (int(begin), int(at - 1_000), OTHER)
    process.call(OTHER, at)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("kernels_n", [1, 3])
@pytest.mark.parametrize("in_range", [False, True], ids=["after", "in range"])
def test_a_loader_that_waits_for_room_in_its_queue_gets_nothing(seed, rhythm, kernels_n, in_range):
    # The engine takes a batch, the loader gets room, ends its range, and prepares the next one.
    process = Process(seed)
    at = 0.0
    for _ in range(12):
        batch = process.range(OTHER, at, 0)
        taken = at + process.random.uniform(5_000, 20_000)
        launched = process.burst(ENGINE, taken, 20, rhythm=rhythm)
        ready = at + process.random.uniform(3, 6) * (launched - at)
        ready = process.burst(OTHER, ready, kernels_n, gap=4_000)
        process.call(OTHER, ready + 3_000, length=1_000)
        after = ready + process.random.uniform(100_000, 900_000)
        process.ranges[batch] = (int(at), int((after if in_range else ready + 5_000) - 10), OTHER)
        at = after
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
def test_a_loader_that_copies_batches_gets_nothing(seed):
    # Its next range is open while the engine works with the batch before. It loaded the model.
    process = Process(seed)
    at = process.burst(OTHER, 0.0, 30)
    for _ in range(10):
        process.call(OTHER, at)
        batch = process.range(OTHER, at + 1_000, 0)
        at = process.burst(ENGINE, at + 5_000, 40) + 5_000
        process.ranges[batch] = (*process.ranges[batch][:1], int(at), OTHER)
        at += 400_000
    process.call(OTHER, at)
    assert set(process.given()[0].tolist()) == {-1}


@over_seeds(SEEDS)
def test_a_caller_that_waited_for_the_gpu_before_is_still_the_caller(seed):
    # A stage of a pipeline: it receives, synchronizes, and runs backward with that gradient.
    process = Process(seed)
    at = 0.0
    for _ in range(6):
        at = process.burst(MAIN, at, 5) + 1_000
        process.call(MAIN, at, length=80_000)
        back = process.range(MAIN, at + 82_000, 0)
        end = process.burst(ENGINE, at + 90_000, 40, truth=back)
        process.ranges[back] = (int(at + 82_000), int(end + 5_000), MAIN)
        at = end + 50_000
    process.call(MAIN, at)
    events, truth, _ = process.given()
    assert events.tolist() == truth.tolist()

"""How long a step of a pipeline takes, against what is known of schedules, and its gains."""

from __future__ import annotations

from random import Random

import pytest
from effort import over_seeds

from nsys_llm.analyses.ranks.schedule import Line, Schedule


@pytest.mark.parametrize("forward_first", [True, False])
@pytest.mark.parametrize(("stages_n", "n"), [(1, 3), (2, 4), (4, 4), (4, 2), (8, 32)])
def test_even_stages_have_the_bubble_of_the_schedule(stages_n, n, forward_first):
    """Without transfers: microbatches + stages - 1 times what one of them takes on a stage."""
    step_ns = Schedule(n, 0.0, forward_first).step_ns([float(n)] * stages_n)
    assert step_ns == pytest.approx(n + stages_n - 1)


@over_seeds(range(40))
def test_where_all_go_forward_first_the_slowest_stage_sets_the_pace(seed):
    random = Random(seed)
    n = random.randint(1, 12)
    each_ns = [random.uniform(1.0, 3.0) for _ in range(random.randint(1, 6))]
    step_ns = Schedule(n, 0.0, True).step_ns([n * time_ns for time_ns in each_ns])
    assert step_ns == pytest.approx((n - 1) * max(each_ns) + sum(each_ns))


@over_seeds(range(40))
def test_a_step_takes_no_less_than_a_stage_and_no_less_with_more_to_do(seed):
    random = Random(seed)
    n, stages_n = random.randint(1, 12), random.randint(1, 6)
    schedule = Schedule(n, random.uniform(0.0, 0.5), random.random() < 0.5)
    compute_ns = [random.uniform(1.0, 3.0) * n for _ in range(stages_n)]
    more_ns = list(compute_ns)
    more_ns[random.randrange(stages_n)] *= 1.2
    step_ns = schedule.step_ns(compute_ns)
    assert (1 - 1e-9) * max(compute_ns) <= step_ns <= sum(compute_ns) + 2 * n * stages_n
    assert step_ns <= schedule.step_ns(more_ns) + 1e-9
    gain_ns = Line([[at] for at in range(stages_n)], schedule, 7.0).gain_ns(more_ns, compute_ns)
    assert 0 <= gain_ns <= sum(more_ns) - sum(compute_ns) + 1e-6


def test_a_first_stage_that_is_slow_fills_the_pipeline_meanwhile():
    """Four stages, 1F1B: it sends three more before the first comes back, so less is lost."""
    slow, even = [3.0 * 12, 12.0, 12.0, 12.0], [1.5 * 12] * 4
    gains = [Line([[0], [1], [2], [3]], Schedule(12, 0.0, first), 1.0) for first in (True, False)]
    all_first, back_soon = (line.gain_ns(slow, even) for line in gains)
    assert all_first == pytest.approx(11 * 1.5)
    assert back_soon < all_first - 1.0


def test_without_a_schedule_the_slowest_stage_is_all():
    assert Line([[0], [1]], None, 3.0).gain_ns([5.0, 3.0], [4.0, 4.0]) == 1.0

"""How long a pipeline takes, against what is known of schedules, and what it gains."""

from __future__ import annotations

from random import Random

import pytest
from effort import over_seeds

from nsys_llm.job.collectives.chains import GPIPE, ONE_F_ONE_B, Line


def line_of(stages_n, messages_n, kind, transfer_ns=0.0):
    stages = tuple((at,) for at in range(stages_n))
    return Line(stages, messages_n, kind, transfer_ns)


@pytest.mark.parametrize("kind", [GPIPE, ONE_F_ONE_B])
@pytest.mark.parametrize(("stages_n", "n"), [(1, 3), (2, 4), (4, 4), (4, 2), (8, 32)])
def test_even_stages_have_the_bubble_of_the_schedule(stages_n, n, kind):
    """Without transfers: microbatches + stages - 1 times what one of them takes on a stage."""
    run_ns = line_of(stages_n, n, kind).run_ns([float(n)] * stages_n)
    assert run_ns == pytest.approx(n + stages_n - 1)


@over_seeds(range(40))
def test_where_all_go_forward_first_the_slowest_stage_sets_the_pace(seed):
    random = Random(seed)
    n = random.randint(1, 12)
    each_ns = [random.uniform(1.0, 3.0) for _ in range(random.randint(1, 6))]
    run_ns = line_of(len(each_ns), n, GPIPE).run_ns([n * time_ns for time_ns in each_ns])
    assert run_ns == pytest.approx((n - 1) * max(each_ns) + sum(each_ns))


@over_seeds(range(40))
def test_a_step_takes_no_less_than_a_stage_and_no_less_with_more_to_do(seed):
    random = Random(seed)
    n, stages_n = random.randint(1, 12), random.randint(1, 6)
    transfer_ns = random.uniform(0.0, 0.5)
    line = line_of(stages_n, n, random.choice((GPIPE, ONE_F_ONE_B)), transfer_ns)
    compute_ns = [random.uniform(1.0, 3.0) * n for _ in range(stages_n)]
    more_ns = list(compute_ns)
    more_ns[random.randrange(stages_n)] *= 1.2
    run_ns = line.run_ns(compute_ns)
    assert (1 - 1e-9) * max(compute_ns) <= run_ns <= sum(compute_ns) + 2 * n * stages_n
    assert -1e-9 <= line.run_ns(more_ns) - run_ns <= sum(more_ns) - sum(compute_ns) + 1e-6


def test_a_first_stage_that_is_slow_fills_the_pipeline_meanwhile():
    """Four stages, 1F1B: it sends three more before the first comes back, so less is lost."""
    slow, even = [3.0 * 12, 12.0, 12.0, 12.0], [1.5 * 12] * 4
    lines = [line_of(4, 12, kind) for kind in (GPIPE, ONE_F_ONE_B)]
    all_first, back_soon = (line.run_ns(slow) - line.run_ns(even) for line in lines)
    assert all_first == pytest.approx(11 * 1.5)
    assert back_soon < all_first - 1.0


def test_without_a_schedule_the_slowest_stage_is_all():
    assert line_of(2, None, None).run_ns([5.0, 3.0]) == 5.0

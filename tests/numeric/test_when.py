"""When a series costs time: each kind by hand, and steady series that say nothing."""

import numpy as np
import pytest

from nsys_llm.numeric.when import STEADY, courses
from nsys_llm.numeric.when_shared import shared


def noisy(seed, rows_n=1, n=40, scale=0.01, alike=0.0):
    dice = np.random.default_rng(seed)
    some = dice.normal(size=(rows_n, n))
    for step in range(1, n):
        some[:, step] = alike * some[:, step - 1] + (1 - alike**2) ** 0.5 * some[:, step]
    return 1.0 + scale * some


def told(added, seed=1, **given):
    values = noisy(seed, n=len(added), **given) + added
    (course,) = courses(values, 1.0)
    return course


AT = np.arange(40)


@pytest.mark.parametrize(
    ("added", "kind", "first", "last"),
    [
        (np.where(AT >= 15, 0.3, 0), "from", 15, 39),
        (np.where(AT < 12, 0.3, 0), "until", 0, 11),
        (np.where((AT >= 5) & (AT < 15), 0.3, 0), "between", 5, 14),
        (np.linspace(0, 0.5, 40), "grows", 0, 39),
        (np.linspace(0.5, 0, 40), "falls", 0, 39),
        (np.where(AT == 12, 5.0, 0), "once", 12, 12),
        (np.where(np.isin(AT, (12, 13)), 5.0, 0), "once", 12, 13),
        (np.where(np.isin(AT, (3, 17, 21, 30)), 1.0, 0), "times", 3, 30),
        (np.where(AT % 10 == 9, 1.0, 0), "every", 9, 39),
        # Events that lie close together are no level.
        (np.where(np.isin(AT, (3, 5, 6, 8, 9, 11)), 3.0, 0), "times", 3, 11),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_kind_is_told_with_its_steps(added, kind, first, last):
    course = told(added)
    assert (course.kind, course.steps[0], course.steps[-1]) == (kind, first, last)
    assert course.excess.sum() == pytest.approx(added.sum(), rel=0.1)


def test_events_have_a_number_and_a_period():
    course = told(np.where(AT % 10 == 9, 1.0, 0))
    assert (course.events_n, course.period) == (4, 10)
    course = told(np.where(np.isin(AT, (3, 17, 18, 25)), 1.0, 0))
    assert (course.events_n, course.period) == (3, None)


@pytest.mark.parametrize(
    "added",
    [
        0 * AT,
        0.8 * np.exp(-AT / 4),  # a warm-up
        np.concatenate(([0.9, 0.9, 0.5, 0.4], [0.3] * 8, [0] * 28)),
        np.where(AT == 0, 3.0, 0),
        0.02 * AT / 40,
        0.04 * np.sin(AT / 40 * 2 * np.pi),
        np.where(AT >= 15, 0.04, 0),  # less than 5 % of a step
        np.where(AT >= 37, 0.2, 0),  # fewer than 5 steps
        np.where((AT >= 12) & (AT < 25), -0.3, 0),  # less for some steps
    ],
)
def test_what_is_no_onset_growth_or_event_is_steady(added):
    assert told(added).kind == STEADY


def test_long_series_find_the_exact_step():
    at = np.arange(3000)
    course = told(np.where(at >= 1234, 0.3, 0))
    assert (course.kind, course.steps[0]) == ("from", 1234)
    course = told(np.where(at == 1777, 4.0, 0))
    assert (course.kind, course.steps.tolist()) == ("once", [1777])


def test_steady_jobs_say_nothing():
    found = [
        course.kind
        for seed in range(40)
        for course in courses(noisy(seed, 8, 20 + 5 * seed, 0.05, 0.5), 1.0, 32)
    ]
    assert {*found} == {STEADY}


@pytest.mark.parametrize("alike", [0.0, 0.4])
def test_a_change_of_five_times_the_noise_is_told_in_30_steps(alike):
    at = np.arange(30)
    added = np.where((at >= 12) & (at < 22), 0.15, 0)
    kinds = [
        courses(noisy(seed, 4, 30, 0.03, alike) + added * np.eye(4)[:, :1], 1.0, 16)[0].kind
        for seed in range(100)
    ]
    assert kinds.count("between") >= (98 if alike == 0 else 92)


def test_a_window_near_an_end_is_one():
    at = np.arange(200)
    course = told(np.where((at >= 6) & (at < 72), 0.1, 0), scale=0.02)
    assert (course.kind, course.steps[0], course.steps[-1]) == ("between", 6, 71)


@pytest.mark.parametrize(
    ("added", "kind"), [(np.linspace(0, 0.5, 40), "grows"), (np.where(AT >= 15, 0.3, 0), "from")]
)
def test_what_all_alike_series_have_is_no_spread(added, kind):
    found = courses(noisy(2, 4) + added, 1.0, 16)
    assert [course.kind for course in found] == [kind] * 4


def test_few_steps_say_nothing():
    assert told(np.where(np.arange(9) == 4, 9.0, 0)).kind == STEADY
    assert courses(noisy(1, 2), 0.0)[0].kind == STEADY


def shares(*added):
    return shared(courses(noisy(3, len(added)) + np.array(added), 1.0, 4 * len(added)))


def test_a_rank_is_named_that_holds_most():
    none = 0 * AT
    found = shares(none, np.where(AT >= 15, 0.3, 0), none, none)
    assert (found.sharing, found.ranks, found.job.kind) == ("one", (1,), "from")


def test_events_in_the_same_step_are_of_all():
    event = np.where(AT == 12, 5.0, 0)
    found = shares(event, 1.02 * event, event, event)
    assert (found.sharing, found.job.kind) == ("together", "once")
    assert found.job.excess.sum() == pytest.approx(5.1, abs=0.1)


@pytest.mark.parametrize("ranks_n", [2, 3, 4, 8])
def test_events_of_each_in_its_turn_add_up(ranks_n):
    found = shares(*(np.where(AT % ranks_n == rank, 0.8, 0) for rank in range(ranks_n)))
    assert (found.sharing, len(found.ranks)) == ("turns", ranks_n)
    assert found.job.excess.sum() == pytest.approx(0.8 * 40, rel=0.05)
    assert found.job.events_n == 40


def test_levels_of_ranks_come_one_after_the_other():
    none = 0 * AT
    first, then = (np.where((at <= AT) & (at + 10 > AT), 0.3, 0) for at in (5, 15))
    found = shares(none, first, none, none, then, none)
    assert (found.sharing, found.ranks) == ("after", (1, 4))
    assert (found.job.steps[0], found.job.steps[-1]) == (5, 24)


def test_ranks_that_do_not_meet_lose_the_sum():
    event = np.where(AT == 12, 5.0, 0)
    some = courses(noisy(3, 2) + np.array([event, event]), 1.0, 8)
    assert shared(some, meet=False).job.excess.sum() == pytest.approx(10, abs=0.2)
    assert shared(some).job.excess.sum() == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("n", [16, 24])
def test_steps_of_two_lengths_that_chance_mixes_are_no_level(n):
    dice = np.random.default_rng(3)
    mixed = 0.5 + dice.normal(0, 0.01, (400, n)) + 0.2 * (dice.random((400, n)) < 0.5)
    told = [courses(mixed[at : at + 4], 1.0, 16) for at in range(0, 400, 4)]
    assert {some.kind for of_job in told for some in of_job} == {STEADY}

"""Who is late throughout, for a while, or by chance: simulated ranks, the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from nsys_llm.recipes.tail_stats.tables.lateness import Lasts, lateness_patterns

NOISE_NS = 10_000


def lasts_of(start_ns, unclear_n=None):
    """Return what the collectives of ranks show that come at these times, one row a rank."""
    start_ns = np.asarray(start_ns).astype(np.int64)
    ranks_n = len(start_ns)
    wait_ns = (start_ns.max(axis=0) - start_ns).sum(axis=0)
    ordered = np.sort(start_ns, axis=0)
    last = np.where(ordered[-1] > ordered[-2], start_ns.argmax(axis=0), -1)
    caused_ns = [int(wait_ns[last == rank].sum()) for rank in range(ranks_n)]
    return Lasts(last, wait_ns, unclear_n or [0] * ranks_n, caused_ns)


def words(start_ns, **more):
    return [late.pattern for late in lateness_patterns(lasts_of(start_ns, **more))]


def equals(seed, ranks_n, n, tail=False):
    rng = np.random.default_rng(seed)
    shape = (ranks_n, n)
    return rng.lognormal(9, 1.5, shape) if tail else rng.exponential(NOISE_NS, shape)


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("ranks_n", [2, 4, 8])
@pytest.mark.parametrize("n", [15, 30, 100])
def test_ranks_that_come_last_by_chance_are_not_named(n, ranks_n, tail):
    named = sum(
        bool({"persistent", "transient"} & set(words(equals(seed, ranks_n, n, tail))))
        for seed in range(60)
    )
    # The bound is one of twenty.
    assert named <= 3


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("ranks_n", "n", "long"), [(2, 60, 14), (4, 45, 9), (8, 120, 34)])
def test_a_burst_of_another_rank_does_not_hide_who_is_late_throughout(seed, ranks_n, n, long):
    rng = np.random.default_rng(seed)
    start_ns = equals(seed, ranks_n, n) / 10
    always, burst = rng.permutation(ranks_n)[:2]
    start_ns[always] += 30_000
    # Within one third of the run, of which it leaves five or six collectives.
    first = int(rng.integers(0, 3)) * (n // 3) + 1
    start_ns[burst, first : first + long] += 300_000
    patterns = lateness_patterns(lasts_of(start_ns))
    assert patterns[always].pattern == "persistent"
    assert patterns[burst].pattern == "transient"
    assert patterns[burst].burst == (first, first + long - 1)
    others = set(range(ranks_n)) - {always, burst}
    assert {patterns[rank].pattern for rank in others} <= {"none"}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("n", "long"), [(30, 9), (60, 20), (300, 150)])
def test_a_part_of_the_run_is_found_with_its_ends(seed, n, long):
    start_ns = equals(seed, 8, n)
    first = int(np.random.default_rng(seed).integers(0, n - long + 1))
    start_ns[5, first : first + long] += 400_000
    patterns = lateness_patterns(lasts_of(start_ns))
    assert [late.pattern for late in patterns] == ["none"] * 5 + ["transient"] + ["none"] * 2
    low, high = patterns[5].burst
    # One of 8 is last right before or after by chance.
    assert first - 3 <= low <= first
    assert first + long - 1 <= high <= first + long + 2


@pytest.mark.parametrize("seed", range(4))
def test_pauses_that_recur_are_transient_without_a_time(seed):
    start_ns = equals(seed, 4, 300)
    start_ns[2, seed::25] += 3_000_000
    patterns = lateness_patterns(lasts_of(start_ns))
    assert [late.pattern for late in patterns] == ["none", "none", "transient", "none"]
    assert patterns[2].burst is None


def test_one_long_wait_says_nothing_of_a_rank():
    start_ns = equals(0, 2, 30)
    start_ns[1, 4] += 5_000_000
    assert words(start_ns) == ["none", "none"]


def test_too_few_collectives_or_too_uncertain_clocks_show_no_pattern():
    late = np.zeros((4, 15))
    late[1] = 50_000
    assert words(late) == ["none", "persistent", "none", "none"]
    assert words(late[:, :14]) == ["inconclusive"] * 4
    # Of 4 ranks one stands out from 44 % on, and the clocks hide more than that.
    late[1, 2:] = 0
    assert words(late, unclear_n=[0, 13, 0, 0])[1] == "inconclusive"
    # Now and then unclear does not hide what is clear otherwise.
    late[1, :13] = 50_000
    assert words(late, unclear_n=[0, 3, 0, 0])[1] == "persistent"


def test_ranks_that_never_wait_are_not_late():
    assert words(np.zeros((3, 40))) == ["none"] * 3

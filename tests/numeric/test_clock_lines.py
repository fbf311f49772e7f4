"""Offset and rate of one clock against another, against planted ones."""

import numpy as np
import pytest

from nsys_llm.numeric.clock_lines import LEAST_OF_A_RATE, MOST_RATE, ClockLine, fitted_line


def seen(offset_ns, ppm, n=4_000, length_ns=20_000_000_000, noise_ns=800, seed=0):
    """Return the times on the clock that is ahead, and how far."""
    rng = np.random.default_rng(seed)
    true = np.sort(rng.integers(0, length_ns, n))
    ahead = offset_ns + np.rint(true * ppm * 1e-6).astype(np.int64)
    ahead += rng.integers(-noise_ns, noise_ns + 1, n)
    return true + ahead, ahead


@pytest.mark.parametrize("ppm", [-50, -5, 0.5, 5, 50])
@pytest.mark.parametrize("seed", range(4))
def test_offset_and_rate_are_found_in_noise_and_outliers(ppm, seed):
    times, apart = seen(3_000_000, ppm, seed=seed)
    # A fifth of the instants is wrong, all in one direction.
    wrong = np.random.default_rng(seed).random(apart.size) < 0.2
    times, apart = times + 40_000 * wrong, apart + 40_000 * wrong
    order = np.argsort(times)
    line, spread_ns = fitted_line(times[order], apart[order])
    assert abs(1e6 * line.rate - ppm) < 0.05
    assert spread_ns < 1_000
    left = (apart - line.ahead_ns(times))[~wrong]
    assert abs(np.median(left)) < 300
    assert abs(left[:400].mean() - left[-400:].mean()) < 800


@pytest.mark.parametrize("seed", range(20))
def test_noise_has_no_rate_and_the_offset_is_the_median(seed):
    times, apart = seen(-70_000, 0, n=50 * (seed + 1), noise_ns=20_000, seed=seed)
    line, spread_ns = fitted_line(times, apart)
    assert line == ClockLine(int(np.sort(apart)[(apart.size - 1) // 2]))
    assert spread_ns == np.sort(np.abs(apart - line.offset_ns))[(apart.size - 1) // 2]


def test_few_instants_and_what_no_clock_does_have_no_rate():
    few = seen(0, 50, n=LEAST_OF_A_RATE - 1, noise_ns=0)
    assert fitted_line(*few)[0].rate == 0
    assert fitted_line(*seen(0, 50, n=LEAST_OF_A_RATE, noise_ns=0))[0].rate > 0
    assert fitted_line(*seen(0, 1.1e6 * MOST_RATE, noise_ns=0))[0].rate == 0
    # 20 ns over a second are below what time stamps tell.
    assert fitted_line(*seen(0, 0.02, length_ns=10**9, noise_ns=0))[0].rate == 0


def test_lines_are_reversed_and_chained_as_clocks_are():
    true = np.arange(0, 20_000_000_000, 10_000_019)
    ours = true + 5_000 + np.rint(true * 30e-6).astype(np.int64)
    theirs = true - 900_000 - np.rint(true * 41e-6).astype(np.int64)
    ahead = fitted_line(ours, ours - true)[0]
    behind = fitted_line(theirs, theirs - true)[0]
    back = true - ours - ahead.reversed().ahead_ns(true)
    assert np.abs(back).max() <= 3
    # Theirs over ours: theirs over true, and true over ours.
    chained = behind.after(ahead.reversed())
    assert np.abs(theirs - ours - chained.ahead_ns(theirs)).max() <= 4
    assert ClockLine(7).after(ClockLine(-3)) == ClockLine(4)
    for line in (ClockLine(7), ahead):
        for other in (ClockLine(-3), behind):
            at = int(theirs[500])
            middle = at - int(line.ahead_ns(np.array([at]))[0])
            first = middle - int(other.ahead_ns(np.array([middle]))[0])
            after_ns = at - int(line.after(other).ahead_ns(np.array([at]))[0])
            assert abs(after_ns - first) <= 2

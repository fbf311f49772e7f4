"""How sure a verdict of trace_diff is: few clear steps, neighbors that are alike, baselines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from campaigns.chance import ALIKE, LIMITS, said_pct
from diff_jobs import GEMM, Job, compare
from quick_run import quick

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.recipes.trace_diff.tables.runs import kernel_side
from nsys_llm.recipes.trace_diff.tables.side_by_side import compared

#: Time of steps that slow down amid a run, in percent: neighbors are alike.
BEFORE = (100, 101, 101, 102, 103, 104, 104, 106, 108, 110, 112, 115, 117, 118, 118, 119)
AFTER = (112, 112, 113, 113, 114, 115, 117, 119, 121, 124, 126, 129, 130, 131)


def paced(*percents, steps=None):
    """Return a job of which each step has a pace of its own."""
    return Job(
        lambda step: ((GEMM, 600 * percents[step % len(percents)], 64, 4),),
        steps=steps or len(percents),
        noise=0.001,
    )


def written(folder, *jobs):
    return [job.write(folder / f"run{seed}", seed) for seed, job in enumerate(jobs)]


def repeats(folder, *factors):
    """Write further runs of the baseline, each so many times as long."""
    folder.mkdir()
    jobs = (paced(*(factor * some for some in BEFORE)) for factor in factors)
    return [job.write(folder / f"{seed}", seed) for seed, job in enumerate(jobs, 9)]


def verdict(before, after, *options):
    return quick("trace_diff", before, after, *options)["verdict"].iloc[0]


@pytest.mark.slow
def test_nine_clear_steps_are_enough(tmp_path):
    """A quarter longer, by 23.5 to 26.5 %."""
    before = (100.0, 101.2, 99.1, 100.4, 98.8, 100.9, 99.6, 101.0, 99.0)
    after = (124.0, 125.8, 123.7, 126.2, 125.0, 126.5, 123.5, 124.6, 125.7)
    paths = written(tmp_path, paced(*before), paced(*after))
    assert verdict(*paths)["word"] == "SLOWER"
    assert verdict(*paths[::-1])["word"] == "FASTER"


@pytest.mark.slow
def test_steps_in_a_row_that_are_alike_make_a_change_probable(tmp_path):
    said = compare(tmp_path, paced(*BEFORE), paced(*AFTER))
    row = said.verdict
    # The ends of a capture are cut; so are no steps between.
    n0, n1 = row["baseline_steps_n"], row["input_steps_n"]
    assert (row["word"], row["word_reason"], row["uncertain"]) == (
        "PROBABLY SLOWER", "order", True,
    )  # fmt: skip
    assert row["neighbor_correlation"] > 0.5
    longer = [sum(a < b for a in BEFORE[:n0]) for b in AFTER[:n1]]
    assert (row["baseline_order_n"], row["input_order_n"]) == (min(longer), n1)
    assert row["longer_probability"] == pytest.approx(sum(longer) / (n0 * n1), abs=0.02)
    enough = row["enough_steps_n"]
    (first, *_) = said.lines
    assert first.startswith("PROBABLY SLOWER: ")
    assert first.endswith(
        f" a step ({row['change_pct']:+.1f} %); each of {n1} steps takes longer than {min(longer)} "
        f"of the {n0} before. Steps in a row are alike, so these prove little: record 3 runs of "
        f"the baseline (--baselines), or about {enough} steps."
    )
    # Wider than all steps reach, it tells nothing.
    assert pd.isna(row["low_pct"])
    assert "interval" not in said.answer
    assert "likely cause: compute" in said.answer
    back = compare(tmp_path, tmp_path / "run1", tmp_path / "run0")
    assert back.word == "PROBABLY FASTER"
    assert " takes less time than " in back.lines[0]
    assert back.verdict["enough_steps_n"] == pytest.approx(enough, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "part", "more"), [(7, 1.0, 1.0), (14, 0.3, 1.0), (14, 0.8, 0.25)],
    ids=["seven steps", "as often shorter", "below 3 %"],
)  # fmt: skip
def test_less_than_that_is_uncertain(tmp_path, n, part, more):
    """Steps drift by 12 %, and those of the input by a part of that more."""
    drift = [12 * more * step / n for step in range(n)]
    paths = written(tmp_path, paced(*(100 + some for some in drift)),
                    paced(*(100 + 12 * more * part + some for some in drift)))  # fmt: skip
    assert verdict(*paths)["word"] == "UNCERTAIN"


@pytest.mark.slow
def test_runs_of_the_baseline_decide_what_its_steps_do_not(tmp_path):
    paths = written(tmp_path, paced(*BEFORE), paced(*AFTER))
    for word, reason, factors in (
        ("SLOWER", "baselines", (1.01, 0.99)), ("SAME", "noise", (1.15, 0.99)),
        ("PROBABLY SLOWER", "order", (1.03, 0.97)), ("PROBABLY SLOWER", "order", (1.01,)),
    ):  # fmt: skip
        again = repeats(tmp_path / f"{word} {factors}", *factors)
        row = verdict(*paths, "--baselines", *map(str, again))
        assert (row["word"], row["word_reason"]) == (word, reason), factors


SLOW = "above the limit by some slow steps: the verdict is UNCERTAIN"
DRIFT = [100 + 12 * step / 14 for step in range(14)]
GATES = ("step:+3%", "step_time_equal:+3%", "steps_per_second:-3%", "slow_steps:+1pp")


def results(folder, pair, *options, gates=GATES, code=0):
    """Return the results of gates on two runs, and the reasons of those that have one."""
    said = compare(folder, *pair, "--gate", *gates, *options, code=code)
    table = said.tables["gates"]
    assert set(table["metric"][:1]) == {"step_time"}
    assert table["told"][0].endswith(" steps)")  # "mean of 12 steps", slow ones too
    return table["result"].tolist(), table["reason"].dropna().tolist()


@pytest.mark.slow
def test_gates_say_how_sure_they_are(tmp_path, capsys):
    clear = written(tmp_path, paced(*[100] * 12), paced(*[110] * 12))
    assert results(tmp_path, clear, code=1) == (["fail"] * 3 + ["pass"], [])
    assert results(tmp_path, clear[::-1]) == (["pass"] * 4, [])
    capsys.readouterr()
    (tmp_path / "likely").mkdir()
    likely = written(tmp_path / "likely", paced(*BEFORE), paced(*AFTER))
    assert results(tmp_path, likely) == (["fail (probably)"] * 3 + ["pass"], [])
    shown = capsys.readouterr()
    assert shown.err.count("warning: gate probably failed: ") == 3
    assert "error" not in shown.err
    assert "Gates: fail (probably; exit 0), 3 fail (probably), 1 pass" in shown.out
    assert "--gate-if probably ends such a run with exit 1" in shown.out
    results(tmp_path, likely, "--gate-if", "probably", code=1)
    shown = capsys.readouterr()
    assert shown.err.count("error: gate probably failed: ") == 3
    assert "Gates: fail (probably; exit 1), " in shown.out
    # Three runs of the baseline are sure of what its steps are not.
    again = repeats(tmp_path / "again", 1.01, 0.99)
    sure = results(tmp_path, likely, "--baselines", *again, gates=GATES[:3], code=1)
    assert sure == (["fail"] * 3, [])


@pytest.mark.slow
def test_gates_fail_by_nothing_that_may_be_chance(tmp_path):
    late = {3: 3_000_000, 9: 3_000_000}
    pair = written(tmp_path, Job(steps=20), Job(steps=20, late_ns=late))
    told = results(tmp_path, pair, gates=(*GATES, "idle_pct:+2pp"), code=1)
    assert told == (
        ["fail (probably)", "pass", "fail (probably)", "fail (probably)", "fail"],
        [*[SLOW] * 3, "as measured; --baselines shows how far equal runs differ"],
    )
    (tmp_path / "drift").mkdir()
    drift = written(tmp_path / "drift", paced(*DRIFT), paced(*(some + 3.6 for some in DRIFT)))
    assert results(tmp_path, drift, gates=("step:+1%",)) == (
        ["pass"], ["above the limit, which may be chance: the verdict is UNCERTAIN"],
    )  # fmt: skip
    # Of so few steps there is but a size.
    (tmp_path / "few").mkdir()
    few = written(tmp_path / "few", paced(*[100] * 4), paced(*[150] * 4))
    assert results(tmp_path, few, gates=GATES[:1]) == (
        ["fail (probably)"], ["fewer than 5 steps show only a size"],
    )  # fmt: skip


def mixed(folder, gpu, late_ns, *, is_back=False, code=0):
    """Compare a job with one whose steps are shorter, some after pauses; or back."""
    pair = Job(steps=40), Job(steps=40, gpu=gpu, late_ns=late_ns)
    return compare(
        folder, *pair[:: -1 if is_back else 1], "--gate", *GATES[:1], GATES[2], code=code
    )


PAUSES = dict.fromkeys((5, 15, 25, 35), 5_000_000)
#: Steps that take not quite twice as long are no bursts.
LONGER = dict.fromkeys(range(3, 40, 7), 300_000)


@pytest.mark.slow
def test_slow_steps_that_outweigh_faster_ones_are_neither_faster_nor_passed(tmp_path):
    said = mixed(tmp_path, 0.95, PAUSES)
    assert (said.word, said.verdict["word_reason"]) == ("UNCERTAIN", "mixed")
    assert said.lines[0].endswith(
        f"({said.verdict['change_pct']:+.1f} %; {said.verdict['all_change_pct']:+.1f} % with slow "
        "steps): most steps are faster, but the mean of all is slower"
    )
    gates = said.tables["gates"]
    assert set(gates["result"]) == {"fail (probably)"}
    assert set(gates["reason"]) == {SLOW}


@pytest.mark.slow
def test_slow_steps_of_the_baseline_hide_no_slower_ones(tmp_path):
    said = mixed(tmp_path, 0.95, PAUSES, is_back=True, code=1)
    assert (said.word, said.verdict["word_reason"]) == ("UNCERTAIN", "mixed")
    assert said.lines[0].endswith(": most steps are slower, but the mean of all is faster")
    gates = said.tables["gates"]
    assert gates["result"].tolist() == ["fail", "fail"]
    assert (gates["input"] - gates["baseline"]).tolist()[0] < 0
    # Where such steps do not outweigh the others, they take nothing from the word.
    (tmp_path / "few").mkdir()
    said = mixed(tmp_path / "few", 0.9, {5: 500_000})
    assert (said.word, said.verdict["word_reason"]) == ("FASTER", "location")


@pytest.mark.slow
@pytest.mark.parametrize("is_back", [False, True])
def test_the_location_of_steps_is_no_reason_for_the_opposite(tmp_path, is_back):
    """34 of 40 are 3 % faster, 6 take 1.9 times as long: the mean is 10 % longer."""
    said = mixed(tmp_path, 0.97, LONGER, is_back=is_back)
    assert (said.word, said.verdict["word_reason"]) == ("UNCERTAIN", "mixed")
    most, mean = ("slower", "faster") if is_back else ("faster", "slower")
    assert said.lines[0].endswith(f": most steps are {most}, but the mean of all is {mean}")
    assert pd.isna(said.verdict["low_pct"])
    assert set(said.tables["gates"]["result"]) == {"pass" if is_back else "fail (probably)"}
    assert "cause" not in said.answer


@pytest.mark.parametrize("n", [5, 10, 24])
def test_equal_runs_differ_no_more_often_than_stated(n):
    """A slice of the campaign, which has more pairs and all lengths."""
    for alike in ALIKE:
        said = said_pct(n, alike, 120)
        for word, limit in LIMITS.items():
            # Three standard errors beyond the limit.
            assert said[word] <= limit + 3 * (limit * (100 - limit) / 120) ** 0.5
    assert said_pct(n, 0.3, 60, 1.125)["differs"] > {5: 30, 10: 70, 24: 95}[n]


def test_of_many_equal_kernels_none_is_called_different():
    dice, sides = np.random.default_rng(7), []
    code = np.repeat(np.arange(200), 30)
    for _ in range(2):
        values = dice.integers(1_000, 2_000, code.size)
        totals = np.bincount(code, weights=values).astype(np.int64)
        sides.append(kernel_side(ValueCounts.from_values(code, values), totals))
    tests = compared(*sides, {"alpha": 0.05, "min_effect": 0.0})
    # By chance one of twenty differs.
    assert 4 <= (tests["p_value"] < 0.05).sum() <= 20
    assert set(tests["verdict"]) == {"none"}

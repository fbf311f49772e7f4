"""trace_diff on real traces: the survey's numbers, halves of one run, and modes."""

from __future__ import annotations

import shutil
import sqlite3

import numpy as np
import pandas as pd
import pytest
from results import analyse, assert_same, read_frames, read_report, tables_of

from nsys_llm.numeric.distributions import ValueCounts
from nsys_llm.recipes.trace_diff.tables import verdicts
from nsys_llm.recipes.trace_diff.tables.runs import kernel_side
from nsys_llm.recipes.trace_diff.tables.verdicts import IMPROVE, REGRESS

pytestmark = pytest.mark.traces


@pytest.fixture(scope="module")
def mfu(traces, tmp_path_factory):
    folder = traces / "h100_mfu"
    out = tmp_path_factory.mktemp("mfu") / "out"
    return analyse(
        out, folder / "before.sqlite", folder / "after.sqlite", options=[], recipe="trace_diff"
    )


@pytest.fixture(scope="module")
def tables(mfu):
    return read_frames(mfu)


EFFECTS = ["change_ns", "count_effect_ns", "per_call_effect_ns"]


def ms(values):
    return [round(float(value) / 1e6, 3) for value in values]


def test_the_change_splits_as_the_survey_measured_it(tables):
    kernels = tables["kernels"]
    assert ms(kernels[EFFECTS].sum()) == [-46.365, -57.598, 11.233]
    (sendrecv,) = kernels[kernels["communication"]][EFFECTS].to_numpy()
    assert ms(sendrecv) == [8.340, -1.540, 9.880]
    flash = kernels.iloc[0]
    assert (flash["baseline_launches_n"], flash["input_launches_n"]) == (68, 60)
    assert ms(flash[EFFECTS]) == [-31.562, -32.037, 0.476]
    assert flash["baseline_mean_ns"] == pytest.approx(4_004_670, abs=10)
    assert flash["input_mean_ns"] == pytest.approx(4_012_590, abs=10)


def test_splits_by_configuration_and_rank_have_parts_of_their_own(tables):
    assert ms(tables["configs"][EFFECTS].sum()) == [-46.365, -57.515, 11.149]
    assert ms(tables["rank_kernels"][EFFECTS].sum()) == [-46.365, -57.603, 11.238]
    assert ms(tables["ranks"][EFFECTS].sum()) == [-46.365, -57.603, 11.238]


def test_more_communication_is_waiting(tables):
    whole = tables["collectives"].iloc[0]
    columns = ["change_ns", "wait_change_ns", "transfer_change_ns", "leaving_change_ns"]
    assert ms(whole[columns]) == [8.340, 9.109, -0.525, -0.244]
    assert ms(whole[["baseline_wait_ns", "input_wait_ns"]]) == [13.376, 22.485]
    assert ms(whole[["baseline_late_wait_ns", "input_late_wait_ns"]]) == [10.898, 18.219]
    assert (whole["baseline_late_rank"], whole["input_late_rank"]) == (1, 0)


def test_significance_alone_and_effect_alone_would_call_more(tables):
    configs = tables["configs"]
    # The survey: 48 groups, 15 with q below 0.05; a median that moved by 2 % as well: few.
    assert len(configs) == 48
    assert (configs["q_value"] < 0.05).sum() == 15
    assert configs["verdict"].isin([REGRESS, IMPROVE]).sum() <= 2
    assert (configs["p50_change_pct"].abs() >= 2).sum() > 2


def test_the_answer_tells_fewer_steps_from_waiting(mfu):
    report = read_report(mfu)["report"]
    answer = report["answer"]
    assert "46.4 ms (8.7 %) less than the baseline" in answer
    assert "kernels run 10.5 % less often (-57.6 ms; their length makes +11.2 ms)" in answer
    assert answer.count("10.5 %") == 1
    assert (
        "communication takes +8.34 ms (waiting between ranks that send and receive +9.11 ms, "
        "+3.2 ms of it the profiler's own work)" in answer
    )
    told = next(one["details"] for one in report["findings"] if one["rule"] == "pair_waiting")
    assert "send and receive +9.11 ms, +3.2 ms of it the profiler's own work" in told
    assert "transfer -525 us" in told
    assert "did less of the same work" in answer


def test_idle_time_is_that_of_idle_gaps(tables, traces, tmp_path):
    for side in ("before", "after"):
        found = tables_of(
            tmp_path / side, traces / "h100_mfu" / f"{side}.sqlite", recipe="idle_gaps"
        )
        name = {"before": "baseline", "after": "input"}[side]
        devices = found["devices"]
        runs = tables["runs"].set_index("side").loc[name]
        assert runs["idle_ns"] == devices["idle_ns"].sum()
        assert runs["window_ns"] == devices["window_ns"].sum()
        causes = found["cause_sums"].set_index("cause")["idle_ns"]
        own = tables["idle"].set_index("cause")[f"{name}_total_ns"]
        for cause, ns in own.items():
            assert ns == causes.get(cause, 0), cause


def test_one_file_per_rank_gives_the_same_numbers(tables, traces, tmp_path):
    folder = traces / "h100_mfu_ranks"
    apart = tables_of(tmp_path / "out", folder / "before", folder / "after", recipe="trace_diff")
    for name in ("kernels", "categories", "configs", "memops", "idle"):
        pd.testing.assert_frame_equal(apart[name], tables[name])
    # Two files have two clocks, which are aligned by the ends of collectives.
    here, there = (
        one["metrics"][~one["metrics"]["metric"].str.startswith("comm_")] for one in (apart, tables)
    )
    pd.testing.assert_frame_equal(here, there)


def test_swapping_the_runs_turns_every_sign(tables, traces, tmp_path):
    folder = traces / "h100_mfu"
    back = tables_of(
        tmp_path / "out", folder / "after.sqlite", folder / "before.sqlite", recipe="trace_diff"
    )
    for name, key in (("kernels", "name"), ("idle", "cause"), ("apis", "api")):
        here, there = tables[name].set_index(key), back[name].set_index(key)
        assert (here["change_ns"] == -there["change_ns"].reindex(here.index)).all()
    assert ms(back["kernels"]["change_ns"].sum().reshape(1)) == [46.365]


def test_all_modes_and_input_orders_give_the_same_tables(traces, tmp_path):
    folder = traces / "h100_mfu_ranks"
    before, after = (
        [str(path) for path in sorted((folder / side).glob("*.sqlite"))]
        for side in ("before", "after")
    )
    plain = tmp_path / "none"
    analyse(plain, *after, options=["--baseline", *before], recipe="trace_diff")
    threads = tmp_path / "threads"
    options = ["--baseline", *before[::-1], "--mode", "concurrent"]
    analyse(threads, *after[::-1], options=options, recipe="trace_diff")
    assert_same(plain, threads, recipe="trace_diff")


# Random halves of one run

ALPHA = 0.05
_OPTIONS = {"alpha": ALPHA, "min_effect": 0.0}


@pytest.fixture(scope="module")
def durations(traces):
    """Durations of every kernel of a real run, by a code of its name."""
    file = f"file:{traces / 'h100_mfu' / 'before.sqlite'}?mode=ro"
    with sqlite3.connect(file, uri=True) as database:
        rows = database.execute(
            'SELECT demangledName, "end" - start FROM CUPTI_ACTIVITY_KIND_KERNEL'
        ).fetchall()
    names, code = np.unique([name for name, _ in rows], return_inverse=True)
    return names.size, code.astype(np.int64), np.array([ns for _, ns in rows], dtype=np.int64)


def half(code, values, chosen, names_n):
    counts = ValueCounts.from_values(code[chosen], values[chosen])
    totals = np.bincount(code[chosen], weights=values[chosen], minlength=names_n)
    return kernel_side(counts, totals.astype(np.int64))


def test_halves_of_one_run_are_called_different_no_more_often_than_stated(durations):
    names_n, code, values = durations
    rng = np.random.default_rng(7)
    tries, below, known, called = 200, 0, 0, 0
    for _ in range(tries):
        chosen = rng.random(code.size) < 0.5
        sides = half(code, values, chosen, names_n), half(code, values, ~chosen, names_n)
        tests = verdicts.tested(*sides, None, _OPTIONS)
        below += int((tests.p_value < ALPHA).sum())
        known += int((~np.isnan(tests.p_value)).sum())
        # Without any effect floor: by the adjusted p alone.
        called += bool((tests.q_value < ALPHA).any())
    # Three standard deviations of a binomial above the stated rate.
    assert below / known <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / known)
    assert called / tries <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / tries)


def test_a_planted_change_is_found_in_halves_of_one_run(durations):
    names_n, code, values = durations
    rng = np.random.default_rng(8)
    chosen = rng.random(code.size) < 0.5
    frame = pd.DataFrame({"code": code, "ns": values}).groupby("code")["ns"]
    spread = (frame.quantile(0.9) / frame.quantile(0.1)).where(frame.size() >= 60)
    planted = int(spread.idxmin())
    slower = np.where(code == planted, values * 11 // 10, values)
    sides = half(code, values, chosen, names_n), half(code, slower, ~chosen, names_n)
    found = verdicts.tested(*sides, None, {"alpha": ALPHA, "min_effect": 2.0}).verdict
    assert found[planted] == REGRESS
    assert np.isin(found, [REGRESS, IMPROVE]).sum() == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_halves_of_a_report_differ_in_no_kernel(traces, tmp_path, seed):
    paths = []
    for keep in (0, 1):
        path = tmp_path / f"half{keep}.sqlite"
        shutil.copyfile(traces / "h100_mfu" / "before.sqlite", path)
        with sqlite3.connect(path) as database:
            count = database.execute("SELECT max(rowid) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
            rng = np.random.default_rng(seed)
            mine = np.flatnonzero(rng.integers(0, 2, count[0] + 1) == keep)
            database.executemany(
                "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = ?",
                [(int(row),) for row in mine],
            )
        database.close()
        paths.append(path)
    found = tables_of(tmp_path / "out", *paths, recipe="trace_diff")
    assert not found["kernels"]["verdict"].isin([REGRESS, IMPROVE]).any()

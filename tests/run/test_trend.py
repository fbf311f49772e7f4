"""Trends: what six runs come to, against plain arithmetic, and one that a change made slower."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from effort import over_seeds

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.report.outputs import arrow_table
from nsys_llm.run import trend as trends
from nsys_llm.run.cli import main
from nsys_llm.run.trend import Band
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES

#: Of Student's t, two-sided 95 %, by degrees of freedom: from a printed table.
T_975 = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262}


@pytest.fixture(scope="module")
def result(shared_runs):
    return shared_runs.run("demo", "llm_overview")[1]


def rewrite(folder, ranks):
    """Write the table of ranks as a run does: pandas would give texts another type."""
    declared = load_manifest("llm_overview").table("ranks")
    pq.write_table(arrow_table(declared, ranks), folder / "ranks.parquet")


@pytest.fixture
def runs(result, tmp_path):
    """Return a function that writes small results: report.json and ranks.parquet alone."""

    def written(step_ns, **changed):
        folder = tmp_path / "results" / f"run-{len(list(tmp_path.glob('results/*'))) + 1}"
        folder.mkdir(parents=True)
        record = json.loads((result / "report.json").read_text("utf-8"))
        record |= {name: value for name, value in changed.items() if name in record}
        (folder / "report.json").write_text(json.dumps(record), "utf-8")
        ranks = pd.read_parquet(result / "ranks.parquet")
        ranks["step_ns"] *= step_ns / ranks["step_ns"].mean()
        if "step_name" in changed:
            ranks["step_name"] = changed["step_name"]
        if "idle_ns" in changed:
            # Of the same span, so that all else is shorter by as much.
            ranks["compute_ns"] += ranks["idle_ns"] - changed["idle_ns"]
            ranks["idle_ns"] = changed["idle_ns"]
        rewrite(folder, ranks)
        return folder

    return written


def ended(capsys, *words):
    code = main(["trend", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@over_seeds(range(100))
def test_a_band_is_the_interval_of_one_more_value(seed):
    random = np.random.default_rng(seed)
    n = int(random.choice([*T_975])) + 1
    values = random.normal(1_000.0, random.choice([0.1, 5.0, 200.0]), n)
    spread = math.sqrt(((values - values.mean()) ** 2).sum() / (n - 1))
    half = T_975[n - 1] * spread * math.sqrt(1 + 1 / n)
    band = Band.of(values.tolist())
    assert band.mean_ns == pytest.approx(values.mean())
    assert band.half_ns == pytest.approx(half, rel=5e-4)
    least = max(band.half_ns, 0.01 * band.mean_ns)
    for value, word in (
        (band.mean_ns + 1.001 * least, "SLOWER"),
        (band.mean_ns + 0.999 * least, "SAME"),
        (band.mean_ns - 0.999 * least, "SAME"),
        (band.mean_ns - 1.001 * least, "FASTER"),
    ):
        assert band.verdict(value) == word


def test_fewer_than_three_runs_tell_no_band():
    assert Band.of([]) is None
    assert Band.of([5.0, 6.0]).half_ns is None
    assert Band.of([5.0, 6.0]).verdict(50.0) == "UNCERTAIN"


def test_the_newest_is_judged_by_the_last_runs_before_it(runs, tmp_path, capsys):
    # The first two are of slower days, which the last four do not know.
    for step_ns in (9e6, 9e6, 6.00e6, 6.02e6, 5.98e6, 6.00e6, 6.30e6):
        runs(step_ns)
    words = (tmp_path / "results", "--last", 4, "--output", tmp_path / "out")
    code, printed, _ = ended(capsys, *words, "--gate", "step:+3%", "--gate", "step:+6%")
    assert code == 1
    assert "SLOWER: run-7, 6 ms -> 6.3 ms a step (+5.0 %; noise band of the last 4: " in printed
    assert "  fail  step:+3%: 6 ms -> 6.3 ms\n  pass  step:+6%\n" in printed
    table = pd.read_parquet(tmp_path / "out" / "trend.parquet")
    assert table["step_ns"].tolist() == pytest.approx(
        [9e6, 9e6, 6.00e6, 6.02e6, 5.98e6, 6.00e6, 6.30e6]
    )
    assert table["verdict"].tolist()[-1] == "SLOWER"
    half = 3.182 * np.std([6.00e6, 6.02e6, 5.98e6, 6.00e6], ddof=1) * math.sqrt(1.25)
    assert table["band_high_ns"].iloc[-1] == pytest.approx(6e6 + half, rel=1e-4)
    classes = [f"{name}_ns" for name in WALL_CLASSES]
    assert table[classes].sum(axis=1).tolist() == pytest.approx(table["step_ns"].tolist())
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))
    assert (verdict["exit_code"], [gate["result"] for gate in verdict["gates"]]) == (
        1,
        ["fail", "pass"],
    )
    assert "Plotly.newPlot" in (tmp_path / "out" / "trend.html").read_text("utf-8")


def test_a_slower_run_says_in_which_of_its_steps(runs, tmp_path, capsys):
    before = [runs(ns) for ns in (1e6, 1.01e6, 0.99e6)]
    after = runs(1.3e6)
    record = json.loads((after / "report.json").read_text("utf-8"))
    first = next(item for item in record["report"]["findings"] if item["kind"] == "performance")
    first |= {"title": "Rank 2's GPU is slow from step 40 of 60 on", "steps": "40-59"}
    (after / "report.json").write_text(json.dumps(record), "utf-8")
    code, out, _ = ended(capsys, *before, after)
    assert code == 0
    assert "Rank 2's GPU is slow from step 40 of 60 on." in " ".join(out.split())


def test_what_noise_explains_passes_a_gate(runs, tmp_path, capsys):
    for step_ns in (5.0e6, 7.0e6, 6.0e6, 5.5e6, 6.5e6, 7.2e6):
        runs(step_ns)
    code, printed, _ = ended(capsys, tmp_path / "results", "--gate", "step:+3%")
    assert code == 0
    assert "SAME: run-6" in printed
    assert "pass  step:+3%: above the limit, but within the noise band" in printed


def test_a_gate_may_be_on_a_class_and_the_verdict_names_the_one_that_moved(runs, tmp_path, capsys):
    for _ in range(4):
        runs(6e6, idle_ns=1_000_000)
    runs(6e6, idle_ns=9_000_000)
    code, printed, _ = ended(capsys, tmp_path / "results", "--gate", "idle:+1us")
    assert code == 1
    assert "SAME: run-5" in printed
    assert "fail  idle:+1us" in printed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"exit_code": 3}, "incomplete"),
        ({"step_name": "other"}, "other what a step is"),
        ({"ranks": []}, "other GPUs, ranks, tracing of CUDA graphs"),
    ],
)
def test_runs_of_another_kind_are_shown_and_left_out(runs, tmp_path, capsys, changed, said):
    folders = [runs(step_ns) for step_ns in (6e6, 6.01e6, 5.99e6)]
    odd = runs(50e6, **changed)
    folders += [odd, runs(6e6)]
    code, printed, _ = ended(capsys, *folders, "--gate", "step:+3%")
    assert code == 0
    assert f"{said}  " in next(line for line in printed.splitlines() if odd.name in line)
    assert "noise band of the last 3" in printed
    code, printed, _ = ended(capsys, *folders[:4], "--gate", "step:+3%")
    assert code == 3


def test_without_a_gate_a_slower_run_ends_well_and_with_one_at_least_two_are_compared(
    runs, tmp_path, capsys
):
    folders = [runs(6e6), runs(9e6)]
    assert ended(capsys, *folders)[0] == 0
    code, printed, _ = ended(capsys, *folders, "--gate", "step_time:+3%")
    assert code == 0
    assert "UNCERTAIN: run-2, 6 ms -> 9 ms a step (+50.0 %; a noise band needs 3" in printed
    assert "fail (probably)  step_time:+3%: 6 ms -> 9 ms; noise needs 3 runs before it" in printed
    assert ended(capsys, *folders, "--gate", "step:+3%", "--gate-if", "probably")[0] == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [("span_ns", -1), ("idle_ns", -(2**40)), ("step_ns", 0.0), ("step_ns", 1e300)],
)
def test_a_time_that_is_none_passes_no_gate(runs, tmp_path, capsys, column, value):
    folders = [runs(6e6) for _ in range(4)]
    ranks = pd.read_parquet(folders[-1] / "ranks.parquet")
    ranks[column] = value
    rewrite(folders[-1], ranks)
    code, _, said = ended(capsys, *folders, "--gate", "step:+3%", "--gate", "idle:+3%")
    assert code == 2
    assert f"{folders[-1]}: damaged" in said


def test_steps_that_are_not_known_pass_no_gate(runs, capsys):
    folders = [runs(6e6) for _ in range(4)]
    ranks = pd.read_parquet(folders[-1] / "ranks.parquet")
    ranks["step_ns"] = pd.array([pd.NA] * len(ranks), dtype="Float64")
    rewrite(folders[-1], ranks)
    code, printed, _ = ended(capsys, *folders, "--gate", "step:+3%")
    assert code == 3
    assert "NOT COMPARABLE" in printed


def test_without_plotly_there_is_no_figure(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    code, printed, said = ended(capsys, runs(6e6), runs(6e6), "--output", tmp_path / "out")
    assert (code, said) == (0, "warning: no trend.html was made: pip install plotly.\n")
    assert "Generated:" in printed
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["trend.parquet", "verdict.json"]


@pytest.mark.parametrize("name", ["trend.parquet", "verdict.json", "trend.html"])
def test_a_full_disk_leaves_nothing(runs, tmp_path, capsys, monkeypatch, name):
    folders = [runs(6e6), runs(6e6)]
    fail = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full(path, *given, **named):
        if path.name == name:
            raise fail
        return written(path, *given, **named)

    written = Path.write_text
    monkeypatch.setattr(Path, "write_text", full)
    if name == "trend.parquet":
        monkeypatch.setattr(trends.pq, "write_table", lambda _, path: full(path))
    out = tmp_path / "new" / "out"
    code, _, said = ended(capsys, *folders, "--output", out)
    assert (code, said.count("\n")) == (2, 1)
    assert "cannot be written (No space left on device)" in said
    assert not out.parent.exists()


def test_bad_input_is_one_line(runs, result, tmp_path, capsys):
    good = [runs(6e6), runs(6e6)]
    (tmp_path / "empty").mkdir()
    damaged = tmp_path / "damaged"
    shutil.copytree(good[0], damaged)
    (damaged / "ranks.parquet").write_bytes(b"no")
    partly = tmp_path / "partly"
    shutil.copytree(good[0], partly)
    pd.read_parquet(good[0] / "ranks.parquet").drop(columns="span_ns").to_parquet(
        partly / "ranks.parquet"
    )
    unlisted = tmp_path / "unlisted"
    shutil.copytree(good[0], unlisted)
    record = json.loads((good[0] / "report.json").read_text("utf-8"))
    del record["ranks"]
    (unlisted / "report.json").write_text(json.dumps(record), "utf-8")
    other = result / "parts" / "idle_gaps"
    for words, part in (
        ([good[0]], "two results or more"),
        ([tmp_path / "absent", good[0]], "no such folder"),
        ([tmp_path / "empty", good[0]], "no result of a recipe"),
        ([damaged, good[0]], "missing or damaged"),
        ([partly, good[0]], f"{partly}/ranks.parquet: missing or damaged"),
        ([unlisted, good[0]], f"{unlisted}: no result of a recipe"),
        ([other, good[0]], "of idle_gaps; trend takes results of llm_overview"),
        ([*good, "--gate", "speed:+3%"], "no metric 'speed'"),
        ([*good, "--last", "0"], "--last"),
        ([*good, "--output", tmp_path / "empty"], "exists already"),
    ):
        code, _, said = ended(capsys, *words)
        assert code == 2, words
        assert said.count("\n") == 1
        assert part in said

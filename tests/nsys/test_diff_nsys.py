"""trace_diff under a real `nsys recipe`: the standalone command's tables, and gates."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from effort import nightly_but
from results import analyse, assert_same, read_report, under_nsys

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

RECIPE = "trace_diff"
GATES = ["--gate", "kernel_per_call(flash*):+3%", "--gate", "idle_pct:+2pp"]


@pytest.fixture(scope="module")
def pairs(nsys, traces, tmp_path_factory):
    """Pairs of inputs by kind, and what gives the folder of the command's results of one."""
    folder = tmp_path_factory.mktemp("pairs")
    reports = [folder / f"{name}.nsys-rep" for name in ("before", "after")]
    for path, name in zip(reports, ("v2", "serial"), strict=True):
        shutil.copyfile(traces / "a100_vector_add" / f"vector_add_profile_{name}.nsys-rep", path)
    ranks = traces / "h100_mfu_ranks"
    files = traces / "h100_mfu"
    by_kind = {
        "reports": reports,
        "rank_sets": [ranks / "before", ranks / "after"],
        "files": [files / "before.sqlite", files / "after.sqlite"],
    }

    @cache
    def alone(kind):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NSYS_DIR", str(Path(nsys).parents[1]))
            return analyse(folder / kind, *by_kind[kind], recipe=RECIPE)

    return alone, by_kind


# Pairwise: every mode, and every kind of input; the other recipes have theirs of each in CI.
CASES = [("none", "files"), ("concurrent", "reports"), ("dask-futures", "rank_sets")]


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "kind"), nightly_but(CASES, [("concurrent", "reports")]))
def test_every_mode_gives_the_tables_of_the_command(nsys, pairs, mode, kind, tmp_path):
    alone, by_kind = pairs
    before, after = by_kind[kind]
    words = ["--baseline", before, "--input", after, "--mode", mode, "--output", "out"]
    done = under_nsys(nsys, tmp_path, *words, recipe=RECIPE)
    assert done.returncode == 0, done.stdout
    assert_same(tmp_path / "out", alone(kind), recipe=RECIPE)


def test_a_failed_gate_arrives_as_1_and_the_results_stay(nsys, pairs, tmp_path):
    before, after = pairs[1]["files"]
    words = ["--baseline", before, "--input", after, "--output", "out", *GATES]
    done = under_nsys(nsys, tmp_path, *words, recipe=RECIPE)
    assert done.returncode == 1
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))
    assert (verdict["exit_code"], verdict["verdict"]) == (1, "fail")
    assert [gate["result"] for gate in verdict["gates"]] == ["pass", "fail"]
    assert read_report(tmp_path / "out")["exit_code"] == 1
    assert "gate failed: idle_pct:+2pp" in done.stdout
    record = json.loads((tmp_path / "out" / "out.nsys-analysis").read_text("utf-8"))
    assert record["Outputs"]["verdict.json"] == "Verdict"
    assert len(record["InputFiles"]) == 2

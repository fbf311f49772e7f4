"""llm_overview under a real `nsys recipe`, in every mode, and with Dask: the command's tables."""

from __future__ import annotations

import json

import pytest
from effort import nightly_but
from results import analyse, assert_same, read_report, under_nsys

from nsys_llm.manifest.manifest import load_manifest

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

RECIPE = "llm_overview"
PARTS = load_manifest(RECIPE).recipes
MODES = ("none", "concurrent", "dask-futures")


@pytest.fixture(scope="module")
def ranks(traces):
    return traces / "h100_mfu_ranks" / "after"


@pytest.fixture(scope="module")
def alone(ranks, tmp_path_factory):
    return analyse(tmp_path_factory.mktemp("alone") / "out", ranks, recipe=RECIPE)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", nightly_but(MODES, ["concurrent"]))
def test_every_mode_gives_the_tables_of_the_command(nsys, ranks, alone, mode, tmp_path):
    words = ["--input", ranks, "--mode", mode, "--output", "out"]
    done = under_nsys(nsys, tmp_path, *words, recipe=RECIPE)
    assert done.returncode == 0, done.stdout
    out = tmp_path / "out"
    assert_same(out, alone, recipe=RECIPE)
    for part in PARTS:
        assert_same(out / "parts" / part, alone / "parts" / part, recipe=part)
        reports = [read_report(folder / "parts" / part)["report"] for folder in (out, alone)]
        assert reports[0] == reports[1]
    record = json.loads((out / "out.nsys-analysis").read_text("utf-8"))
    assert record["RecipeName"] == RECIPE
    assert all((out / name).is_file() for name in record["Outputs"])
    assert {f"parts/{part}/wall.parquet" for part in PARTS} <= record["Outputs"].keys()

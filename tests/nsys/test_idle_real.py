"""idle_gaps under a real `nsys recipe`: its modes and kinds of input, against the plain command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from effort import nightly_but
from results import LABELS, assert_same, only_tables, read_frames, rows, run, under_nsys

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

RECIPE = "idle_gaps"
STEMS = ["vector_add_profile_serial", "vector_add_profile_streamed"]

#: What NVIDIA's gpu_gaps tells of the two reports: gaps, and their length.
GAPS = [(409, 30_017_239), (536, 2_869_188)]


@pytest.fixture(scope="module")
def inputs(nsys, traces, tmp_path_factory) -> dict[str, Path]:
    """The same two reports as reports, SQLite and parquet; and two ranks of one host."""
    folder = tmp_path_factory.mktemp("inputs")
    kinds = {"sqlite": "{}.sqlite", "parquetdir": "{}_pqtdir"}
    for name in ("reports", *kinds):
        (folder / name).mkdir()
    for stem in STEMS:
        report = folder / "reports" / f"{stem}.nsys-rep"
        shutil.copyfile(traces / "a100_vector_add" / report.name, report)
        for kind, name in kinds.items():
            target = folder / kind / name.format(stem)
            words = ["--type", kind, "--lazy", "false", "-o", target, report]
            assert run([nsys, "export", *words], folder).returncode == 0
    return {
        **{name: folder / name for name in ("reports", *kinds)},
        "rank_set": traces / "h100_mfu_ranks" / "before",
    }


@pytest.fixture(scope="module")
def alone(inputs, tmp_path_factory):
    """One output folder of the plain command for the two reports and for the two ranks."""
    folder = tmp_path_factory.mktemp("alone")
    for kind in ("sqlite", "rank_set"):
        only_tables(folder / kind, inputs[kind], recipe=RECIPE)
    return folder


CASES = [
    ("none", "rank_set", "rank_set"),
    ("concurrent", "rank_set", "rank_set"),
    ("dask-futures", "rank_set", "rank_set"),
    ("concurrent", "reports", "sqlite"),
    ("dask-futures", "parquetdir", "sqlite"),
    ("none", "sqlite", "sqlite"),
]
IN_CI = [CASES[4]]


@pytest.mark.parametrize(("mode", "kind", "same_as"), nightly_but(CASES, IN_CI))
def test_every_mode_and_every_kind_of_input_gives_the_same_tables(
    nsys, inputs, alone, tmp_path, mode, kind, same_as
):
    words = ["--mode", mode, "--input", inputs[kind], "--export-dir", tmp_path / "exports"]
    done = under_nsys(nsys, tmp_path, *words, "--output", tmp_path / "out", recipe=RECIPE)
    assert done.returncode == 0, done.stdout
    assert "Generated:" in done.stdout
    assert_same(tmp_path / "out", alone / same_as, but=LABELS, recipe=RECIPE)


def test_options_of_the_recipe_are_known_under_nsys(nsys, inputs, tmp_path):
    words = ["--whole-capture", "--min-gap-ns", "5us", "--top", "3", "--mode", "none"]
    done = under_nsys(
        nsys, tmp_path, *words, "--input", inputs["sqlite"], "--output", "out", recipe=RECIPE
    )
    assert done.returncode == 0, done.stdout
    tables = read_frames(tmp_path / "out")
    assert set(tables["devices"]["windowed_by"]) == {"capture"}
    # As the reports' ANALYSIS_DETAILS has it.
    assert tables["devices"]["window_ns"].tolist() == [5_200_733_788, 3_241_349_208]
    assert len(tables["gaps"]) == 3


def test_the_gaps_are_those_of_nvidia_s_recipe(alone):
    names = "gaps_n idle_ns overhead_ns"
    devices = rows(read_frames(alone / "sqlite")["devices"], names)
    assert [(gaps_n, idle + overhead) for gaps_n, idle, overhead in devices] == GAPS

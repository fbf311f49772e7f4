"""Our numbers beside those of NVIDIA's own `nsys stats` and `nsys recipe`."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from effort import nightly_but
from pandas.api.types import is_float_dtype, is_integer_dtype
from real_traces import A100, H100
from results import (
    analyse,
    plain,
    read_frames,
    rows,
    run,
    tables_of,
    under_nsys,
)

pytestmark = [pytest.mark.nsys, pytest.mark.traces]

#: Kernels of one stream, and of several.
IN_CI = [A100[0], H100[2]]
FORMS = {"cuda_gpu_kern_sum": [], "cuda_gpu_kern_sum:base": ["--base"]}
FORMS["cuda_gpu_kern_sum:mangled"] = ["--mangled"]

# NVIDIA rounds its floats to one decimal.
ROUNDING = 0.05 + 1e-9


@pytest.fixture(scope="module")
def reports(nsys, traces, tmp_path_factory) -> Path:
    """The A100 reports as .nsys-rep and, with every table, as .sqlite."""
    folder = tmp_path_factory.mktemp("a100")
    for name in A100:
        report = folder / f"{name}.nsys-rep"
        shutil.copyfile(traces / "a100_vector_add" / report.name, report)
        command = [nsys, "export", "--type", "sqlite", "--lazy", "false", report]
        assert run(command, folder).returncode == 0
    return folder


@pytest.fixture(scope="module")
def theirs(nsys, reports, tmp_path_factory) -> dict[str, pd.DataFrame]:
    """NVIDIA's `cuda_gpu_kern_sum` recipe on the A100 reports."""
    folder = tmp_path_factory.mktemp("theirs")
    words = ["--input", reports, "--mode", "none", "--output", folder / "out"]
    done = under_nsys(nsys, folder, *words, recipe="cuda_gpu_kern_sum")
    assert done.returncode == 0, done.stdout
    return read_frames(folder / "out")


@pytest.fixture(scope="module")
def ours(reports, tmp_path_factory) -> dict[str, pd.DataFrame]:
    folder = tmp_path_factory.mktemp("ours")
    return tables_of(folder / "out", *sorted(reports.glob("*.sqlite")))


def durations(trace: Path) -> np.ndarray:
    """Return the kernel durations of an export, read here and not by the package."""
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as database:
        durations_ns = database.execute(
            "SELECT end - start FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ).fetchall()
    return np.array(durations_ns, dtype=np.int64).ravel()


@pytest.mark.nightly("vector_add_profile_serial")
@pytest.mark.parametrize("trace", nightly_but([*A100, *H100], IN_CI))
def test_every_kernel_equals_nsys_stats(nsys, traces, reports, trace, tmp_path):
    path = (reports if trace in A100 else traces) / f"{trace}.sqlite"
    command = [nsys, "stats", "--quiet", "--format", "csv", "--output", tmp_path / "stats"]
    for report in FORMS:
        command += ["--report", report]
    done = run([*command, path], tmp_path)
    assert done.returncode == 0, done.stdout
    for report, options in FORMS.items():
        expected = pd.read_csv(tmp_path / f"stats_{report.replace(':', '_')}.csv")
        expected = expected.set_index("Name").sort_index()
        tables = tables_of(tmp_path / report.replace(":", "_"), path, options=options)
        stats = tables["all_stats"].sort_index()
        assert stats.index.tolist() == expected.index.tolist()
        for name, unit in (("Total Time", " (ns)"), ("Instances", ""), ("Min", " (ns)")):
            assert stats[name].tolist() == expected[name + unit].tolist()
        assert stats["Max"].tolist() == expected["Max (ns)"].tolist()
        for name in ("Avg", "Med"):
            assert stats[name].notna().all()
            assert np.abs(stats[name] - expected[f"{name} (ns)"]).max() <= ROUNDING
        # One launch has no spread: theirs says 0, ours that it is not known.
        several = stats["Instances"] > 1
        spread = stats["StdDev"][several] - expected["StdDev (ns)"][several]
        assert np.abs(spread).max() <= ROUNDING
        assert stats["StdDev"][~several].isna().all()
        assert (expected["StdDev (ns)"][~several] == 0).all()
        assert np.abs(stats["Time"] - expected["Time (%)"]).max() <= ROUNDING


@pytest.mark.parametrize("table", ["rank_stats", "all_stats"])
def test_the_stats_tables_have_the_types_of_nvidia_s_recipe(theirs, ours, table):
    # Except the quartiles: theirs cut off the fraction.
    for name in theirs[table].columns.drop(["Q1", "Q3"]):
        our_dtype, nvidia = ours[table][name].dtype, theirs[table][name].dtype
        assert is_integer_dtype(our_dtype) == is_integer_dtype(nvidia), name
        assert is_float_dtype(our_dtype) == is_float_dtype(nvidia), name
    for name in ("Q1", "Q3"):
        assert is_integer_dtype(theirs["rank_stats"][name].dtype)
        assert is_float_dtype(ours[table][name].dtype)


def test_each_rank_equals_nvidia_s_recipe(theirs, ours):
    our_stats, nvidia = ours["rank_stats"], theirs["rank_stats"]
    exact = ["Total Time", "Instances", "Min", "Max", "File"]
    assert plain(our_stats[exact]) == plain(nvidia[exact])
    for name in ("Time", "Avg", "Med", "StdDev"):
        assert np.abs(our_stats[name].to_numpy() - nvidia[name].to_numpy()).max() <= ROUNDING


def test_all_ranks_equal_nvidia_s_recipe_where_it_is_exact(theirs, ours):
    exact = ["Total Time", "Instances", "Min", "Max", "Min File", "Max File"]
    assert plain(ours["all_stats"][exact]) == plain(theirs["all_stats"][exact])
    # Their overall deviation comes from rounded ones: it is right to about 1e-5.
    for name, tolerance in (("Time", ROUNDING), ("Avg", ROUNDING), ("StdDev", 0.2)):
        (our_value,), (nvidia,) = ours["all_stats"][name], theirs["all_stats"][name]
        assert abs(our_value - nvidia) <= tolerance


def test_the_quartiles_differ_as_they_must(reports, theirs, ours):
    # One kernel in three reports. Theirs: per rank the medians of the lower and the upper half,
    # without fraction; over all ranks the least Q1, the median of the medians, the largest Q3.
    # Ours: of all 1530 launches together, interpolated.
    parts = [durations(reports / f"{name}.sqlite") for name in A100]
    together = np.concatenate(parts)
    our_row, nvidia = ours["all_stats"].iloc[0], theirs["all_stats"].iloc[0]
    per_rank = theirs["rank_stats"]
    assert [our_row["Q1"], our_row["Med"], our_row["Q3"]] == np.percentile(
        together, [25, 50, 75]
    ).tolist()
    assert nvidia["Q1"] == per_rank["Q1"].min()
    assert nvidia["Med"] == np.median(per_rank["Med"])
    assert nvidia["Q3"] == per_rank["Q3"].max()
    # 1010 of the 1530 launches are those of the third report, at 1824 ns each: so is the median.
    assert our_row["Med"] == 1824.0
    assert nvidia["Med"] == 27904.0
    for part, (_, row), (_, other) in zip(
        parts, ours["rank_stats"].iterrows(), per_rank.iterrows(), strict=True
    ):
        assert [row["Q1"], row["Q3"]] == np.percentile(part, [25, 75]).tolist()
        lower, upper = np.split(np.sort(part), 2)
        assert [other["Q1"], other["Q3"]] == [int(np.median(lower)), int(np.median(upper))]


def test_idle_times_equal_the_sums_of_nvidia_s_gaps(nsys, traces, reports, tmp_path):
    # NVIDIA's recipe takes reports only, and uses an SQLite export that is younger than its report.
    exports = [
        *(reports / f"{name}.sqlite" for name in A100),
        traces / "h100_mfu" / "before.sqlite",
    ]
    for export in exports:
        (tmp_path / f"{export.stem}.nsys-rep").touch()
    for export in exports:
        shutil.copyfile(export, tmp_path / export.name)
    words = ["--input", ".", "--gap", "0", "--rows", "-1", "--mode", "none", "--output", "gaps"]
    done = under_nsys(nsys, tmp_path, *words, recipe="gpu_gaps")
    assert done.returncode == 0, done.stdout
    gaps = read_frames(tmp_path / "gaps")["analysis"]
    theirs = gaps.groupby(["PID", "Device ID"])["Duration"].sum().to_dict()
    output = tables_of(tmp_path / "ours", *exports)
    pids = output["files"].set_index("File")["pid"]
    columns = "file device_id window_ns busy_ns"
    assert theirs == {
        (pids[file], device): window_ns - busy_ns
        for file, device, window_ns, busy_ns in rows(output["devices"], columns)
    }
    # The sums that were measured independently.
    known_ns = [2_761_990, 2_869_188, 26_031_025, 30_017_239, 31_385_635]
    assert sorted(theirs.values()) == known_ns


@pytest.mark.nightly
def test_nvidia_s_diff_of_an_output_with_itself_is_zero(nsys, reports, tmp_path):
    output = analyse(tmp_path / "out", *sorted(reports.glob("*.sqlite")))
    done = under_nsys(nsys, tmp_path, "--input", output, output, recipe="diff")
    assert done.returncode == 0, done.stdout
    for table in ("rank_stats", "all_stats"):
        numbers = read_frames(tmp_path / "llm_hotspots-diff-1")[table].select_dtypes("number")
        assert (numbers.to_numpy(dtype=float) == 0).all()

"""The recipe under a real `nsys recipe`: the same tables as the standalone command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from itertools import product
from pathlib import Path

import pytest
from effort import nightly_but
from results import (
    RECIPES_FOLDER,
    analyse,
    assert_same,
    environment,
    only_tables,
    read_frames,
    read_report,
    rows,
    run,
    under_nsys,
)

from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.run.cli import main

pytestmark = pytest.mark.nsys

NSYS_MODES = ["none", "concurrent", "dask-futures"]
KINDS = ["reports", "rank_set", "two_processes"]
IN_CI = [("reports", "none")]
A100 = ["vector_add_profile_serial", "vector_add_profile_streamed", "vector_add_profile_v2"]


@pytest.fixture(scope="module")
def inputs(nsys, traces, tmp_path_factory) -> dict[str, Path]:
    """The inputs by kind; the three A100 reports are copies, and get their exports beside them."""
    folder = tmp_path_factory.mktemp("inputs")
    reports = folder / "a100"
    reports.mkdir()
    for name in A100:
        shutil.copyfile(
            traces / "a100_vector_add" / f"{name}.nsys-rep", reports / f"{name}.nsys-rep"
        )
    return {
        "reports": reports,
        "rank_set": traces / "h100_mfu_ranks" / "before",
        "two_processes": traces / "h100_mfu" / "before.sqlite",
    }


@pytest.fixture(scope="module")
def standalone(nsys, inputs, tmp_path_factory):
    """One output folder of the standalone command for each input."""
    folder = tmp_path_factory.mktemp("standalone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSYS_DIR", str(Path(nsys).parents[1]))
        for kind, path in inputs.items():
            if kind != "reports":
                only_tables(folder / kind, path)
        words = ["--mode", "none", "--quiet", "--output", folder / "reports"]
        # They are three runs of one program: the newest is analyzed.
        assert main(["llm_hotspots", *map(str, [*words, "--input", inputs["reports"]])]) == 3
    return folder


@pytest.mark.parametrize(("kind", "mode"), nightly_but(product(KINDS, NSYS_MODES), IN_CI))
@pytest.mark.traces
def test_the_recipe_and_the_command_give_the_same_tables(
    nsys, inputs, standalone, kind, mode, tmp_path
):
    # An empty export folder, so that each mode exports for itself.
    words = ["--input", inputs[kind], "--mode", mode, "--export-dir", tmp_path / "exports"]
    done = under_nsys(nsys, tmp_path, *words, "--output", tmp_path / "out")
    assert done.returncode == (1 if kind == "reports" else 0), done.stdout
    assert "Generated:" in done.stdout
    assert_same(tmp_path / "out", standalone / kind)
    assert (tmp_path / "exports").is_dir() == (kind == "reports")


@pytest.mark.nightly
def test_the_framework_s_own_record_is_kept_and_quiet_is_no_more_than_the_launcher_says(
    nsys, rank_set, tmp_path
):
    words = ["--input", rank_set, "--mode", "none", "--output", "out", "--quiet"]
    done = under_nsys(nsys, tmp_path, *words)
    assert done.returncode == 0, done.stdout
    assert done.stdout.split() == ["Generated:", "out"]
    record = json.loads((tmp_path / "out" / "out.nsys-analysis").read_text("utf-8"))
    assert record["RecipeName"] == "llm_hotspots"
    assert record["DisplayName"] == "LLM hotspots"
    assert record["RecipeJsonVersion"] == "1.2.0"
    assert record["Mode"] == "none"
    assert record["InputFiles"] == [str(rank_set / f"rank{n}.sqlite") for n in (0, 1)]
    listed = read_report(tmp_path / "out")["tables"]
    assert listed.keys() == {table.file for table in load_manifest("llm_hotspots").writes}
    assert set(record["Outputs"]) == {
        *(f"{name}.parquet" for name, table in listed.items() if table["rows"]),
        "report.md",
        "analysis.ipynb",
    }
    assert record["StartTime"] < record["EndTime"]


@pytest.mark.nightly
def test_an_incomplete_run_ends_with_1_and_its_results_stay(nsys, rank_set, tmp_path):
    done = under_nsys(
        nsys, tmp_path, "--input", rank_set, "--world-size", "3", "--output", "out", "--csv"
    )
    assert done.returncode == 1
    assert read_report(tmp_path / "out")["exit_code"] == 3
    assert "absent ranks: 2 (1 of 3)." in done.stdout
    assert "Generated:\n    out" in done.stdout
    analyse(tmp_path / "all", rank_set, options=["--csv"])
    assert rows(read_frames(tmp_path / "out")["files"], "Rank status")[-1] == (2, "absent")
    assert (tmp_path / "out" / "kernels.csv").read_text() == (
        (tmp_path / "all" / "kernels.csv").read_text()
    )


#: Refused by the parser of the framework, and by us before and after a report is read.
USAGE_IN_CI = [
    ("--input", "{}", "--no-such-option"),
    ("--input", "nowhere.sqlite"),
    ("--input", "{}", "--filter-nvtx", "no such range"),
]
USAGE = [
    *USAGE_IN_CI,
    ("--input", "{}", "--filter-time", "9/5"),
    ("--input", "{}", "--base", "--mangled"),
    (),
]


@pytest.mark.nightly("words0", "words2")
@pytest.mark.parametrize(
    "words", nightly_but(((words,) for words in USAGE), ((words,) for words in USAGE_IN_CI))
)
def test_bad_usage_ends_with_1_one_line_and_nothing_written(nsys, rank_set, words, tmp_path):
    given = [word.format(rank_set) for word in words]
    done = under_nsys(nsys, tmp_path, *given, "--output", "out")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout
    assert len(re.findall(r"error:", done.stdout)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["ranks"]


def test_the_launcher_finds_the_recipe_in_the_current_folder(nsys, rank_set, tmp_path):
    done = run(
        [nsys, "recipe", "llm_hotspots", "--input", rank_set, "--output", tmp_path / "out"],
        RECIPES_FOLDER,
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert done.returncode == 0, done.stdout
    assert_same(tmp_path / "out", only_tables(tmp_path / "alone", rank_set))


def test_help_lists_each_option_once(nsys, tmp_path):
    done = under_nsys(nsys, tmp_path, "--help")
    assert done.returncode == 0
    listed = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE)
    declared = [option.flag for option in load_manifest("llm_hotspots").options]
    assert sorted(listed) == sorted([*declared, "--help", "--mode"])


def test_a_script_of_another_version_is_refused_in_one_line(nsys, rank_set, tmp_path):
    recipe = shutil.copytree(RECIPES_FOLDER / "llm_hotspots", tmp_path / "old" / "llm_hotspots")
    script = recipe / "llm_hotspots.py"
    text, changed_n = re.subn(r'version="[^"]+"', 'version="0.0.7"', script.read_text())
    assert changed_n == 1
    script.write_text(text)
    done = under_nsys(nsys, tmp_path, "--input", rank_set, NSYS_RECIPE_PATH=str(tmp_path / "old"))
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert "0.0.7" in line
    assert "install" in line


def test_without_the_package_one_line_says_how_to_install_it(nsys, rank_set, tmp_path):
    # A bare Python that sees every package of this one but ours: links, and no .pth files.
    bare, libraries = tmp_path / "bare", tmp_path / "libraries"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True, timeout=60)
    libraries.mkdir()
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "nsys_llm" not in package.name:
            (libraries / package.name).symlink_to(package)
    path = f"{bare / 'bin'}:{environment()['PATH']}"
    done = under_nsys(nsys, tmp_path, "--input", rank_set, PATH=path, PYTHONPATH=str(libraries))
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert "nsys-llm-recipes is not installed" in line
    assert f"{bare / 'bin' / 'python3'} install.py --current" in line

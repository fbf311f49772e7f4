"""A short slice of the campaigns of fuzzing and of faults; docs/robustness.md has the long ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns.faults import FAULTS, inject
from campaigns.fuzz import run_case
from campaigns.outcomes import Ended, problems
from campaigns.targets import TARGETS
from effort import nightly_but

pytestmark = pytest.mark.slow

#: Cases of each target, some seconds in all.
CASES = {
    "options": 4,
    "parquet": 3,
    "parquet-reader": 4,
    "payloads": 3,
    "sqlite": 3,
    "sqlite-reader": 8,
}
#: The others start commands of their own, some of these for CI as well.
QUICK_FAULTS = ("killed between renames", "a closed pipe", "terminated", "an input cut")


def test_every_target_has_a_slice():
    assert CASES.keys() == TARGETS.keys()


@pytest.mark.parametrize("target", CASES)
def test_hostile_input_gives_right_numbers_or_one_line(tmp_path, target):
    for number in range(CASES[target]):
        folder = tmp_path / str(number)
        folder.mkdir()
        what, faults = run_case(target, 0, number, folder)
        assert faults == [], f"case {number}: {what}"


@pytest.mark.parametrize("name", nightly_but(QUICK_FAULTS, QUICK_FAULTS[:1]))
def test_nothing_is_lost_or_left_by_what_happens_to_a_run(tmp_path, name):
    assert name in FAULTS
    work, references = tmp_path / "work", tmp_path / "references"
    work.mkdir()
    assert inject(name, "idle_gaps", "none", work, references, Random(0)) == []


@pytest.mark.nightly(
    "llm_overview-wall-time_ns",
    "llm_overview-opportunities-gain_ns",
    "llm_overview-parts/tail_stats/tails-launches_n",
    "trace_diff-kernels-count_effect_ns",
)
@pytest.mark.parametrize(
    ("recipe", "table", "column"),
    [
        ("step_budget", "job_steps", "compute_ns"),
        ("llm_overview", "wall", "time_ns"),
        ("llm_overview", "opportunities", "gain_ns"),
        ("llm_overview", "parts/tail_stats/tails", "launches_n"),
        ("trace_diff", "kernels", "count_effect_ns"),
    ],
)
def test_a_wrong_number_in_a_table_is_reported(shared_runs, tmp_path, recipe, table, column):
    ended, output = shared_runs.run("demo", recipe)
    result = tmp_path / "out"
    shutil.copytree(output, result)
    assert problems(Ended(ended.code, ()), recipe, result) == []
    file = result / f"{table}.parquet"
    cells = pq.read_table(file)
    numbers = cells[column].to_numpy().copy()
    numbers[0] += 10**12
    place = cells.column_names.index(column)
    pq.write_table(cells.set_column(place, column, pa.array(numbers)), file)
    assert any(Path(table).name in problem for problem in problems(Ended(0, ()), recipe, result))

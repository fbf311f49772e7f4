"""A short slice of the campaigns of fuzzing and of faults; docs/robustness.md has the long ones."""

from __future__ import annotations

from random import Random

import pytest
from campaigns.faults import FAULTS, inject
from campaigns.fuzz import run_case
from campaigns.targets import TARGETS

#: Cases of each target, some seconds in all.
CASES = {
    "archives": 30,
    "files": 2,
    "names": 40,
    "options": 4,
    "pages": 40,
    "parquet": 3,
    "parquet-reader": 4,
    "patterns": 40,
    "sqlite": 5,
    "sqlite-reader": 8,
}
#: Reported by long campaigns: (target, seed, number). The first: an index of a table WITHOUT ROWID
#: covers the columns, and SQLite answers in its order unless asked for that of the key.
REPEATED = [("sqlite-reader", 2611, 44)]
#: The others start commands of their own.
QUICK_FAULTS = (
    "killed between renames",
    "killed in mid-run",
    "interrupted",
    "an input cut",
    "an input gone",
    "two runs into one output",
)


def test_every_target_has_a_slice():
    assert CASES.keys() == TARGETS.keys()


@pytest.mark.parametrize("target", CASES)
def test_hostile_input_gives_right_numbers_or_one_line(tmp_path, target):
    for number in range(CASES[target]):
        folder = tmp_path / str(number)
        folder.mkdir()
        what, found = run_case(target, 0, number, folder)
        assert found == [], f"case {number}: {what}"


@pytest.mark.parametrize(("target", "seed", "number"), REPEATED)
def test_a_case_that_a_campaign_reported_stays_explained(tmp_path, target, seed, number):
    what, found = run_case(target, seed, number, tmp_path)
    assert found == [], what


@pytest.mark.parametrize("name", QUICK_FAULTS)
def test_nothing_is_lost_or_left_by_what_happens_to_a_run(tmp_path, name):
    assert name in FAULTS
    work, references = tmp_path / "work", tmp_path / "references"
    work.mkdir()
    assert inject(name, "idle_gaps", "none", work, references, Random(0)) == []

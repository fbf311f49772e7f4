"""No title has a number of another owner: it is refused, and recomputed from what a run wrote."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from results import read_frames, read_report
from title_claims import check_title, false_numbers, recomputed

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.report.analysis import load_rules
from nsys_llm.report.findings import Evidence, Finding, claim, evidence_of, finding_record
from nsys_llm.report.rules import OURS, Rule

RULE = Rule(
    "of_a_rank",
    scope="rank",
    title="Rank {rank} is {late_ns} late",
    details="{late_ns} in {steps_n:step}. Of {span_ns}.",
    threshold="from 1 %",
    source=OURS,
    recommendation="Look at it.",
    tables=("ranks",),
)
RANKS = pd.DataFrame({"rank": [0, 1, 1], "late_ns": [7_000, 20_000, 9_000], "kernel": list("abb")})
TABLES = {"ranks": RANKS, "files": pd.DataFrame({"rank": [0, 1], "File": ["r0", "r1"]})}


def of_rank(rank, how="sum"):
    return claim(TABLES, "late_ns", "ranks", "late_ns", how, rank=rank)


def made(title, *evidence, details="Nothing more."):
    return finding_record(
        Finding("x", "rank", title, details, ("ranks",), "Look.", evidence=evidence)
    )


def test_a_title_takes_no_number_that_is_not_from_rows():
    steps = claim(TABLES, "steps_n", "ranks", "rank", "count", rank=1)
    finding = RULE.finding(rank=1, evidence=(of_rank(1), steps), fields={"span_ns": 1_000})
    assert finding.title == "Rank 1 is 29 us late"
    assert finding.details == "29 us in 2 steps. Of 1 us."
    for late in ({"late_ns": 29_000}, {}):
        with pytest.raises(ManifestError, match="late_ns"):
            RULE.finding(rank=1, evidence=(steps,), fields={"span_ns": 1_000, **late})
    # Nor the first sentence.
    with pytest.raises(ManifestError, match="steps_n"):
        RULE.finding(rank=1, evidence=(of_rank(1),), fields={"span_ns": 1_000, "steps_n": 2})


def test_a_number_of_another_owner_is_found():
    assert list(false_numbers(made("Rank 1 is 29 us late", of_rank(1)), TABLES)) == []
    for title, evidence in (
        ("Rank 1 is 36 us late", of_rank((0, 1))),
        ("Rank 1 is 7 us late", of_rank(0)),
        ("Rank 1 is 30 us late", of_rank(1)),
        ("Rank 1 is 29 us late in `a`", of_rank(1)),
        ("Rank 1 is 36 us late", claim(TABLES, "late_ns", "ranks", "late_ns")),
    ):
        assert len(list(false_numbers(made(title, evidence), TABLES))) == 1, title
    first = made("Rank 1 is late", of_rank(0), details="It is 7 us. Others 8.")
    assert list(false_numbers(first, TABLES)) == ["7 in 'It is 7 us'"]
    both = claim(TABLES, "late_ns", "ranks", "late_ns", rank=1, kernel="b")
    check_title(made("Rank 1 is 29 us late in `b`", both), TABLES)


def test_a_value_that_its_rows_do_not_have_is_found():
    with pytest.raises(AssertionError):
        check_title(made("Rank 1 is late", replace(of_rank(1), value=28_999)), TABLES)


@pytest.mark.parametrize("seed", range(20))
def test_claims_are_what_brute_force_gives(seed):
    rng = random.Random(seed)
    rows = [
        {
            "rank": rng.randrange(3),
            "kernel": rng.choice(["a", "b", None]),
            "start_ns": rng.choice([None, rng.randrange(50)]),
            "end_ns": rng.choice([None, 50 + rng.randrange(50)]),
        }
        for _ in range(rng.randrange(12))
    ]
    tables = {
        "t": pd.DataFrame(rows, columns=NAMES).astype({"start_ns": "Int64", "end_ns": "Int64"})
    }
    over = claim(tables, "all_ns", "t", "end_ns")
    for how in ("sum", "max", "min", "median", "mean", "count", "distinct"):
        where = {"rank": (0, 2), "kernel": rng.choice(["a", None, ("b", None)])}
        column = rng.choice(["start_ns", "end_ns-start_ns"])
        made_of = claim(tables, "x_pct", "t", column, how, rng.choice([None, over]), **where)
        record = finding_record(Finding("x", "run", "T", "D", ("t",), "R", evidence=(made_of,)))[
            "evidence"
        ][0]
        assert recomputed(record, tables) == pytest.approx(made_of.value)
        assert evidence_of(record) == made_of


def test_what_is_said_to_be_one_cell_is_one():
    with pytest.raises(ManifestError, match="no one value"):
        claim(TABLES, "late_ns", "ranks", "late_ns", "cell", rank=1)
    assert of_rank(0, "cell") == Evidence(
        "ranks", (("rank", 0),), "late_ns", 7_000, "late_ns", "cell", None
    )


@pytest.mark.parametrize("recipe", recipe_names())
def test_titles_of_a_run_are_those_of_its_files(shared_runs, recipe):
    _, folder = shared_runs.run("demo", recipe)
    tables = read_frames(folder)
    for part in sorted((folder / "parts").glob("*")):
        tables |= {f"{part.name}/{name}": frame for name, frame in read_frames(part).items()}
        check_report(part, read_frames(part))
    check_report(folder, tables)


def check_report(folder: Path, tables: dict[str, pd.DataFrame]) -> None:
    for finding in read_report(folder)["report"]["findings"]:
        check_title(finding, tables)


def test_few_titles_have_no_number():
    """A title without one names its subject; more of them would be more that nobody can check."""
    rules = {rule.id: rule for recipe in recipe_names() for rule in load_rules(recipe).values()}
    numberless = {
        name for name, rule in rules.items() if not any(f"_{unit}" in rule.title for unit in UNITS)
    }
    assert len(numberless) == 43, sorted(numberless)


NAMES = ["rank", "kernel", "start_ns", "end_ns"]
UNITS = ("ns", "pct", "n:", "n}", "bytes", "gb_s", "ratio", "low:")

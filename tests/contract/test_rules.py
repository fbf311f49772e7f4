"""Every finding has a row in texts.py, every row a finding, and the row says all that it has to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.manifest import load_manifest, recipe_names
from nsys_llm.report import capture_findings, run_findings, run_texts
from nsys_llm.report.analysis import load_rules
from nsys_llm.report.findings import SCOPES, SEVERITIES, UNRECORDED_WORK
from nsys_llm.report.price import Price
from nsys_llm.report.rank_findings import RULES as RANK_RULES
from nsys_llm.report.rank_findings import STAGE_RULES
from nsys_llm.report.rules import OURS, Case, Rule, rules_by_id
from nsys_llm.taxonomy.kernel_levers import load_kernel_levers

ROOT = Path(__file__).parents[2]
#: Rules of each recipe, and the modules that fire them.
BOOKS = {
    recipe: (load_rules(recipe), sorted((ROOT / "recipes" / recipe / "findings").glob("*.py")))
    for recipe in recipe_names()
} | {"all recipes": (run_texts.RULES, [Path(m.__file__) for m in (run_findings, capture_findings)])}
RULES = [(book, rule) for book, (rules, _) in BOOKS.items() for rule in rules.values()]
#: Rules that fire on a fact, and not from an amount on.
FACTS = {
    "unprofiled_step",
    "broken_times",
    "earlier_run",
    "groups",
    "rank_twice",
    "segment",
    "shared_gpu",
    "page_migrations",
    "silent_processes",
    "lost_work",
    "unawaited_work",
    "cut_work",
    "unknown_table",
    "clocks_apart",
    "clocks_too_uncertain",
    "determinism_atomics",
    "determinism_cascade_merge",
    "determinism_split_k",
    "graphs_cut_at_end",
    "missing_ranks",
    "no_gpu_work",
    "not_comparable",
    "opaque_graphs",
    "stored_secrets",
}

RULE = Rule(
    "late_rank",
    scope="rank",
    title="Rank {rank} is late by {share}",
    threshold="from 5 %",
    source=OURS,
    recommendation="Look at rank {rank}.",
    record="--trace=cuda",
    window_shows="step {step}",
    cases={"stages": Case(title="Stage {rank} waits", recommendation="See the bubble.")},
    tables=("ranks",),
)
PRICE = Price(100, ("compute",), bound_ns=2)
FIELDS = {"rank": 3, "share": "7 %", "step": 4}


def texts_of(modules):
    """Return the string constants of modules but texts.py, documentation left out."""
    texts = set()
    for path in modules:
        if path.name == "texts.py":
            continue
        tree = ast.parse(path.read_text("utf-8"))
        texts |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    return texts


@pytest.mark.parametrize("book", BOOKS)
def test_every_row_is_used(book):
    rules, modules = BOOKS[book]
    levers = set(load_kernel_levers())
    # Those on ranks are named by the verdict, those on captures by the kind of statement, one by a
    # constant that all recipes share.
    elsewhere = {*RANK_RULES, *STAGE_RULES, *run_texts.KINDS, UNRECORDED_WORK}
    assert set(rules) - texts_of(modules) - levers - elsewhere == set()
    # A lever's rule is named by the data.
    assert set(rules) & levers in (set(), levers)


@pytest.mark.parametrize("book", BOOKS)
def test_every_rule_that_is_named_has_a_row(book):
    rules, modules = BOOKS[book]
    named = {
        node.slice.value
        for path in modules
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "RULES"
        and isinstance(node.slice, ast.Constant)
    }
    assert named <= set(rules)


@pytest.mark.parametrize(("book", "rule"), RULES, ids=lambda item: getattr(item, "id", item))
def test_a_row_says_when_it_fires_and_what_to_do(book, rule):
    assert rule.scope in SCOPES
    assert all((rule.source, rule.recommendation, rule.tables))
    assert any(char.isdigit() for char in rule.threshold) == (rule.id not in FACTS)
    severities = set(re.findall(r"\b(?:high|medium|low)\b", rule.threshold))
    assert severities <= set(SEVERITIES)
    if rule.record is not None:
        assert all(word.startswith("--") for word in rule.record.split(" "))
    if book != "all recipes":
        written = {table.file for table in load_manifest(book).writes}
        assert set(rule.tables) <= written


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"fields": {"rank": 3}}, "late_rank: field 'share' is not given"),
        ({"fields": FIELDS, "case": "other"}, "late_rank: there is no case other"),
        ({"fields": FIELDS, "record": "paste this"}, "late_rank: what to record is more than"),
        ({"fields": FIELDS, "details": ""}, "late_rank: a finding never fires without evidence"),
    ],
)
def test_a_finding_is_not_made_of_half_a_rule(given, error):
    with pytest.raises(ManifestError, match=error):
        RULE.finding(**{"price": PRICE, "details": "5 ms.", **given})


def test_a_name_out_of_a_trace_is_no_template():
    fields = {**FIELDS, "share": "`{rank} {0} {`"}
    assert RULE.finding(price=PRICE, details="a", fields=fields).title.endswith("`{rank} {0} {`")


def test_two_rules_have_two_ids():
    with pytest.raises(ManifestError, match="same id"):
        rules_by_id(RULE, RULE)
    assert rules_by_id(RULE)["late_rank"] is RULE

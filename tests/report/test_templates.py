"""Fields of a rule's sentences: by the unit of their name, and parts that are left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nsys_llm.report.findings import cells
from nsys_llm.report.rules import OURS, Rule
from nsys_llm.report.templates import filled, readable


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{x_ns}", 1_230_000, "1.23 ms"),
        ("{x_pct}", np.float64(12.34), "12.3 %"),
        ("{x_bytes}", 1_500, "1.5 kB"),
        ("{x_n}", 1234, "1,234"),
        ("{x_gb_s}", 25.04, "25 GB/s"),
        ("{x_ratio}", 1.256, "1.26"),
        ("{x_ratio:.1f} {x_ratio:g}", 2.0, "2.0 2"),
        ("{x_ns}", math.nan, "-"),
        ("{x_n}", None, "-"),
        ("{x_ns}", "as it is", "as it is"),
        ("{x}", 1234, "1234"),
        ("{x:quoted}", "a`b\n{0}", "`a'b {0}`"),
        ("{x_ns:instant}", 1_000_000_001, "1.000000001 s"),
        ("{x_pct:change}", 12.6, "+12.6 %"),
        ("{x_n:rank} {x_n:=is|are}", 1, "1 rank is"),
        ("{x_n:launch|launches} {x_n:=is|are}", 2000, "2,000 launches are"),
        ("a[ ({x_n} more)]b", 0, "ab"),
        ("a[ ({x_n} more)]b", 3, "a (3 more)b"),
        ('{{"a": ["b", "c"]}} {x}', 1, '{"a": ["b", "c"]} 1'),
    ],
)
def test_the_name_of_a_field_says_how_it_is_written(template, value, text):
    names = {"x", "x_ns", "x_pct", "x_bytes", "x_n", "x_gb_s", "x_ratio"}
    assert filled(template, dict.fromkeys(names, value)) == text


def test_the_first_field_of_a_part_decides_and_a_noun_may_be_a_field():
    template = "{slow_n:{unit}}[; {others_n} more, rank {rank} the worst]."
    fields = {"slow_n": 2, "unit": "iteration", "others_n": 1, "rank": 0}
    assert filled(template, fields) == "2 iterations; 1 more, rank 0 the worst."
    assert readable(template) == "{slow_n}[; {others_n} more, rank {rank} the worst]."
    assert readable("{files_n:file} {files_n:=is|are} left out") == "{files_n} are left out"
    with pytest.raises(KeyError, match="others_n"):
        filled(template, {"slow_n": 2, "unit": "step"})


def test_words_and_evidence_fill_a_rule_and_numbers_beyond_them_are_kept():
    rule = Rule(
        "some_rule",
        scope="rank",
        title="Rank {rank} of {span_ns}",
        details="{span_ns}. {late_ns} late in {steps_n:step}.",
        threshold="from 1 %",
        source=OURS,
        recommendation="Look at {host:quoted}.",
        tables=("ranks",),
    )
    row = {"rank": 1, "span_ns": 5_000_000, "host": "n`1"}
    evidence = cells("ranks", row, ("rank",), ("span_ns", "host"))
    finding = rule.finding(fields={"late_ns": 1000, "steps_n": 1}, evidence=evidence, rank=1)
    assert finding.title == "Rank 1 of 5 ms"
    assert finding.details == "5 ms. 1 us late in 1 step."
    assert finding.recommendation == "Look at `n'1`."
    assert finding.numbers == {"late_ns": 1000, "steps_n": 1}

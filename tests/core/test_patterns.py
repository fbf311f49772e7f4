"""Patterns that choose names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys_llm.core import patterns
from nsys_llm.core.errors import UsageError
from nsys_llm.core.patterns import parse_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("gemm", "sm90_xmma_GEMM_bf16", True),
        ("a.b", "axb", False),  # a dot is a dot
        ("a.b", "xA.By", True),
        ("k<int>", "void k<int>(int)", True),
        ("re:^k", "k1", True),
        ("re:^k", "void k1", False),
        ("re:^k", "K1", False),
        ("re:(?i)^k", "K1", True),
    ],
)
def test_plain_text_is_a_part_in_any_case_and_re_an_expression(pattern, name, expected):
    assert parse_pattern(pattern).matches(name) == expected


def test_one_of_several_names_is_enough():
    assert parse_pattern("b").matches("a", "b")
    assert not parse_pattern("c").matches("a", "b")


@pytest.mark.parametrize("text", ["", "  ", "re:", "re: "])
def test_an_empty_pattern_is_refused(text):
    with pytest.raises(UsageError, match="a name pattern is empty"):
        parse_pattern(text)


def test_a_broken_expression_is_refused_with_its_reason():
    with pytest.raises(UsageError, match=r"'re:\(' is not a regular expression \(.*unterminated"):
        parse_pattern("re:(")


@pytest.mark.parametrize("pattern", ["gemm\udcff", "re:\ud800"])
def test_bytes_that_are_no_text_are_refused(pattern):
    with pytest.raises(UsageError, match="bytes that are not UTF-8 text"):
        parse_pattern(pattern)


@pytest.mark.nightly
@given(st.text(max_size=30), st.sampled_from(["a*", "^.?$", "[^x]{2}", "é+b", "(?i)A+b", "a+\n"]))
def test_a_search_beside_finds_what_a_search_here_finds(name, expression):
    pattern = parse_pattern(f"re:{expression}")
    assert pattern.matches(name) == (re.search(expression, name) is not None)
    assert parse_pattern(f"re:{expression}", ours=True).users is None


def test_names_that_are_no_text_are_searched_too():
    assert parse_pattern("re:a+").matches("\udcffa")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a" * 60 + "!", "a" * 200_000 + "!"])
def test_an_expression_that_never_ends_is_one_line(monkeypatch, name):
    monkeypatch.setattr(patterns, "_SECONDS", 0.5)
    for expression in ("(?:a|aa)+$", "(a|a)*$"):
        with pytest.raises(UsageError, match=r"takes more than 0\.5 s"):
            parse_pattern(f"re:{expression}").matches(name)
        # The next question finds an answer again.
        assert parse_pattern("re:a+").matches(name)

"""Patterns that choose names."""

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
        ("re:a+", "\udcffa", True),  # a name that is no text
    ],
)
def test_plain_text_is_a_part_in_any_case_and_re_an_expression(pattern, name, expected):
    assert parse_pattern(pattern).matches(name) == expected
    assert parse_pattern(pattern).matches("*", name) == expected  # one of several is enough


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "a name pattern is empty") for text in ("", "  ", "re:", "re: ")),
        ("re:(", r"'re:\(' is not a regular expression \(.*unterminated"),
        ("gemm\udcff", "bytes that are not UTF-8 text"),
        ("re:\ud800", "bytes that are not UTF-8 text"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_reason(text, said):
    with pytest.raises(UsageError, match=said):
        parse_pattern(text)


@pytest.mark.nightly
@given(st.text(max_size=30), st.sampled_from(["a*", "^.?$", "[^x]{2}", "é+b", "(?i)A+b", "a+\n"]))
def test_a_search_beside_finds_what_a_search_here_finds(name, expression):
    pattern = parse_pattern(f"re:{expression}")
    assert pattern.matches(name) == (re.search(expression, name) is not None)
    assert parse_pattern(f"re:{expression}", ours=True).users is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a" * 60 + "!", "a" * 200_000 + "!"])
def test_an_expression_that_never_ends_is_one_line(monkeypatch, name):
    monkeypatch.setattr(patterns, "_SECONDS", 0.1)
    for expression in ("(?:a|aa)+$", "(a|a)*$"):
        with pytest.raises(UsageError, match=r"takes more than 0\.1 s"):
            parse_pattern(f"re:{expression}").matches(name)
        # The next question finds an answer again.
        assert parse_pattern("re:a+").matches(name)
